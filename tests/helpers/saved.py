"""Small fitted estimators of every kind, for the tests of saving."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hmcgp import GPClassifier, GPRegressor, likelihoods, samplers
from hmcgp.errors import InvalidInput
from hmcgp.samplers.trace import Info, Trace

N = 20
_RNG = np.random.default_rng(5)
X = pd.DataFrame(_RNG.normal(size=(N, 2)), columns=["a", "b"])
MIXED = X.assign(c=pd.Categorical(["x", "y", "z", "z"] * (N // 4)))
LABELS = np.where(X.a + 0.5 * _RNG.normal(size=N) > 0.0, "yes", "no")
LABELS[:2] = "yes", "no"
THREE = np.array(["u", "v", "w", "w"] * (N // 4), dtype=object)
Y = np.asarray(np.sin(X.a) + 0.1 * _RNG.normal(size=N))
PAIR = np.column_stack([Y, X.b + Y])
GAPS = pd.DataFrame(np.where(np.arange(2 * N).reshape(N, 2) % 7 == 3, np.nan, PAIR), columns=["p", "q"])
WEIGHTS = np.linspace(0.5, 2.0, N)


def near_one(model, chains=2, draws=4, tune=3, seed=3):
    """A trace that no sampler has made: hyperparameters near 1, and statistics that are noise."""
    rng = np.random.default_rng(seed)
    u = 0.2 * rng.normal(size=(chains, tune + draws, model.n_dim))
    theta = np.array([[model.constrain(v) for v in chain] for chain in u])
    stats = {name: rng.normal(size=u.shape[:2]) for name in Info._fields} | {"diverging": np.zeros(u.shape[:2], bool)}
    cut = {name: (values[:, :tune], values[:, tune:]) for name, values in stats.items()}
    return Trace(
        draws=theta[:, tune:],
        unconstrained=u[:, tune:],
        stats={name: after for name, (_, after) in cut.items()},
        names=model.names,
        sampler="hmc",
        sampling_time=1.5,
        interrupted=False,
        warmup_draws=theta[:, :tune],
        warmup_unconstrained=u[:, :tune],
        warmup_stats={name: before for name, (before, _) in cut.items()},
        inv_metric=np.ones((chains, model.n_dim)),
    )


def fit(estimator, *data, sampled=False, **about_rows):
    """Fit with the draws of `near_one`, or by the estimator's own sampler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few draws do not converge
        if not sampled:
            estimator._sample = lambda sampler, identity, pilot: near_one(estimator.model_)
        estimator.fit(*data, **about_rows)
        vars(estimator).pop("_sample", None)
    return estimator


def quick(kind=GPClassifier, **settings):
    return kind(
        **{"draws": 4, "tune": 4, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 1, **settings}
    )


KINDS = {
    "laplace": lambda: fit(quick(), X, LABELS),
    "hmc": lambda: fit(quick(), X, LABELS, sampled=True),
    "map": lambda: fit(quick(sampler="map"), X, LABELS, sampled=True),
    "label noise": lambda: fit(quick(likelihood="label_noise", evidence="ep"), X, LABELS),
    "lower bound": lambda: fit(quick(evidence="lower"), X, LABELS),
    "mean field": lambda: fit(quick(likelihood="probit", evidence="tap"), X, LABELS),
    "softmax": lambda: fit(quick(), X, THREE),
    "multinomial": lambda: fit(quick(likelihood="probit", evidence="ep"), X, THREE),
    "categories": lambda: fit(quick(), MIXED, LABELS),
    "class weights": lambda: fit(quick(class_weight={"yes": 2.0, "no": 1.0}), X, LABELS, sample_weight=WEIGHTS),
    "numbers as labels": lambda: fit(quick(predict_draws=None), X.to_numpy(), (LABELS == "yes") + 3),
    "regression": lambda: fit(quick(GPRegressor), X, Y),
    "varying noise": lambda: fit(quick(GPRegressor, likelihood="varying_noise"), X, Y),
    "known noise": lambda: fit(quick(GPRegressor, standardize=False), X, Y, noise_variance=np.full(N, 0.01)),
    "weighted regression": lambda: fit(quick(GPRegressor), X, Y, sample_weight=WEIGHTS),
    "independent outputs": lambda: fit(quick(GPRegressor), X, PAIR),
    "coregional outputs": lambda: fit(
        quick(GPRegressor, outputs="coregional"), X, pd.DataFrame(GAPS, columns=["p", "q"])
    ),
    "generator": lambda: fit(
        quick(GPRegressor, random_state=np.random.default_rng(9), likelihood=likelihoods.Gaussian(noise=0.1)), X, Y
    ),
    "settings": lambda: fit(quick(sampler=samplers.NUTS(target_accept=0.9), max_time=5.0), X, LABELS),
}


def more_rows(gp):
    """Three rows and what `append` takes with them."""
    known = {"noise_variance": np.full(3, 0.02)} if getattr(gp.model_.likelihood, "known", None) else {}
    table: Any = (MIXED if gp.n_features_in_ == 3 else X)[:3]
    table = table if hasattr(gp, "feature_names_in_") else table.to_numpy()
    if gp.targets == "labels":
        return (table, gp.classes_[[0, 1, 0]]), known
    return (table, PAIR[:3] if hasattr(gp, "output_names_") else Y[:3]), known


def members(path):
    """Content of every member of a saved file, by name."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def rewrite(path, content, *, sums=True, compression=zipfile.ZIP_STORED):
    """Write members to a file, with checksums that fit unless told otherwise."""
    meta = json.loads(content["meta.json"])
    if sums:
        meta["sha256"] = {name: sha256(body).hexdigest() for name, body in content.items() if name != "meta.json"}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, body in content.items():
            archive.writestr(name, json.dumps(meta) if name == "meta.json" else body)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def find(node, wanted):
    """First {kind: content} of JSON for which `wanted(kind, content)` holds."""
    if isinstance(node, dict):
        for kind, content in node.items():
            if wanted(kind, content):
                return node
        parts: Any = node.values()
    else:
        parts = node if isinstance(node, list) else ()
    return next((found for part in parts if (found := find(part, wanted)) is not None), None)


def refused(path, match, cls=GPRegressor):
    with pytest.raises(InvalidInput, match=match) as caught:
        cls.load(path)
    assert repr(str(path)) in str(caught.value)


def shifted(a):
    return np.roll(a, 1, axis=1)
