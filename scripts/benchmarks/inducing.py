"""Inducing inputs beside dense matrices: time per evaluation, error of log Z and of probabilities, memory.

    python -m scripts.benchmarks.inducing                                  # n = 500 to 10,000, four minutes
    python -m scripts.benchmarks.inducing --rows 100000 --inducing 200     # 1 minute, below 2 GB

Eight inputs, of which four matter; labels by a logistic of a smooth function.  Inducing inputs are chosen as
`GPClassifier(inducing=m)` chooses them.  An evaluation is log Z and its gradient, warm from one a leapfrog step away,
one core, BLAS on one thread, in time on the processor; errors are against the dense model where it fits, at
hyperparameters near the most probable ones.  Where dense ones are skipped, the change to twice as many inducing
inputs stands in.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

import numpy as np

from hmcgp import Model, find_map
from hmcgp.model.inducing import pivoted_inputs, spread_inputs, with_inducing
from hmcgp.posterior.predict import probabilities
from hmcgp.runtime.parallel import single_blas_thread

MOST_DENSE = 4000  # rows for which the dense model is computed
STEP = 0.02  # in unconstrained coordinates, of a leapfrog


def problem(n: int) -> tuple[Any, Any]:
    """Inputs and labels -1 and +1 of n rows."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 8))
    f = 2.0 * np.sin(1.5 * X[:, 0]) + X[:, 1] + 0.5 * X[:, 2] * X[:, 3]
    return X, np.where(f + rng.logistic(size=n) > 0.0, 1.0, -1.0)


def seconds(model: Model, u: Any, repeats: int = 3) -> float:
    """Processor time of a warm evaluation with its gradient, the best of some."""
    first, best = model.evaluate(u), np.inf
    for k in range(repeats):
        begin = time.process_time()
        model.evaluate(u + STEP * (-1) ** k, first.carry)
        best = min(best, time.process_time() - begin)
    return float(best)


def rows_of_table(n: int, numbers: list[int]) -> None:
    """Print a line for the dense model, if it is computed, and one for each number of inducing inputs."""
    X, y = problem(n)
    dense = Model(X, y)
    begin = time.process_time()
    pilot = find_map(with_inducing(dense, spread_inputs(X, 50)), n_restarts=1, random_state=0, n_jobs=1, maxiter=30)
    pilot_time, begin = time.process_time() - begin, time.process_time()
    most = max(numbers) if n <= MOST_DENSE else 2 * max(numbers)
    Z = pivoted_inputs(dense.kernel_at(pilot.parameters), X, min(most, n))
    print(f"n = {n:,}: pilot {pilot_time:.1f} s, choice of {len(Z)} inputs {time.process_time() - begin:.1f} s")
    u, new = pilot.position, problem(n + 1)[0][:500]
    theta = pilot.parameters[None]
    exact = dense if n <= MOST_DENSE else with_inducing(dense, Z)
    reference, p = exact.posterior(theta[0])[1].log_z, probabilities(exact, theta, new, n_jobs=1)
    if n <= MOST_DENSE:
        print(f"  dense    {1e3 * seconds(dense, u):9.1f} ms", flush=True)
    for m in numbers:
        if m < n:
            model = with_inducing(dense, Z[:m])
            error = model.posterior(theta[0])[1].log_z - reference
            q = probabilities(model, theta, new, n_jobs=1)
            print(
                f"  m = {m:4d} {1e3 * seconds(model, u):9.1f} ms   log Z {error:+8.3f} of {reference:.0f}   "
                f"probabilities {np.sqrt(np.mean((p - q) ** 2)):.4f} (largest {np.abs(p - q).max():.4f})",
                flush=True,
            )


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 1000, 2000, 4000, 10_000])
    parser.add_argument("--inducing", type=int, nargs="+", default=[50, 100, 200, 400])
    arguments = parser.parse_args()
    with single_blas_thread():
        for n in arguments.rows:
            rows_of_table(n, sorted(arguments.inducing))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
