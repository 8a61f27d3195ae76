"""One evaluation, BLAS on one thread: ours against scikit-learn, and against the LAPACK calls to be made.

Every group of things to compare is timed in turns, one after another and again, and the best time of each counts: a
machine that slows down slows all of them down.  Trajectories are timed in processor time, which is the same on a busy
machine, the best of each position.  The floor of a Laplace evidence with gradient is (k + 1) dpotrf + one
dpotri, k being our own Newton iterations (each with a factorisation); steps with an old factor count in our time only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import lapack
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from hmcgp import Model, datasets, sample
from hmcgp.kernels import SquaredExponential
from hmcgp.numerics.quadrature import logistic_average
from hmcgp.priors import LogNormal
from hmcgp.samplers import HMC

KERNEL = SquaredExponential(LogNormal(-3.0, 3.0), LogNormal(1.5, 1.5), ard=True)
TARGETS = {  # n: (scikit-learn / ours cold, scikit-learn / ours warm, ours / floor)
    80: (8.0, 14.0, 1.8),
    200: (8.0, 14.0, None),
    532: (None, None, None),
    1000: (5.0, 8.0, 1.3),
    2000: (None, None, 1.3),
}
EP_OVER_LAPLACE = 8.0  # target: at most


def in_turns(
    calls: dict[str, Callable[[], Any]],
    seconds: float = 2.0,
    least: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Best time of each call in seconds.

    The calls take turns of at least 5 ms each: within a turn caches are warm, as they are in a sampler.
    """
    best = dict.fromkeys(calls, np.inf)
    begin, rounds = time.perf_counter(), 0
    while rounds < least or time.perf_counter() - begin < seconds:
        for name, call in calls.items():
            turn = time.perf_counter()
            while True:
                t = clock()
                call()
                best[name] = min(best[name], clock() - t)
                if time.perf_counter() - turn > 5e-3:
                    break
        rounds += 1
    return best


def problem(n: int) -> tuple[Any, Any, str]:
    """Standardised inputs and labels ±1: crabs, Pima, or a synthetic table for larger n."""
    if n == 80:
        bunch, positive, name = datasets.load_crabs(), "M", "crabs"
    elif n in {200, 532}:
        bunch, positive, name = datasets.load_pima(), "Yes", "Pima"
    else:
        rng = np.random.default_rng(n)
        X = rng.normal(size=(n, 8))
        f = 2.0 * X[:, 0] + 2.0 * np.sin(2.0 * X[:, 1])
        return X, np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-f)), 1.0, -1.0), "synthetic"
    rows = np.random.default_rng(0).permutation(len(bunch.data))[:n] if n == 80 else np.arange(n)
    X = bunch.data.to_numpy()[rows]
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(np.asarray(bunch.target)[rows] == positive, 1.0, -1.0), name


def theta_of(d: int) -> Any:
    return np.concatenate([[4.0], np.full(d, 2.5)])


def lapack_floor(A: Any, clock: Callable[[], float] = time.perf_counter) -> tuple[dict[str, float], Callable[[], None]]:
    """Best times of dpotrf and dpotri for a matrix A, without copying it, and the call that improves them."""
    A = np.asfortranarray(A)
    factor, work = lapack.dpotrf(A, lower=1)[0], np.empty_like(A)
    floor = {"dpotrf": np.inf, "dpotri": np.inf}

    def time_lapack() -> None:
        for routine, source in (("dpotrf", A), ("dpotri", factor)):
            np.copyto(work, source)
            t = clock()
            getattr(lapack, routine)(work, lower=1, **{"overwrite_a" if source is A else "overwrite_c": 1})
            floor[routine] = min(floor[routine], clock() - t)

    return floor, time_lapack


def evidence(n: int) -> dict[str, Any]:
    """Log Z and its full gradient: ours cold and warm, scikit-learn's, and the floor."""
    X, y, name = problem(n)
    model, theta = Model(X, y, kernel=KERNEL), theta_of(X.shape[1])
    # the start of a warm evaluation: the mode one leapfrog step away (0.1 in every log parameter, signs mixed)
    nearby = theta * np.exp(0.1 * np.resize([1.0, -1.0], theta.size))
    start = model.posterior(nearby)[1].posterior.start
    theirs = GaussianProcessClassifier(ConstantKernel(4.0) * RBF(theta[1:]), optimizer=None).fit(X, y).base_estimator_
    log_theta = theirs.kernel_.theta
    n_cold = model._log_evidence(theta, None)[0].n_iter
    n_warm = model._log_evidence(theta, start)[0].n_iter
    floor, time_lapack = lapack_floor(np.eye(n) + 0.25 * model.kernel_at(theta)(X))
    best = in_turns(
        {
            "cold": lambda: model.log_evidence(theta),
            "warm": lambda: model.log_evidence(theta, start),
            "lapack": time_lapack,
            "scikit_learn": lambda: theirs.log_marginal_likelihood(log_theta, eval_gradient=True, clone_kernel=False),
        },
        seconds=3.0 if n < 1000 else 8.0,
    )
    floor_cold = (n_cold + 1) * floor["dpotrf"] + floor["dpotri"]
    floor_warm = (n_warm + 1) * floor["dpotrf"] + floor["dpotri"]
    return {
        "n": n,
        "data": name,
        "inputs": X.shape[1],
        "cold_ms": 1e3 * best["cold"],
        "warm_ms": 1e3 * best["warm"],
        "scikit_learn_ms": 1e3 * best["scikit_learn"],
        "dpotrf_ms": 1e3 * floor["dpotrf"],
        "dpotri_ms": 1e3 * floor["dpotri"],
        "iterations_cold": n_cold,
        "iterations_warm": n_warm,
        "scikit_learn_over_cold": best["scikit_learn"] / best["cold"],
        "scikit_learn_over_warm": best["scikit_learn"] / best["warm"],
        "cold_over_floor": best["cold"] / floor_cold,
        "warm_over_floor": best["warm"] / floor_warm,
        "peak_arrays": peak_arrays(n) if n >= 1000 else None,
    }


