"""Print a digest of the draws and predictions of small fits, one line each.

Run it before and after a change that must not change behaviour, on one machine, and compare:

    python -m scripts.benchmarks.fingerprint > before.txt
    python -m scripts.benchmarks.fingerprint | diff before.txt -

It covers the samplers "hmc", "nuts", "metropolis", "jumps" and "map"; the evidence "laplace", "ep", "tap", "naive",
"lower", "exact" and "iterative"; several classes by Laplace and by EP; label noise, weights, categories, the default
refinement, several outputs, and appended rows.  It does not cover the surrogate, `GPCounts`, `GPOrdinal`, the Student-t
likelihood, inducing inputs, refine="exact" or `sample_jointly`.
Digests are of bits, so they differ between processors and between versions of numpy, scipy and numba.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from hmcgp import GPClassifier, GPRegressor, evidence, kernels
from hmcgp.datasets import load_crabs, load_motorcycle, load_thyroid

SHORT: dict[str, Any] = {"draws": 20, "tune": 30, "chains": 2, "random_state": 1, "progressbar": False}


def digest(*arrays: Any) -> str:
    """Hash of the bits of some arrays."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(np.ascontiguousarray(np.asarray(array, dtype=np.float64)).tobytes())
    return state.hexdigest()[:16]


def fits() -> Iterator[tuple[str, str]]:
    """Name and digest of each fit."""
    X, y = load_crabs(return_X_y=True)
    X, y = X[::4], np.asarray(y)[::4]
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2.0, len(y))
    for sampler in ("hmc", "nuts", "metropolis", "jumps", "map"):
        gp = GPClassifier(sampler=sampler, refine=None, **SHORT).fit(X, y)
        yield f"sampler {sampler}", digest(gp.trace_.draws, gp.predict_proba(X))
    for provider in ("laplace", "ep", "tap", "naive", "lower"):
        likelihood = "logistic" if provider in ("laplace", "lower") else "probit"
        gp = GPClassifier(likelihood=likelihood, evidence=provider, refine=None, **SHORT).fit(X, y)
        yield f"evidence {provider}", digest(gp.trace_.draws, gp.predict_proba(X), *gp.latent_mean_and_variance(X))
    gp = GPClassifier(likelihood="label_noise", evidence="ep", **SHORT).fit(X, y)
    yield "label noise", digest(gp.trace_.draws, gp.predict_proba(X), gp.label_noise())
    gp = GPClassifier(refine=None, **SHORT).fit(X, y, sample_weight=weights)
    yield "weights", digest(gp.trace_.draws, gp.predict_proba(X), gp.loo().elpd)
    table = X.assign(colour=pd.Categorical(rng.choice(["red", "green", "blue"], len(y))))
    gp = GPClassifier(refine=None, **SHORT).fit(table, y)
    yield "categories", digest(gp.trace_.draws, gp.predict_proba(table))
    gp = GPClassifier(**SHORT).fit(X, y)
    yield "refined", digest(gp.trace_.draws, gp.trace_.weight, gp.predict_proba(X), gp.loo().elpd)
    X, y = load_thyroid(return_X_y=True)
    X, y = X[::6], np.asarray(y)[::6]
    for likelihood, provider in (("logistic", "laplace"), ("probit", "ep")):
        gp = GPClassifier(likelihood=likelihood, evidence=provider, refine=None, **SHORT).fit(X, y)
        yield f"several classes {provider}", digest(gp.trace_.draws, gp.predict_proba(X))
    X, y = load_motorcycle(return_X_y=True)
    X, y = np.asarray(X)[::2], np.asarray(y)[::2]
    gp = GPRegressor(kernel=kernels.Matern(ard=True) + kernels.Constant(), **SHORT).fit(X, y)
    mean, sd = gp.predict(X, return_std=True)
    yield "regression", digest(gp.trace_.draws, mean, sd, gp.predict_quantiles(X, [0.1, 0.9]), gp.loo().elpd)
    iterative = evidence.Iterative()
    gp = GPRegressor(evidence=iterative, **SHORT).fit(X, y)
    yield "regression iterative", digest(gp.trace_.draws, gp.predict(X))
    Y = np.column_stack([y, np.sin(y) + 0.1 * y])
    for outputs in ("independent", "coregional"):
        gp = GPRegressor(outputs=outputs, **SHORT).fit(X[::3], Y[::3])
        yield f"outputs {outputs}", digest(gp.trace_.draws, gp.predict(X))
    gp = GPRegressor(**SHORT).fit(X[:40], y[:40]).append(X[40:50], y[40:50])
    yield "append", digest(gp.trace_.draws, gp.predict(X))


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in fits():
            print(f"{name:28s} {value}", flush=True)


if __name__ == "__main__":
    main()
