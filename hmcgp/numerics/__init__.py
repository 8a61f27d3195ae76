"""Numerical building blocks without a word of Gaussian processes."""