MEMORY = """
import gc
{prepare}
def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
def run(n):
    evaluate = prepare(n)
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
    before = peak()
    evaluate()
    return peak() - before
run(80)
n = int({n})
print(run(n) / (8 * n * n))
"""
LAPLACE = """
from scripts.benchmarks.evidence import KERNEL, Model, problem, theta_of
def prepare(n):
    X, y, _ = problem(n)
    model = Model(X, y, kernel=KERNEL)
    return lambda: model.log_evidence(theta_of(X.shape[1]))
"""


def peak_arrays(n: int, prepare: str = LAPLACE) -> float | None:
    """Peak memory of one evaluation with gradient, in n x n matrices: how far a new process's resident set grew."""
    if not os.access("/proc/self/clear_refs", os.W_OK):  # Linux only
        return None
    code = MEMORY.replace("{n}", str(n)).replace("{prepare}", prepare)
    root = Path(__file__).parents[2]
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return float(out.stdout.split()[-1])


def recorded(model: Model) -> list[Any]:
    """The positions at which a sampler evaluates the model: ten trajectories of 20 leapfrog steps."""
    positions: list[Any] = []

    class Recorded:
        n_dim, names, constrain, initial = model.n_dim, model.names, model.constrain, model.initial

        def evaluate(self, u: Any, carry: object = None, gradient: bool = True) -> Any:
            positions.append(u.copy())
            return model.evaluate(u, carry, gradient)

    d = model.X.shape[1]
    hmc = HMC(step_size=0.1, n_steps=20, jitter=0.0, metric=np.concatenate([[1.0], np.full(d, 0.25)]))
    start = np.concatenate([[0.0], np.ones(d)])
    sample(Recorded(), hmc, draws=10, tune=0, chains=1, random_state=0, start=start, progressbar=False)
    return positions


def along_in_turns(models: dict[str, Model], positions: list[Any], warm: dict[str, bool]) -> dict[str, float]:
    """Processor time of log density and gradient at all positions, in seconds: the best of each position."""
    best = {name: np.full(len(positions), np.inf) for name in models}
    in_turns(
        {name: partial(along, m, positions, warm=warm[name], best=best[name]) for name, m in models.items()}, 5.0, 5
    )
    return {name: float(times.sum()) for name, times in best.items()}


def along(model: Model, positions: list[Any], *, warm: bool, best: Any = None) -> int:
    """Evaluate log density and gradient at all positions; return the number of factorisations.

    `best`, an array with one processor time per position, is lowered to those of this run where they are shorter.
    """
    carry, factorisations = None, 0
    for i, u in enumerate(positions):
        begin = time.thread_time()
        e = model.evaluate(u, carry if warm else None)
        if best is not None:
            best[i] = min(best[i], time.thread_time() - begin)
        assert not e.failure
        carry, factorisations = e.carry, factorisations + e.solver_iterations + 1
    return factorisations


def trajectory() -> dict[str, float]:
    """The same positions of a real trajectory on Pima, evaluated cold and warm."""
    X, y, _ = problem(200)
    model = Model(X, y, kernel=KERNEL)
    positions = recorded(model)
    best = along_in_turns({"cold": model, "warm": model}, positions, {"cold": False, "warm": True})
    n = len(positions)
    return {
        "evaluations": n,
        "cold_ms": 1e3 * best["cold"] / n,
        "warm_ms": 1e3 * best["warm"] / n,
        "cold_factorisations": along(model, positions, warm=False) / n,
        "warm_factorisations": along(model, positions, warm=True) / n,
        "warm_over_cold": best["warm"] / best["cold"],
    }


