"""Compiled loops of the covariance functions."""
