"""MacKay (1998), figure 7 and section 9.2: which solver pays from how many rows, and a warp that outputs share.

Figure 7: processor time of log evidence and gradient in two dimensions, by Cholesky's factorisation and by products
with the covariance matrix alone (`evidence.Iterative`), in one run.  `mackay.py` prints it; a benchmark with eight
inputs is `python -m scripts.benchmarks --sections solvers`.

Section 9.2: outputs that are independent but for a warp u(x) of their common input, here an increasing function with
five knots (`kernels.MonotoneWarp`), found from one output and from two.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hmcgp import Model, find_map
from hmcgp.evidence import EvidenceProvider, Exact, Iterative
from hmcgp.kernels import MonotoneWarp, SquaredExponential
from hmcgp.likelihoods import Gaussian
from scripts.benchmarks.evidence import in_turns
from scripts.benchmarks.regression import crossover

# -- figure 7 --------------------------------------------------------------------------------------------------------

HIS_CROSSOVER = (100, 400)  # rows between which products begin to pay: 16 against 39 minutes at 400
SIZES = (100, 200, 400, 800, 1600)
DIRECT = Exact()
BY_PRODUCTS: dict[str, EvidenceProvider] = {
    "rank 60": Iterative(rank=60),  # in two dimensions a smooth function has few degrees of freedom
    "default": Iterative(),
}


def solver_times(
    n: int, solver: EvidenceProvider, truth: Any, *, noise: float = 0.3, seconds: float = 0.5
) -> dict[str, float]:
    """Processor times of both solvers for n points on (-3, 3)², their ratio, and the error of log Z."""
    rng = np.random.default_rng(n)
    X = rng.uniform(-3.0, 3.0, size=(n, 2))
    y = truth(X) + noise * rng.normal(size=n)
    direct = Model(X, y, kernel=SquaredExponential(), likelihood=Gaussian())
    by_products = direct.with_evidence(solver)
    theta = np.array([1.0, 1.3, noise**2])
    calls = {"direct": lambda: direct.log_evidence(theta), "products": lambda: by_products.log_evidence(theta)}
    error = abs(calls["products"]()[0] - calls["direct"]()[0])
    best = in_turns(calls, seconds=seconds, clock=time.process_time)
    return {"n": n, **best, "cholesky_over_iterative": best["direct"] / best["products"], "error": error}


def report_crossover(truth: Any, sizes: tuple[int, ...] = SIZES) -> None:
    low, high = HIS_CROSSOVER
    print(
        "Figure 7, time by Cholesky over time by products with K, 2 inputs; his cross between "
        f"{low} and {high} rows (16 against 39 minutes at {high})"
    )
    for name, solver in BY_PRODUCTS.items():
        rows = [solver_times(n, solver, truth) for n in sizes]
        ratios = ", ".join(f"{row['cholesky_over_iterative']:.2f} at {row['n']}" for row in rows)
        crossing, worst = crossover(rows), max(row["error"] for row in rows)
        where = f"cross at {crossing:.0f}" if crossing else f"do not cross up to {sizes[-1]}"
        print(f"      {name}: {ratios}; ours {where}; error of log Z up to {worst:.2g}", flush=True)
        print(f"      verdict: {crossover_verdict(crossing)}")


def crossover_verdict(crossing: float | None) -> str:
    """Compare the number of rows from which products pay with his."""
    low, high = HIS_CROSSOVER
    if crossing is None:
        return "DIFFERS: products do not pay at any size tried, as factorisations run in the cache"
    if crossing > high:
        return "DIFFERS: products pay later than in 1998, as factorisations run in the cache"
    return "products pay as early as his" if crossing >= low else "DIFFERS: products pay earlier than in 1998"


# -- section 9.2 -----------------------------------------------------------------------------------------------------

KNOTS = (0.0, 0.25, 0.5, 0.75, 1.0)
INSIDE = SquaredExponential(1.0, 0.3)
TRUE_WARP = MonotoneWarp(INSIDE, KNOTS, (0.3, 0.3, 1.0, 4.0, 4.0))
WARP_NOISE = 0.01


def warp_errors(seed: int, n: int = 30) -> dict[str, float]:
    """Errors of the warp found from the first of two outputs, from the second, and from both."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 1.0, size=(n, 1))
    Y = np.linalg.cholesky(TRUE_WARP(x) + WARP_NOISE * np.eye(n)) @ rng.normal(size=(n, 2))
    return {name: _warp_error(x, y) for name, y in (("first", Y[:, 0]), ("second", Y[:, 1]), ("both", Y))}


def _warp_error(x: Any, y: Any) -> float:
    """Root mean squared error of the shape of the warp at the maximum of the posterior density."""
    model = Model(x, y, kernel=MonotoneWarp(INSIDE, KNOTS), likelihood=Gaussian(WARP_NOISE))
    found = find_map(model, n_restarts=1, random_state=0, n_jobs=1)
    return float(np.sqrt(np.mean((_shape(model.kernel_at(found.parameters)) - _shape(TRUE_WARP)) ** 2)))


def _shape(kernel: Any) -> Any:
    """Warp on a grid, from 0 to 1: length scales take up its extent."""
    u = kernel.warped(np.linspace(0.0, 1.0, 101)[:, None])[:, 0]
    return (u - u[0]) / (u[-1] - u[0])


def report_warp(n_seeds: int = 8) -> None:
    rows = [warp_errors(seed) for seed in range(n_seeds)]
    one = np.array([[row["first"], row["second"]] for row in rows])
    both = np.array([row["both"] for row in rows])
    print(
        f"Section 9.2, error of a warp found from one output and from two that share it, {n_seeds} data sets: median "
        f"{np.median(one):.3f} and {np.median(both):.3f}; two are better than one of them in "
        f"{int(np.sum(both[:, None] < one))} of {one.size}"
    )
