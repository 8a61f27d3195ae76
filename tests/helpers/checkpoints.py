"""Runs with a checkpoint, what interrupts them, and how their draws are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hmcgp import Model, datasets
from hmcgp.errors import InterruptedWarning
from hmcgp.samplers import sample
from tests.helpers.densities import Gaussian, correlated_gaussian

QUICK: dict[str, Any] = {"draws": 60, "tune": 80, "random_state": 3, "progressbar": False}


def everything(trace):
    return [
        trace.draws,
        trace.unconstrained,
        trace.warmup_unconstrained,
        trace.inv_metric,
        *trace.stats.values(),
        *trace.warmup_stats.values(),
    ]


def assert_same(a, b):
    for x, y in zip(everything(a), everything(b), strict=True):
        np.testing.assert_array_equal(x, y)


def gp_model(n=30):
    X, y = datasets.load_crabs(return_X_y=True)
    X = np.asarray(X, dtype=float)[:: 200 // n]
    labels = np.where(np.asarray(y)[:: 200 // n] == np.unique(y)[0], -1.0, 1.0)
    return Model((X - X.mean(axis=0)) / X.std(axis=0), labels)


class Stopping(Gaussian):
    """Is interrupted, as by Ctrl-C, at the k-th evaluation."""

    def __init__(self, k):
        plain = correlated_gaussian()
        super().__init__(plain.mean, plain.covariance)
        self.left = k

    def evaluate(self, u, carry=None, gradient=True):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().evaluate(u, carry)


def interrupt(k, sampler, **options):
    """Start a run that is interrupted at its k-th evaluation."""
    target = Stopping(k)
    try:
        with pytest.warns(InterruptedWarning, match="interrupted.*The same call goes on from"):
            sample(target, sampler, n_jobs=1, **options)
    except KeyboardInterrupt:  # in warm-up
        pass
    assert target.left <= 0


def run_length(n_kills):
    """A run long enough to be killed so often."""
    return {"draws": 20 * n_kills, "tune": 80, "chains": 4, "random_state": 7, "progressbar": False}
