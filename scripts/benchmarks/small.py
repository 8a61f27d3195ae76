"""Small tables and first use, as ratios and seconds of processor time in one run.

    python -m scripts.benchmarks.small

* A real run of HMC (adapted steps, warm-up included, Laplace, logistic, one length scale per input) over the LAPACK
  time of its factorisations, all of them dpotrf and one dpotri per evaluation.  Both are the best of several turns.
* The same evaluations with a line and an offset of next to no variance added, as the default behind classes has them,
  over those without: what the terms cost where all else is the same.
* dpotrf in the lower over the upper triangle of a C array, as compiled solvers call it.
* The first fit in a new installation, with an empty and with a filled cache of compiled code, in new processes.
* Four chains in two threads over the same one after another.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from hmcgp import Model, sample
from hmcgp.kernels import Constant, Linear, SquaredExponential
from hmcgp.numerics import lapack
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.density import Evaluation
from hmcgp.priors import LogNormal
from hmcgp.runtime.typing import Array
from hmcgp.samplers import HMC
from scripts.benchmarks.defaults import two_cores
from scripts.benchmarks.evidence import KERNEL, in_turns, lapack_floor, problem, start_up, theta_of, verdict

RUN_OVER_FLOOR = {80: 1.6, 200: 1.25}  # targets: at most
WITH_TERMS = 1.1
FIRST_FITS = {  # settings of GPClassifier, data, and the target in seconds with an empty cache
    "laplace": ("refine=None", "crabs", 6.0),
    "ep": ("evidence='ep', refine=None", "crabs", 12.0),
    "default": ("", "crabs", None),
    "softmax": ("refine=None", "thyroid", None),
}


def real_run(n: int, tune: int = 500, draws: int = 300) -> dict[str, Any]:
    """One chain, and the LAPACK calls that it makes, in turns."""
    X, y, data = problem(n)
    model = Model(X, y, kernel=KERNEL)
    floor, time_lapack = lapack_floor(np.eye(n) + 0.25 * model.kernel_at(theta_of(X.shape[1]))(X), time.thread_time)

    def run() -> Any:
        return sample(model, HMC(), draws=draws, tune=tune, chains=1, random_state=1, n_jobs=1, progressbar=False)

    trace = run()
    total = {
        key: int(trace.stats[key].sum() + trace.warmup_stats[key].sum()) for key in ("n_steps", "solver_iterations")
    }
    evaluations = total["n_steps"]
    best = in_turns({"run": run, "lapack": time_lapack}, seconds=15.0, clock=time.process_time)
    factorisations = total["solver_iterations"] / evaluations + 1.0
    at_least = factorisations * floor["dpotrf"] + floor["dpotri"]
    ratio = best["run"] / evaluations / at_least
    print(
        f"n = {n}, {data}: {evaluations} evaluations of {1e6 * best['run'] / evaluations:.0f} µs, {factorisations:.2f} "
        f"factorisations each; run / floor {verdict(ratio, RUN_OVER_FLOOR[n], at_least=False)}",
        flush=True,
    )
    return {"n": n, "run_us": 1e6 * best["run"] / evaluations, "factorisations": factorisations, "over_floor": ratio}


def with_terms(n: int, draws: int, length: int) -> dict[str, Any]:
    """The last evaluations of a run of HMC, each warm from the one before, with and without line and offset."""
    X, y, data = problem(n)
    curve, log_slope = SquaredExponential(ard=True), np.log(1e-8)
    plain = Model(X, y, kernel=curve)
    full = Model(X, y, kernel=curve + Linear(LogNormal(log_slope, 1e-3)) + Constant(1e-9))
    visited: list[Array] = []

    class Recorded(Model):
        def evaluate(self, u: Array, carry: object = None, gradient: bool = True) -> Evaluation:
            visited.append(u.copy())
            return super().evaluate(u, carry, gradient)

    recorded = Recorded(X, y, kernel=curve)
    sample(recorded, HMC(), draws=draws, tune=draws, chains=1, random_state=1, n_jobs=1, progressbar=False)

    def replay(model: Model, more: tuple[float, ...]) -> Any:
        points = [np.append(u, more) for u in visited[-length:]]

        def run() -> None:
            carry = None
            for u in points:
                carry = model.evaluate(u, carry).carry

        return run

    runs = {"plain": replay(plain, ()), "full": replay(full, (log_slope,))}
    best = in_turns(runs, seconds=10.0, clock=time.process_time)
    ratio = best["full"] / best["plain"]
    print(
        f"n = {n}, {data}: {1e6 * best['plain'] / length:.0f} µs an evaluation; with line and offset / without "
        f"{verdict(ratio, WITH_TERMS, at_least=False)}",
        flush=True,
    )
    return {"n": n, "with_terms": ratio}


def triangles(sizes: tuple[int, ...] = (80, 200, 532)) -> dict[int, float]:
    """Time of a factorisation in the lower triangle over one in the upper."""
    upper_inplace, found = compiled(lapack.cholesky_upper_inplace), {}
    for n in sizes:
        A = np.eye(n) + 0.1 * np.ones((n, n))
        work = np.empty_like(A)

        def timed(factor: Any, A: Any = A, work: Any = work) -> Any:
            def call() -> None:
                np.copyto(work, A)
                factor(work)

            return call

        lower, upper = timed(lapack.cholesky_inplace), timed(upper_inplace)
        best = in_turns({"lower": lower, "upper": upper}, seconds=1.0, clock=time.thread_time)
        found[n] = best["lower"] / best["upper"]
    print("dpotrf, lower / upper triangle: " + ", ".join(f"n = {n} {ratio:.2f}" for n, ratio in found.items()))
    return found


def first_fits() -> dict[str, dict[str, float]]:
    """First fit and prediction of each kind."""
    found = {}
    for name, (settings, data, target) in FIRST_FITS.items():
        row = found[name] = start_up(settings, data)
        print(
            f"first fit, {name}: empty cache {verdict(row['first_fit_empty_cache_s'], target, at_least=False)} s, "
            f"filled {row['first_fit_filled_cache_s']:.2f} s, import {row['import_s']:.2f} s",
            flush=True,
        )
    return found


def main() -> None:
    with threadpool_limits(1):
        for n in RUN_OVER_FLOOR:
            real_run(n)
        for n, draws, length in ((80, 200, 400), (200, 200, 200), (532, 40, 40)):
            with_terms(n, draws, length)
        triangles()
    first_fits()
    two_cores()


if __name__ == "__main__":
    main()
