"""Predictions: time, error and memory, beside scikit-learn's classifier, in one run.

    python -m scripts.benchmarks.predictions                      n = 200 and 1000: about ten minutes on one core
    python -m scripts.benchmarks.predictions --n 1000 --rows 100000

Chains are short: predictions take as long under any draws.  Errors are those of the default, which averages over 50
chosen draws (and, from 4096 rows on, takes variances from few training rows), against the average over all 500 draws,
in full; and of 50 evenly spaced draws, for comparison.  Seconds are processor time of one worker; scikit-learn has one
value of the hyperparameters, not optimised, whose prediction takes as long as with others.  Memory is what the process
holds at most beyond what it held before the first prediction.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from threadpoolctl import threadpool_limits

from hmcgp import GPClassifier
from hmcgp.runtime.typing import Array

COMPARED = 1000  # rows at which errors are measured
CALLS = 200  # of one row


def table(n: int, m: int, seed: int = 1) -> tuple[Array, Any, Array]:
    """Inputs and labels of n rows with a smooth rule in four of six inputs, and m rows to predict."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + m, 6))
    f = 1.5 * np.sin(1.3 * X[:, 0]) + 0.8 * X[:, 1] * X[:, 2] + np.cos(1.5 * X[:, 3]) - 0.7
    return X[:n], rng.random(n) < 1.0 / (1.0 + np.exp(-1.5 * f[:n])), X[n:]


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of a call, and its result."""
    begin = time.process_time()
    found = call()
    return time.process_time() - begin, found


def peak() -> float:
    """Most memory that the process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def fitted(X: Array, y: Any) -> GPClassifier:
    """A default fit by short chains."""
    gp = GPClassifier(draws=130, tune=60, chains=4, random_state=1, n_jobs=1, progressbar=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short chains do not agree
        return gp.fit(X, y)


def report(n: int, rows: int) -> None:
    """Print times, errors and memory with n training rows."""
    X, y, X_new = table(n, rows)
    fit_time, gp = seconds(lambda: fitted(X, y))
    before = peak()
    first, _ = seconds(lambda: gp.predict_proba(X_new[:1]))
    one = np.array([seconds(lambda: gp.predict_proba(X_new[:1]))[0] for _ in range(CALLS)])
    many, p = seconds(lambda: gp.predict_proba(X_new))
    again, _ = seconds(lambda: gp.predict_proba(X_new))
    held = peak() - before
    theirs = GaussianProcessClassifier(ConstantKernel(4.0) * RBF(np.full(6, 2.0)), optimizer=None).fit(X, y)
    their_time, _ = seconds(lambda: theirs.predict_proba(X_new))
    some = np.linspace(0, rows - 1, min(rows, COMPARED)).astype(int)
    gp.set_params(predict_draws=500)
    full_time, full = seconds(lambda: gp.predict_proba(X_new[some]))
    gp.set_params(predict_draws=50)
    errors = {"default": p[some] - full, "50 evenly spaced draws": gp.predict_proba(X_new[some]) - full}
    print(f"n = {n}: fit {fit_time:.0f} s ({gp.refinement_})")
    median, tenth = 1e3 * np.quantile(one, [0.5, 0.1])
    print(f"  first call {first:.2f} s, then one row {median:.2f} ms (a tenth below {tenth:.2f})")
    print(f"  {rows:,} rows {many:.1f} s, with the first call {first + many:.1f} s, again {again:.1f} s;")
    print(f"    scikit-learn {their_time:.1f} s, ratio {(first + many) / their_time:.1f}; memory {held:.0f} MB")
    print(f"  500 draws, first call and {len(some)} rows: {full_time:.1f} s")
    for name, error in errors.items():
        rms, largest = np.sqrt(np.mean(error**2)), np.abs(error).max()
        print(f"  {name}: error of p {rms:.4f} root mean square, {largest:.4f} at most")


def main() -> None:
    """Run for the sizes asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=[200, 1000], help="training rows")
    parser.add_argument("--rows", type=int, default=100_000, help="rows to predict")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        for n in arguments.n:
            report(n, arguments.rows)


if __name__ == "__main__":
    main()
