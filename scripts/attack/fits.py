"""Random fits: a clear refusal before any draw, or predictions that are finite and the same every time."""

from __future__ import annotations

import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import sklearn

import hmcgp
from hmcgp import GPClassifier, GPRegressor
from hmcgp.errors import InvalidInput
from hmcgp.kernels import Constant, Linear, Matern, SquaredExponential, White
from scripts.attack import faults, trees
from scripts.attack.cases import Case
from scripts.attack.trees import chance, pick

PACKAGE, SKLEARN = str(Path(hmcgp.__file__).parent), str(Path(sklearn.__file__).parent)
SAMPLERS = [None, "hmc", "nuts", "metropolis", "map", "jumps"]
BINARY = [
    ("logistic", "laplace"),
    ("probit", "laplace"),
    ("logistic", "ep"),
    ("probit", "ep"),
    ("label_noise", "ep"),
    ("probit", "tap"),
    ("probit", "naive"),
    ("logistic", "lower"),
]
SEVERAL = [("logistic", "laplace"), ("probit", "ep"), ("softmax", "laplace")]


class Fit(NamedTuple):
    """Arguments of an estimator, its fit, and its predictions."""

    estimator: Any
    settings: dict[str, Any]
    X: Any
    y: Any
    options: dict[str, Any]
    new: Any

    def run(self, **changes: Any) -> Any:
        """Fit."""
        return self.estimator(**(self.settings | changes)).fit(self.X, self.y, **self.options)


def random_fit(rng: np.random.Generator) -> Fit:
    """A fit with nothing wrong about it: small, short, and of any kind."""
    estimator = pick(rng, [GPClassifier, GPClassifier, GPRegressor])
    n, d = int(rng.integers(4, 25)), int(rng.integers(1, 4))
    X = trees.inputs(rng, n, d)
    settings: dict[str, Any] = {
        "sampler": pick(rng, SAMPLERS), "draws": int(rng.integers(1, 16)), "tune": int(rng.integers(1, 26)),
        "chains": int(rng.integers(1, 3)), "n_jobs": 1, "random_state": int(rng.integers(1000)), "progressbar": False,
        "predict_draws": pick(rng, [None, 1, 5, 500]), "kernel": random_kernel(rng, d),
    }  # fmt: skip
    if chance(rng, 0.1):
        settings["standardize"] = False
        X = rng.normal(size=(n, d))
    options: dict[str, Any] = {}
    if estimator is GPRegressor:
        y = trees.numbers(rng, X, (n, 2) if chance(rng, 0.2) else (n,))
        if (np.ptp(y, axis=0) == 0.0).any():  # refused, rightly
            y = y + rng.normal(size=y.shape)
        if y.ndim == 2 and chance(rng, 0.5):
            settings["outputs"] = "coregional"
    else:
        y = trees.labels(rng, X)
        pair = pick(rng, BINARY)
        if chance(rng, 0.3):
            pair, y = pick(rng, SEVERAL), rng.integers(3, size=n)
            y[:3] = [0, 1, 2]
        settings |= {"likelihood": pair[0], "evidence": pair[1], "refine": pick(rng, ["auto", "auto", None])}
        several = len(np.unique(y)) > 2
        if pair[0] == "softmax" and not several:
            settings["kernel"] = None
        if chance(rng, 0.2):
            y = np.array([["a", "b", "c/d"][int(v)] for v in (y if several else (y + 1) / 2)])
        elif chance(rng, 0.2):
            y = y.astype(str).astype(object) if several else y > 0
        if chance(rng, 0.15) and not (several and pair[0] == "probit"):
            settings["class_weight"] = "balanced"
    by_row = settings.get("class_weight") is None and settings.get("likelihood") != "probit"
    if chance(rng, 0.2) and by_row:
        options["sample_weight"] = rng.choice([0.5, 1.0, 2.0], size=n)
    new = X[rng.integers(n, size=3)] + rng.normal(size=(3, d)) * X.std(axis=0)
    if chance(rng, 0.25):
        X, new = named_tables(rng, X, new, categories=settings["kernel"] is None and chance(rng, 0.7))
    return Fit(estimator, settings, X, y, options, new)


def named_tables(rng: np.random.Generator, X: Any, new: Any, *, categories: bool) -> tuple[Any, Any]:
    """Inputs as DataFrames, with a column of categories or without."""
    X, new = (pd.DataFrame(A, columns=[f"input {k}" for k in range(A.shape[1])]) for A in (X, new))
    if categories:
        X["group"] = pd.Categorical(np.array(["u", "v", "w"])[rng.integers(3, size=len(X))])
        new["group"] = pd.Categorical([X["group"].iloc[0]] * len(new), categories=X["group"].cat.categories)
    return X, new


