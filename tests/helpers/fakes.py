"""A stand-in for a fitted estimator, for the plots."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from scipy.special import expit

CHAINS, DRAWS = 3, 60


@dataclass
class FakeResult:
    """A logistic regression with draws of its slopes, and a trace that has nothing to do with it."""

    trace_: SimpleNamespace
    parameters_: list[SimpleNamespace]
    n_features_in_: int = 1
    classes_: np.ndarray = field(default_factory=lambda: np.array(["no", "yes"]))
    standardize: bool = True

    def predict_proba_draws(self, X):
        slopes = np.linspace(0.5, 2.5, 41)
        p = expit(slopes[:, None] * np.asarray(X, dtype=float).sum(axis=1))
        return np.stack([1.0 - p, p], axis=2)

    def predict_proba_interval(self, X, level=0.9):
        ends = np.quantile(self.predict_proba_draws(X), [0.5 - level / 2, 0.5 + level / 2], axis=0)
        return np.moveaxis(ends, 0, -1)

    def predict_proba(self, X):
        return self.predict_proba_draws(X).mean(axis=0)


def parameter(name, size=1, labels=None):
    return SimpleNamespace(name=name, size=size, labels=labels, role=name.split(".")[-1], value=None)


def make_result(centres=(30.0, 1.0, 5.0), *, n_features=1, diverging=()):
    """Length scales with the medians given, spread by 5 %, after a variance spread over decades."""
    rng = np.random.default_rng(7)
    names = tuple(f"x{i}" for i in range(len(centres)))
    variance = np.exp(2.0 * rng.standard_normal((CHAINS, DRAWS, 1)))
    scales = np.asarray(centres) * np.exp(0.05 * rng.standard_normal((CHAINS, DRAWS, len(centres))))
    stats = {"diverging": np.zeros((CHAINS, DRAWS), dtype=bool)}
    for place in diverging:
        stats["diverging"][place] = True
    trace = SimpleNamespace(
        draws=np.concatenate([variance, scales], axis=2),
        names=["variance", *(f"length_scale[{name}]" for name in names)],
        stats=stats,
        weight=np.ones(CHAINS * DRAWS),
        log_weight=None,
    )
    free = [parameter("variance"), parameter("length_scale", len(names), names)]
    return FakeResult(trace, free, n_features_in_=n_features)
