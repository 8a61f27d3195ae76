"""Gaussian-process classification with hyperparameters integrated by Hybrid Monte Carlo."""
