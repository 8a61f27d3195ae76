"""Averages over the draws: predictions, leave-one-out, bounds, label noise."""
