"""Running chains: workers, checkpoints, progress, time."""
