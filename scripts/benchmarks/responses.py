"""Counts, outliers and ordered levels: time of an evaluation beside the logistic's, and robust regression.

    python -m scripts.benchmarks.responses                       # a minute; --rows 80 200 500 1000
    python -m scripts.benchmarks.responses --sections robust     # two minutes; statsmodels where it is installed

*speed*: log Z and its gradient in K and in the likelihood's own parameters, cold, in time on the processor, in turns
with the logistic's of the same n in one run; one core, BLAS on one thread.
*robust*: root mean square error of a curve (80 rows, 10 tables) and of a line (statsmodels' RLM with Huber's weights
beside it) with 0, 10 and 25 % of the targets off by a standard deviation of 3, the noise of the others being 0.15.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from hmcgp import GPRegressor
from hmcgp.evidence import Laplace
from hmcgp.kernels import Constant, Linear, SquaredExponential
from hmcgp.likelihoods import Binomial, Logistic, NegativeBinomial, Ordinal, Poisson, StudentT
from hmcgp.runtime.parallel import single_blas_thread

SHARES = (0.0, 0.1, 0.25)
TABLES = 10


def problems(n: int) -> tuple[Any, dict[str, tuple[Any, Any]]]:
    """Covariance of n rows of eight inputs, and likelihoods with targets of the same latent function."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 8))
    K = SquaredExponential(1.5, 2.5)(X) + 1e-3 * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.normal(size=n)
    exposure, trials, noise = rng.uniform(1.0, 5.0, n), rng.integers(1, 10, n), 0.2 * rng.normal(size=n)
    noise[::10] *= 15.0
    p = 1.0 / (1.0 + np.exp(-f))
    levels = np.digitize(f + rng.normal(size=n), [-1.0, 0.0, 1.0]).astype(float)
    counts = rng.poisson(exposure * np.exp(f)).astype(float)
    return K, {
        "logistic": (Logistic(), np.where(rng.random(n) < p, 1.0, -1.0)),
        "poisson": (Poisson(exposure), counts),
        "negative_binomial": (NegativeBinomial(0.2, exposure), counts),
        "binomial": (Binomial(trials), rng.binomial(trials, p).astype(float)),
        "ordinal": (Ordinal(tuple("abcd"), -1.0, [1.0, 1.0]), levels),
        "student_t": (StudentT(0.04, 4.0), f + noise),
    }


def speed(rows: list[int], repeats: int = 7) -> None:
    """Print the time of an evaluation over the logistic's, the best of some turns."""
    for n in rows:
        K, cases = problems(n)
        best = dict.fromkeys(cases, np.inf)
        iterations = {name: Laplace()(K, y, likelihood).n_iter for name, (likelihood, y) in cases.items()}
        for _ in range(repeats):
            for name, (likelihood, y) in cases.items():
                begin = time.process_time()
                Laplace()(K, y, likelihood)
                best[name] = min(best[name], time.process_time() - begin)
        ratios = ", ".join(
            f"{name} {best[name] / best['logistic']:.2f} ({iterations[name] + 1})"
            for name in cases
            if name != "logistic"
        )
        first = f"logistic {1e3 * best['logistic']:.2f} ms ({iterations['logistic'] + 1} factorisations)"
        print(f"n = {n}: {first}; {ratios}")


def table(share: float, seed: int, *, line: bool) -> tuple[Any, Any, Any]:
    """Inputs, targets, and the curve or line behind them."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-3.0, 3.0, size=(80, 1)), axis=0)
    curve = 0.5 * X[:, 0] if line else np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 0]
    y = curve + 0.15 * rng.normal(size=80)
    off = rng.random(80) < share
    y[off] += 3.0 * rng.normal(size=off.sum())
    return X, y, curve


def robust_line(X: Any, y: Any) -> Any:
    """Line of statsmodels' robust linear model; None where it is not installed."""
    try:
        import statsmodels.api as sm
    except ImportError:
        return None
    return sm.RLM(y, sm.add_constant(X), M=sm.robust.norms.HuberT()).fit().fittedvalues


def robust() -> None:
    """Print root mean square errors of curves and lines, over tables with and without outliers."""
    kernels: dict[str, Any] = {"curve": None, "line": Constant() + Linear()}
    for what, kernel in kernels.items():
        for share in SHARES:
            errors: dict[str, list[float]] = {"gaussian": [], "student_t": [], "RLM": []}
            for seed in range(TABLES):
                X, y, truth = table(share, seed, line=what == "line")
                for name in ("gaussian", "student_t"):
                    gp = GPRegressor(kernel, likelihood=name, sampler="map", random_state=0, progressbar=False)
                    errors[name].append(float(np.sqrt(np.mean((gp.fit(X, y).predict(X) - truth) ** 2))))
                fitted = robust_line(X, y) if what == "line" else None
                if fitted is not None:
                    errors["RLM"].append(float(np.sqrt(np.mean((fitted - truth) ** 2))))
            found = ", ".join(f"{name} {np.mean(values):.3f}" for name, values in errors.items() if values)
            print(f"{what}, {100 * share:.0f} % outliers: root mean square error {found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[80, 200, 500, 1000])
    parser.add_argument("--sections", nargs="+", choices=["speed", "robust"], default=["speed", "robust"])
    arguments = parser.parse_args()
    with single_blas_thread():
        if "speed" in arguments.sections:
            speed(arguments.rows)
        if "robust" in arguments.sections:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                robust()


if __name__ == "__main__":
    main()
