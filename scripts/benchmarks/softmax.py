"""Several classes against two: one evaluation of log Z with its gradient, BLAS on one thread, in time on the processor.

Forensic glass, six classes and 190 of its 214 rows, at one point of the hyperparameters.  The binary model has the same
rows and kernel, and two labels (window glass or not).  A Newton iteration of two classes costs a factorisation of order
n, n³/3; one of C classes C inverses, n³ each, since the matrix that couples the classes is the sum of them, and its
factorisation.  The gradient adds an inverse, ⅔n³, to the last factorisation of two classes, and M⁻¹E_c and its product
with itself, 2n³, for each of C.  After one iteration that is 4/3 n³ against 4 C n³; the time of these calls alone is
printed as the floor.  Expectation propagation behind a multinomial probit is timed beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hmcgp import Model, datasets
from hmcgp.numerics import lapack
from scripts.benchmarks.evidence import KERNEL, in_turns, peak_arrays, theta_of, verdict

N_ROWS, N_CLASSES = 190, 6
RATIO = 1.5  # target: at most this times C times the binary cost
ARRAYS = N_CLASSES + 6  # target: at most this many n x n arrays


def glass(n: int = N_ROWS) -> tuple[Any, Any]:
    """Standardised inputs and classes 0 to 5; rows are repeated, with noise, where n exceeds their number."""
    bunch = datasets.load_glass()
    X = bunch.data.to_numpy()
    codes = np.unique(bunch.target, return_inverse=True)[1].astype(float)
    rng = np.random.default_rng(0)
    rows = np.resize(rng.permutation(len(X)), n)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X[rows] + (n > len(X)) * 0.1 * rng.normal(size=(n, X.shape[1])), codes[rows]


def time_calls(K: Any) -> tuple[dict[str, float], Callable[[], None]]:
    """Best times of the four calls that are of order n³, and the call that improves them."""
    A = np.eye(len(K)) + 0.2 * K
    L, work, out = np.linalg.cholesky(A), np.empty_like(K), np.zeros_like(K)
    calls: dict[str, tuple[Any, Callable[[], Any]]] = {
        "factor": (A, lambda: lapack.cholesky_inplace(work)),
        "inverse": (L, lambda: lapack.inverse_from_cholesky_inplace(work)),
        "couple": (K, lambda: lapack.triangular_solve_inplace(L, work, False)),
        "square": (K, lambda: lapack.add_gram(0.5, work, out)),
    }
    best = dict.fromkeys(calls, np.inf)

    def improve() -> None:
        for name, (source, call) in calls.items():
            np.copyto(work, source)
            t = time.thread_time()
            call()
            best[name] = min(best[name], time.thread_time() - t)

    return best, improve


def evaluation() -> dict[str, Any]:
    X, y = glass()
    theta = theta_of(X.shape[1])
    nearby = theta * np.exp(0.1 * np.resize([1.0, -1.0], theta.size))  # as in evidence.py
    models = {
        "binary": Model(X, np.where(y < 2.0, 1.0, -1.0), kernel=KERNEL),
        "softmax": Model(X, y, kernel=KERNEL, likelihood="softmax"),
        "ep": Model(X, y, kernel=KERNEL, likelihood="multinomial_probit"),
    }
    calls: dict[str, Callable[[], Any]] = {}
    found = {}
    for name, model in models.items():
        start = model.posterior(nearby)[1].posterior.start
        for kind, begin in (("cold", None), ("warm", start)):
            calls[f"{name}_{kind}"] = partial(model.log_evidence, theta, begin)
            found[f"{name}_{kind}_iterations"] = model._log_evidence(theta, begin)[0].n_iter
    parts, calls["parts"] = time_calls(models["binary"].kernel_at(theta)(X))
    best = in_turns(calls, 8.0, 20, time.thread_time)
    del best["parts"]
    ratios = {f"{kind}_over_binary": best[f"softmax_{kind}"] / best[f"binary_{kind}"] for kind in ("cold", "warm")}
    one_set = N_CLASSES * (parts["factor"] + parts["inverse"]) + parts["factor"]
    last = N_CLASSES * (parts["couple"] + parts["square"])
    alike = parts["factor"] + parts["inverse"] + parts["factor"]  # a cold start: all classes have the same π
    floors = {
        "cold_floor_ms": 1e3 * (alike + found["softmax_cold_iterations"] * one_set + last),
        "warm_floor_ms": 1e3 * ((found["softmax_warm_iterations"] + 1) * one_set + last),
    }
    return {**{f"{name}_ms": 1e3 * t for name, t in best.items()}, **found, **ratios, **floors}


PREPARE = """
from scripts.benchmarks.softmax import KERNEL, Model, glass, theta_of
def prepare(n):
    X, y = glass(n)
    model = Model(X, y, kernel=KERNEL, likelihood="softmax")
    return lambda: model.log_evidence(theta_of(X.shape[1]))
"""


def report() -> dict[str, Any]:
    figures = {**evaluation(), "peak_arrays": peak_arrays(1000, PREPARE)}
    print(f"log Z + gradient, glass, n = {N_ROWS}, C = {N_CLASSES}; one core")
    for kind in ("cold", "warm"):
        ratio = figures[f"{kind}_over_binary"]
        times = ", ".join(
            f"{name} {figures[f'{name}_{kind}_ms']:.2f} ms ({figures[f'{name}_{kind}_iterations']} iterations)"
            for name in ("binary", "softmax")
        )
        floor, ep = figures[f"{kind}_floor_ms"], figures[f"ep_{kind}_ms"]
        print(
            f"  {kind}: {times}, ratio by class {verdict(ratio / N_CLASSES, RATIO, at_least=False)}; "
            f"floor {floor:.2f} ms, by class {floor / figures[f'binary_{kind}_ms'] / N_CLASSES:.2f}; "
            f"multinomial probit, EP {ep:.1f} ms, {ep / figures[f'softmax_{kind}_ms']:.1f} times the softmax"
        )
    if figures["peak_arrays"] is not None:
        print(f"  peak memory in n x n arrays {verdict(figures['peak_arrays'], ARRAYS, at_least=False)}", flush=True)
    return figures
