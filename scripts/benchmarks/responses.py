"""Counts, outliers and ordered levels: time of an evaluation beside the logistic's, and robust regression.

    python -m scripts.benchmarks.responses                       # a minute; --rows 80 200 500 1000
    python -m scripts.benchmarks.responses --sections robust     # two minutes; statsmodels where it is installed

*speed*: log Z and its gradient in K and in the likelihood's own parameters by Laplace's approximation, in time on the
processor, in turns with the logistic's of the same n in one run; one core, BLAS on one thread.  Cold, and from the mode
one step away, as along a trajectory (behind Student's t, searches take no start).
*ep*: the same, cold, by expectation propagation, as multiples of the logistic's and of Laplace's time.
*robust*: root mean square error of a curve (80 rows, 10 tables) and of a line (statsmodels' RLM with Huber's weights
beside it) with 0, 10 and 25 % of the targets off by a standard deviation of 3, the noise of the others being 0.15.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hmcgp import GPRegressor
from hmcgp.evidence import EP, Laplace
from hmcgp.kernels import Constant, Linear, SquaredExponential
from hmcgp.likelihoods import Binomial, Logistic, NegativeBinomial, Ordinal, Poisson, StudentT
from hmcgp.runtime.blas_threads import single_blas_thread

SHARES = (0.0, 0.1, 0.25)
TABLES = 10


def problems(n: int, variance: float = 1.5, length: float = 2.5) -> tuple[Any, dict[str, tuple[Any, Any]]]:
    """Covariance of n rows of eight inputs, and likelihoods with targets of the same latent function."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 8))
    K = SquaredExponential(variance, length)(X) + 1e-3 * np.eye(n)
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


def best_times(calls: dict[str, Callable[[], Any]], seconds: float = 0.02, turns: int = 7) -> dict[str, float]:
    """Time of each call on the processor, the best of some turns that take about so many seconds each."""
    best = dict.fromkeys(calls, np.inf)
    repeats = {}
    for name, call in calls.items():
        call()  # compiles
        begin = time.process_time()
        call()
        repeats[name] = max(1, int(seconds / max(time.process_time() - begin, 1e-5)))
    for _ in range(turns):
        for name, call in calls.items():
            begin = time.process_time()
            for _ in range(repeats[name]):
                call()
            best[name] = min(best[name], (time.process_time() - begin) / repeats[name])
    return best


def speed(rows: list[int]) -> None:
    """Print the time of an evaluation over the logistic's, cold and warm, with the factorisations."""
    for n in rows:
        (K, cases), (near, _) = problems(n), problems(n, 1.6, 2.4)
        for kind in ("cold", "warm"):
            calls: dict[str, Callable[[], Any]] = {}
            factors = {}
            for name, (likelihood, y) in cases.items():
                start = Laplace()(near, y, likelihood).posterior.start if kind == "warm" else None
                calls[name] = partial(Laplace(), K, y, likelihood, start)
                factors[name] = calls[name]().n_iter + 1
            report(f"n = {n}, {kind}", best_times(calls), factors)


def by_ep(rows: list[int]) -> None:
    """Print the time of an evaluation by expectation propagation over the logistic's, and over Laplace's."""
    for n in rows:
        K, cases = problems(n)
        cases.pop("student_t")
        times = best_times({name: partial(EP(), K, y, lik) for name, (lik, y) in cases.items()}, turns=3)
        laplace = best_times({name: partial(Laplace(), K, y, lik) for name, (lik, y) in cases.items()}, turns=3)
        report(f"n = {n}, EP", times, {name: f"{times[name] / laplace[name]:.1f} times Laplace" for name in times})


def report(title: str, times: dict[str, float], notes: dict[str, Any]) -> None:
    """Print times as multiples of the logistic's, each with a note."""
    ratios = (f"{name} {times[name] / times['logistic']:.2f} ({notes[name]})" for name in times if name != "logistic")
    print(f"{title}: logistic {1e3 * times['logistic']:.2f} ms ({notes['logistic']}); {', '.join(ratios)}")


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
    parser.add_argument("--sections", nargs="+", choices=["speed", "ep", "robust"], default=["speed", "robust"])
    arguments = parser.parse_args()
    with single_blas_thread():
        if "speed" in arguments.sections:
            speed(arguments.rows)
        if "ep" in arguments.sections:
            by_ep(arguments.rows)
        if "robust" in arguments.sections:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                robust()


if __name__ == "__main__":
    main()
