"""Barber & Williams (1997), their footnote: Newton's linear systems by conjugate gradients from the last iterate.

They call it an order of magnitude faster than standard algorithms.  Here it is `Laplace(newton="conjugate_gradients")`,
and the standard is a search in which a Cholesky factor serves several steps.  Both end with one factorisation at the
mode and one inverse, which log Z and its gradient need: of the three or four factorisations of a cold evaluation,
products with K can save all but one, of the two of a warm one the first.

For each n: log Z and gradient under one matrix K (*cold* from 0, *warm* from the mode one leapfrog step away),
factorisations of either way, products with K and Newton steps of conjugate gradients, and the ratio of processor times;
how many products cost what a factorisation does; and, up to 532 rows, the ratio along ten trajectories of HMC from the
start of the paper, kernel included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas

from hmcgp import Model
from hmcgp.evidence import Laplace
from hmcgp.evidence.laplace import conjugate_gradients, mode_search
from scripts.benchmarks.evidence import KERNEL, along_in_turns, in_turns, lapack_floor, problem, recorded, theta_of

SIZES = (80, 200, 532, 1000, 2000)
LARGEST_TRAJECTORY = 532
BY_PRODUCTS = Laplace(newton="conjugate_gradients")


class Comparison(NamedTuple):
    """One evaluation, or several, by factorisations and by conjugate gradients."""

    n: int
    start: str
    factorisations: int  # of the direct search; conjugate gradients make n_factor
    n_factor: int
    steps: int
    products: int
    ms: float  # of the direct search
    ratio: float  # conjugate gradients / direct
    log_z: float  # difference


def compare(model: Model, theta: Any, theta_near: Any, start: str, seconds: float) -> Comparison:
    """Log Z and gradient at theta, from nothing or from the mode at theta_near."""
    near, K = (model.kernel_at(t)(model.X) for t in (theta_near, theta))
    y, likelihood, provider, n = model.y, model.likelihood, Laplace(), len(model.y)
    begin = provider(near, y, likelihood).posterior.start if start == "warm" else y
    known = likelihood.row_numbers(y), likelihood.row_weights(n), likelihood.kind
    settings = begin, start == "warm", provider.tol, provider.max_iter, True
    calls: dict[str, Callable[[], Any]] = {
        "direct": partial(mode_search.solve, K, y, *known, *settings),
        "products": partial(conjugate_gradients.solve, K, y, *known, *settings),
    }
    direct, found = (call() for call in calls.values())
    best = in_turns(calls, seconds, clock=time.thread_time)
    return Comparison(
        n, start, direct[1], found[7], found[1] - found[7], found[6],
        1e3 * best["direct"], best["products"] / best["direct"], found[3] - direct[3],
    )  # fmt: skip


def products_per_factorisation(K: Any, seconds: float) -> float:
    """How many products with K take the time of one Cholesky factorisation."""
    floor, time_lapack = lapack_floor(np.eye(len(K)) + 0.25 * K, time.thread_time)
    symmetric, x = np.asfortranarray(K), np.ones(len(K))
    best = in_turns({"product": lambda: blas.dsymv(1.0, symmetric, x, lower=1), "lapack": time_lapack}, seconds,
                    clock=time.thread_time)  # fmt: skip
    return floor["dpotrf"] / best["product"]


def trajectory_ratio(model: Model) -> float:
    """Time by conjugate gradients over time by factorisations, log density and gradient along ten trajectories."""
    models = {"direct": model, "products": model.with_evidence(BY_PRODUCTS)}
    best = along_in_turns(models, recorded(model), dict.fromkeys(models, True))
    return best["products"] / best["direct"]


def compare_by_n(sizes: tuple[int, ...], seconds: float, *, trajectories: bool = True) -> list[Comparison]:
    """Print and return the comparisons of each n."""
    print(
        f"{'n':>5} {'data':<10} {'variance':>8} {'start':<6} {'direct':>15}   {'conjugate gradients':<40} {'time':>6}"
    )
    rows = []
    for n in sizes:
        X, y, data = problem(n)
        model, theta = Model(X, y, kernel=KERNEL), theta_of(X.shape[1])
        for variance in (theta[0], 10.0 * theta[0]):
            here = np.concatenate([[variance], theta[1:]])
            near = here * np.exp(0.1 * np.resize([1.0, -1.0], theta.size))
            for start in ("cold", "warm"):
                row = compare(model, here, near, start, seconds)
                rows.append(row)
                print(
                    f"{n:5d} {data:<10} {variance:8.0f} {start:<6} {row.factorisations} factorisations   "
                    f"{row.products:4d} products in {row.steps} steps, {row.n_factor} factorisation"
                    f"{'s' if row.n_factor > 1 else ' '} {row.ratio:6.2f}   (log Z differs by {abs(row.log_z):.0e})",
                    flush=True,
                )
        print(
            f"      a factorisation costs {products_per_factorisation(model.kernel_at(theta)(X), seconds):.0f} products"
        )
        if trajectories and n <= LARGEST_TRAJECTORY:
            print(f"      along trajectories of HMC, kernel included: {trajectory_ratio(model):.2f}", flush=True)
    return rows


def verdict(rows: list[Comparison]) -> str:
    cold, warm = ([row.ratio for row in rows if row.start == start] for start in ("cold", "warm"))
    return (
        "Paper: an order of magnitude faster than standard algorithms.  Ours, of the whole evaluation: "
        f"{min(cold):.2f} to {max(cold):.2f} of the time cold, {min(warm):.2f} to {max(warm):.2f} warm.  What is "
        "left is the factorisation at the mode and the inverse of the gradient, which both ways make."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each comparison (default 2)")
    options = parser.parse_args()
    print(verdict(compare_by_n(tuple(options.sizes), options.seconds)))


if __name__ == "__main__":
    main()
