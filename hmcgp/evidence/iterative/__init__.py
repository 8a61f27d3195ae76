"""Estimates of the evidence of Gaussian noise without a factorisation."""