def providers(n: int) -> list[dict[str, Any]]:
    """EP, and what is like it, against Laplace: log Z + gradient at the positions of Laplace's trajectory, warm."""
    X, y, data = problem(n)
    rows = []
    for likelihood, others in {"probit": ["ep", "tap", "naive"], "logistic": ["ep", "lower"]}.items():
        laplace = Model(X, y, kernel=KERNEL, likelihood=likelihood, evidence="laplace")
        positions = recorded(laplace)
        models = {"laplace": laplace, **{name: laplace.with_evidence(name) for name in others}}
        best = along_in_turns(models, positions, dict.fromkeys(models, True))
        for name, model in models.items():
            rows.append(
                {
                    "n": n,
                    "data": data,
                    "likelihood": likelihood,
                    "evidence": name,
                    "evaluations": len(positions),
                    "warm_ms": 1e3 * best[name] / len(positions),
                    "warm_factorisations": along(model, positions, warm=True) / len(positions),
                    "cold_factorisations": along(model, positions, warm=False) / len(positions),
                    "over_laplace": best[name] / best["laplace"],
                }
            )
    return rows


def report_providers(sizes: tuple[int, ...] = (80, 200)) -> list[dict[str, Any]]:
    print(
        "log Z + gradient along a trajectory, warm, processor time; factorisations are one more than sweeps or Newton "
        "iterations"
    )
    rows = [row for n in sizes for row in providers(n)]
    for row in rows:
        target = EP_OVER_LAPLACE if row["evidence"] == "ep" else None
        print(
            f"{row['n']:5d} {row['data']:<6} {row['likelihood']:<9} {row['evidence']:<8} {row['warm_ms']:7.3f} ms  "
            f"factorisations warm {row['warm_factorisations']:5.2f}, cold {row['cold_factorisations']:5.2f}  "
            f"/ Laplace {verdict(row['over_laplace'], target, at_least=False)}",
            flush=True,
        )
    return rows


FIRST_FIT = """
import time
begin = time.process_time()
import hmcgp
imported = time.process_time()
X, y = hmcgp.datasets.load_{data}(return_X_y=True)
gp = hmcgp.GPClassifier(draws=5, tune=20, chains=1, random_state=0, progressbar=False, {settings})
gp.fit(X, y).predict_proba(X)
print(imported - begin, time.process_time() - imported)
"""


def start_up(settings: str = "", data: str = "crabs") -> dict[str, float]:
    """Import and a minimal first fit with prediction, with an empty and a filled cache of compiled code.

    Seconds of processor time, of `GPClassifier` with these settings.
    """
    code = FIRST_FIT.replace("{settings}", settings).replace("{data}", data)
    with tempfile.TemporaryDirectory() as cache:
        runs = []
        for _ in range(2):
            out = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", code],
                env={**os.environ, "NUMBA_CACHE_DIR": cache},
                capture_output=True,
                text=True,
                check=True,
                encoding="utf-8",
            )
            runs.append([float(x) for x in out.stdout.split()])
    return {
        "import_s": runs[1][0],
        "first_fit_empty_cache_s": runs[0][1],
        "first_fit_filled_cache_s": runs[1][1],
        "empty_over_filled": runs[0][1] / runs[1][1],
    }


def averages() -> dict[str, float]:
    """Logistic averages per second on one core."""
    rng = np.random.default_rng(0)
    mean = rng.uniform(-30.0, 30.0, 100_000)
    narrow, wide = rng.uniform(0.0, 4.0, mean.size), rng.uniform(0.0, 1e4, mean.size)
    calls = {"narrow": lambda: logistic_average(mean, narrow), "wide": lambda: logistic_average(mean, wide)}
    best = in_turns(calls, seconds=1.0)
    return {"variance_to_4_per_s": mean.size / best["narrow"], "variance_to_1e4_per_s": mean.size / best["wide"]}


def verdict(value: float, target: float | None, *, at_least: bool) -> str:
    if target is None:
        return f"{value:6.2f}          "
    met = value >= target if at_least else value <= target
    return f"{value:6.2f} ({'≥' if at_least else '≤'} {target:g} {'met' if met else 'NOT MET'})"


def report_evidence(row: dict[str, Any]) -> None:
    cold, warm, floor = TARGETS[row["n"]]
    print(
        f"{row['n']:5d} {row['data']:<10} cold {row['cold_ms']:8.3f} ms  warm {row['warm_ms']:8.3f} ms  "
        f"scikit-learn {row['scikit_learn_ms']:9.2f} ms  "
        f"dpotrf {row['dpotrf_ms']:8.3f}  dpotri {row['dpotri_ms']:8.3f}  "
        f"iterations {row['iterations_cold']}, {row['iterations_warm']}"
    )
    print(
        f"      scikit-learn / cold {verdict(row['scikit_learn_over_cold'], cold, at_least=True)}   "
        f"/ warm {verdict(row['scikit_learn_over_warm'], warm, at_least=True)}   "
        f"cold / floor {verdict(row['cold_over_floor'], floor, at_least=False)}   "
        f"warm / floor {row['warm_over_floor']:.2f}"
        + ("" if row["peak_arrays"] is None else f"   peak {row['peak_arrays']:.1f} n×n arrays (≤ 6)"),
        flush=True,
    )


def report(sizes: list[int]) -> list[dict[str, Any]]:
    print("log Z + gradient, SE-ARD, Laplace, logistic; one core")
    rows = []
    for n in sizes:
        rows.append(evidence(n))
        report_evidence(rows[-1])
    return rows
