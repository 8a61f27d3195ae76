"""Draws from a surrogate of the log density, weighted to the density itself: fewer evaluations."""
