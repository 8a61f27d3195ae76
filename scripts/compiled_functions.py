"""List the compiled functions that fits call, for `hmcgp compile`, the wheels and the progress display.

    python -m scripts.compiled_functions          # rewrites hmcgp/compilation/functions.json
    python -m scripts.compiled_functions --check  # fails if a fit calls a function that is not listed

Each kind of fit (`FITS`: a likelihood, dense or with inducing inputs) runs in a process of its own, on small random
tables, with its predictions, intervals, leave-one-out and effects.  Recorded is every function that Python calls, with
the types of its arguments and the processor time of its compilation.  Run it when compiled functions or their arguments
change.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

LISTING = Path(__file__).parents[1] / "hmcgp" / "compilation" / "functions.json"
SHORT: dict[str, Any] = {"draws": 60, "tune": 60, "chains": 2, "random_state": 0, "progressbar": False}
FULL: dict[str, Any] = {"random_state": 0, "progressbar": False}  # default draws: enough for the surrogate


# -- tables ------------------------------------------------------------------------------------------------------------


def table(n: int, d: int = 3, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random inputs and a latent function of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] + np.sin(2.0 * X[:, -1]) + 0.4 * rng.normal(size=n)


def mixed_frame(X: np.ndarray, *, gaps: bool = True) -> pd.DataFrame:
    """Table with a column of categories and missing values."""
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    frame["group"] = pd.Categorical(np.where(X[:, 0] > 0.5, "a", np.where(X[:, 0] < -0.5, "b", "c")))
    if gaps:
        frame.loc[::7, "x1"] = np.nan
    return frame


def counts(f: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).poisson(np.exp(0.5 * f))


def ordered(f: np.ndarray) -> np.ndarray:
    return np.digitize(f, [-0.7, 0.7])


# -- fits --------------------------------------------------------------------------------------------------------------


def inspect(gp: Any, X: Any) -> None:
    """Ask for whatever an estimator answers from Python without further settings."""
    gp.predict(X)
    for name in ("predict_proba", "predict_proba_interval", "predict_interval", "predict_quantiles", "predict_rate",
                 "predict_mean", "latent_mean_and_variance", "predict_proba_draws", "sample_y"):  # fmt: skip
        if hasattr(gp, name):
            getattr(gp, name)(X)
            getattr(gp, name)(X[:1])
    gp.loo()
    gp.effect(0)
    gp.relevance()
    gp.summary()


def logistic(**settings: Any) -> None:
    from hmcgp import GPClassifier

    for n, d, options in [(160, 3, FULL), (40, 1, SHORT | {"sampler": "map"}), (40, 3, SHORT)]:
        X, f = table(n, d)
        gp = GPClassifier(**options, **settings).fit(X, f > 0)
        inspect(gp, X)
    if not settings:
        gp.effect((0, 1))
        large_predictions()
        X, f = table(60)
        inspect(GPClassifier(missing="indicator", **SHORT).fit(mixed_frame(X), f > 0), mixed_frame(X))
        GPClassifier(class_weight="balanced", **SHORT).fit(X, f > 0, sample_weight=np.linspace(0.5, 2.0, 60)).loo()


def other_checks() -> None:
    """Chains under EP, as after a refinement whose weights failed; more rows; bounds; the exact posterior."""
    from hmcgp import GPClassifier

    X, f = table(40)
    GPClassifier(evidence="ep", **SHORT).fit(X, f > 0).predict_proba(X)
    inspect(GPClassifier(likelihood="probit", evidence="ep", **SHORT).fit(X, ordered(f)), X)
    gp = GPClassifier(**SHORT).fit(X, f > 0)
    gp.append(X[:2], f[:2] > 0)
    gp.audit()
    gp.log_marginal_evidence()
    gp.evidence_bounds()


def large_predictions() -> None:
    """Many rows, predicted from as few of the training rows as needed."""
    from hmcgp import GPClassifier

    X, f = table(420)
    GPClassifier(sampler="map", **SHORT).fit(X, f > 0).predict_proba(table(4200)[0])


def softmax(**settings: Any) -> None:
    from hmcgp import GPClassifier

    for options in (SHORT, SHORT | {"sampler": "map"}):
        X, f = table(60)
        inspect(GPClassifier(**options, **settings).fit(X, ordered(f)), X)
    if not settings:
        inspect(GPClassifier(missing="indicator", **SHORT).fit(mixed_frame(X), ordered(f)), mixed_frame(X))


def gaussian(**settings: Any) -> None:
    from hmcgp import GPRegressor

    for n, d, options in [(60, 3, SHORT), (40, 1, SHORT | {"sampler": "map"})]:
        X, f = table(n, d)
        gp = GPRegressor(**options, **settings).fit(X, f)
        inspect(gp, X)
        gp.predict(X, return_std=True)
        gp.predict(X[:5], return_cov=True)
        gp.log_predictive_density(X, f)
    if not settings:
        X, f = table(40)
        both = np.column_stack([f, -f])
        for outputs in ("independent", "coregional"):
            GPRegressor(outputs=outputs, **SHORT).fit(X, both).predict(X, return_std=True)
        inspect(GPRegressor(missing="indicator", **SHORT).fit(mixed_frame(X), f), mixed_frame(X))


def student_t(**settings: Any) -> None:
    from hmcgp import GPRegressor

    for options in (SHORT, SHORT | {"sampler": "map"}):
        X, f = table(60)
        gp = GPRegressor(likelihood="student_t", **options, **settings).fit(X, f + 5.0 * (np.arange(60) == 3))
        inspect(gp, X)
        gp.predict(X, return_std=True)
        gp.outlier_probability()


def of_counts(likelihood: str, **settings: Any) -> None:
    from hmcgp import GPCounts

    X, f = table(60)
    y = counts(f)
    for options in (SHORT, SHORT | {"sampler": "map"}):
        trials = {"trials": np.full(60, y.max())} if likelihood == "binomial" else {}
        gp = GPCounts(likelihood=likelihood, **options, **settings).fit(X, y, **trials)
        gp.loo()
        gp.effect(0)
        gp.relevance()
        gp.predict_rate(X[:7])
        for name in ("predict", "predict_interval", "predict_quantiles", "sample_y"):
            getattr(gp, name)(X[:7], **{key: value[:7] for key, value in trials.items()})


def of_ordinal(**settings: Any) -> None:
    from hmcgp import GPOrdinal

    for options in (SHORT, SHORT | {"sampler": "map"}):
        X, f = table(60)
        inspect(GPOrdinal(**options, **settings).fit(X, ordered(f)), X)


def other_labels() -> None:
    """Probit and label noise."""
    from hmcgp import GPClassifier

    X, f = table(60)
    for likelihood in ("probit", "label_noise"):
        inspect(GPClassifier(likelihood=likelihood, **SHORT).fit(X, f > 0), X)


def other_kernels() -> None:
    """Kernels that a default fit does not use."""
    from hmcgp import GPClassifier, GPRegressor, kernels

    X, f = table(40)
    for kernel in (
        *(kernels.Matern(nu=nu, ard=True) for nu in (0.5, 1.5, 2.5)),
        *(kernels.RationalQuadratic(), kernels.Periodic(), kernels.ExponentialPower(), kernels.NeuralNetwork()),
        *(kernels.SquaredExponential(), kernels.SquaredExponential(ard=True) + kernels.White(), kernels.Linear()),
        *(kernels.SquaredExponential() * kernels.Periodic(), kernels.Polynomial()),
    ):
        GPRegressor(kernel, sampler="map", **SHORT).fit(X, f).predict(X, return_std=True)
        GPClassifier(kernel, sampler="map", **SHORT).fit(X, f > 0).predict_proba(X)


INDUCING: dict[str, Any] = {"inducing": 20}
FITS: dict[str, Callable[[], None]] = {
    "logistic": logistic,
    "logistic-inducing": lambda: logistic(**INDUCING),
    "softmax": softmax,
    "softmax-inducing": lambda: softmax(**INDUCING),
    "gaussian": gaussian,
    "gaussian-inducing": lambda: gaussian(**INDUCING),
    "student_t": student_t,
    "student_t-inducing": lambda: student_t(**INDUCING),
    "poisson": lambda: of_counts("poisson"),
    "negative_binomial": lambda: of_counts("negative_binomial"),
    "binomial": lambda: of_counts("binomial"),
    "poisson-inducing": lambda: of_counts("poisson", **INDUCING),
    "ordinal": of_ordinal,
    "ordinal-inducing": lambda: of_ordinal(**INDUCING),
    "other_checks": other_checks,
    "other_labels": other_labels,
    "other_kernels": other_kernels,
}


# -- recording ---------------------------------------------------------------------------------------------------------


def record(name: str) -> list[dict[str, Any]]:
    """Run one kind of fit in this process; return the functions that it called from Python."""
    from numba.core import event

    from hmcgp.compilation.functions import AFTER
    from hmcgp.estimators.base import GaussianProcess
    from hmcgp.numerics.code_cache import CodeCache

    fitting: list[None] = []
    fit = GaussianProcess._fit_model
    kinds: dict[Any, set[str]] = {}
    compiling: list[float] = []  # when each function that is being compiled now was begun
    called: dict[tuple[str, str, tuple[str, ...]], float] = {}
    load = CodeCache.load_overload

    def key(function: Any, signature: Any) -> tuple[str, str, tuple[str, ...]]:
        return function.__module__, function.__qualname__, tuple(map(str, signature))

    def recorded(self: Any, sig: Any, target_context: Any) -> Any:
        if not compiling:
            called.setdefault(key(self._function, sig), 0.0)
            kinds.setdefault(key(self._function, sig), set()).add(name if fitting else name + AFTER)
        return load(self, sig, target_context)

    def recorded_fit(*args: Any) -> None:
        fitting.append(None)
        fit(*args)
        fitting.pop()

    class Clock(event.Listener):
        def on_start(self, event: Any) -> None:
            compiling.append(time.thread_time())

        def on_end(self, event: Any) -> None:
            begun = compiling.pop()
            if not compiling:
                called[key(event.data["dispatcher"].py_func, event.data["args"])] = time.thread_time() - begun

    CodeCache.load_overload = recorded  # type: ignore[method-assign]
    GaussianProcess._fit_model = recorded_fit  # type: ignore[assignment, method-assign]
    event.register("numba:compile", Clock())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains
        FITS[name]()
    return [
        dict(zip(("module", "name", "arguments"), place, strict=True))
        | {"fits": sorted(kinds[place]), "seconds": round(seconds, 1)}
        for place, seconds in called.items()
        if place[0].startswith("hmcgp.")
    ]


def record_all(names: list[str]) -> list[dict[str, Any]]:
    """Run each kind of fit in a new process, with a cache that begins empty and that they share."""
    merged: dict[tuple[str, str, tuple[str, ...]], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            output = Path(folder) / "called.json"
            command = [sys.executable, "-m", "scripts.compiled_functions", "--record", name, str(output)]
            subprocess.run(command, check=True, env=os.environ | {"NUMBA_CACHE_DIR": folder})
            rows = json.loads(output.read_text(encoding="utf-8"))
            print(f"{name}: {len(rows)} functions", flush=True)
            for row in rows:
                known = merged.setdefault((row["module"], row["name"], tuple(row["arguments"])), row)
                known["fits"] = sorted({*known["fits"], *row["fits"]})
                known["seconds"] = max(known["seconds"], row["seconds"])
    return [merged[key] for key in sorted(merged)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only report functions that are not listed")
    parser.add_argument("--record", nargs=2, metavar=("FIT", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        name, output = options.record
        Path(output).write_text(json.dumps(record(name)), encoding="utf-8")
        return 0
    rows = record_all(list(FITS))
    if options.check:
        listed = {(row["module"], row["name"], *row["arguments"]) for row in json.loads(LISTING.read_text("utf-8"))}
        absent = [row for row in rows if (row["module"], row["name"], *row["arguments"]) not in listed]
        for row in absent:
            print(f"not listed: {row['module']}:{row['name']}({', '.join(row['arguments'])})")
        return int(bool(absent))
    LISTING.write_text("[\n" + ",\n".join(" " + json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
    print(f"wrote {LISTING}: {len(rows)} functions, {sum(row['seconds'] for row in rows):.0f} s to compile")
    return 0


if __name__ == "__main__":
    sys.exit(main())