def random_kernel(rng: np.random.Generator, d: int) -> Any:
    """A kernel that can be saved, or None for the default."""
    return pick(
        rng,
        [
            None,
            None,
            None,
            SquaredExponential(),
            SquaredExponential(length_scale=1.0, standardized=True) + White(),
            Matern(nu=2.5, ard=True) + Constant(1.0, standardized=True),
            2.0 * Matern(nu=0.5).on([d - 1]) + Linear(),
        ],
    )


def attempt(case: Case) -> None:
    """Make a fit, spoil two of five, and see what becomes of it."""
    rng = case.rng
    fit, fault = random_fit(rng), None
    if chance(rng, 0.4):
        fault = faults.spoil(rng, fit)
        fit = fault.fit
    name = "sound" if fault is None else fault.name
    case.note(f"{fit.estimator.__name__} ({name})", fit.settings, f"X = {fit.X!r}", f"y = {fit.y!r}", fit.options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            gp = fit.run()
        except Exception as error:
            case.count("refused" if fault else "refused, though sound")
            judge_refusal(case, name, error, sound=fault is None)
            return
        if fault is not None:
            case.count("accepted, though bad")
            case.breaks(f"{name}: it was fitted")
            return
        case.count("fitted")
        judge_fit(case, fit, gp)


def judge_refusal(case: Case, name: str, error: Exception, *, sound: bool) -> None:
    """An error is a refusal if someone wrote it for the user."""
    case.note(f"refused: {type(error).__name__}: {error}")
    if sound:
        case.breaks("a sound fit was refused", error)
    elif not isinstance(error, (ValueError, TypeError)):
        case.breaks(f"{name}: another exception", error)
    elif not str(error).strip():
        case.breaks(f"{name}: no message", error)
    elif not isinstance(error, InvalidInput) and not written_for_users(error):
        case.breaks(f"{name}: an error from inside, not a refusal", error)


def written_for_users(error: BaseException) -> bool:
    """Whether a `raise` of this package, or scikit-learn's validation, made the error."""
    frames = traceback.extract_tb(error.__traceback__)
    if any(frame.filename.startswith(SKLEARN) for frame in frames):
        return True
    last = frames[-1]
    return last.filename.startswith(PACKAGE) and (last.line or "").startswith("raise")


def predictions(gp: Any, new: Any) -> list[Any]:
    """All that an estimator says of new rows."""
    if isinstance(gp, GPClassifier):
        return [gp.predict_proba(new)]
    return [np.asarray(part) for part in gp.predict(new, return_std=True)]


def judge_fit(case: Case, fit: Fit, gp: Any) -> None:
    """Check predictions, and that repetitions and files give the same."""
    name = f"{fit.estimator.__name__}, sampler={fit.settings['sampler']!r}"
    try:
        first = predictions(gp, fit.new)
    except Exception as error:
        case.breaks(f"{name}: predictions failed", error)
        return
    case.note(f"predictions {first}")
    if not all(np.isfinite(part).all() for part in first):
        case.breaks(f"{name}: predictions are not finite")
    elif isinstance(gp, GPClassifier):
        p = first[0]
        if p.min() < 0.0 or p.max() > 1.0 or np.abs(p.sum(axis=1) - 1.0).max() > 1e-9:
            case.breaks(f"{name}: probabilities {p.tolist()}")
        elif not np.isin(gp.predict(fit.new), gp.classes_).all():
            case.breaks(f"{name}: it predicts other labels than {gp.classes_}")
    elif first[1].min() < 0.0:
        case.breaks(f"{name}: a negative standard deviation")
    for n_jobs in (1, 2):
        again = fit.run(n_jobs=n_jobs)
        if not same_draws(gp, again):
            case.breaks(f"{name}: other draws when repeated with n_jobs={n_jobs}")
        elif not equal(first, predictions(again, fit.new)):
            case.breaks(f"{name}: other predictions when repeated with n_jobs={n_jobs}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.hmcgp"
        try:
            gp.save(path)
            loaded = fit.estimator.load(path)
        except Exception as error:
            case.breaks(f"{name}: saving or loading failed", error)
            return
    if not (same_draws(gp, loaded) and equal(first, predictions(loaded, fit.new))):
        case.breaks(f"{name}: another estimator comes back from its file")


def same_draws(a: Any, b: Any) -> bool:
    """Whether two fits hold the same draws, bit for bit."""
    return np.array_equal(a.trace_.unconstrained, b.trace_.unconstrained) and np.array_equal(
        a.trace_.stats["lp"], b.trace_.stats["lp"]
    )


def equal(a: list[Any], b: list[Any]) -> bool:
    """Whether all arrays are equal, bit for bit."""
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True))
