"""Several classes by Laplace's approximation and by expectation propagation, on the same folds.

Softmax with Laplace's approximation, the multinomial probit with expectation propagation, and, as a baseline, binary
expectation propagation of each class against the rest, its probabilities divided by their sum.  All have the default
kernel, one length scale per input: shared by the classes, or one for each, as one against the rest has it anyway.  New
thyroid has three classes, forensic glass six.

    python scripts/compare_multiclass.py                          MAP on both tables, and the cost of one evaluation
    python scripts/compare_multiclass.py --data thyroid --hmc     hyperparameters integrated by HMC as well
    python scripts/compare_multiclass.py --data                   the cost only
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from benchmark_evidence import KERNEL, in_turns, theta_of
from benchmark_softmax import N_CLASSES, N_ROWS, glass
from reproduce_glass import DATA, Score, cross_validate
from sklearn.exceptions import ConvergenceWarning
from sklearn.multiclass import OneVsRestClassifier

from hmcgp import GPClassifier, Model
from hmcgp.errors import ApproximationWarning
from hmcgp.kernels import SquaredExponential

PAIRS = {
    "softmax Laplace": {"likelihood": "logistic", "evidence": "laplace"},
    "multinomial probit EP": {"likelihood": "probit", "evidence": "ep"},
}


def methods(n_classes: int, seed: int, draws: int, hmc: bool) -> dict[str, Any]:
    """What is compared."""
    common = {"random_state": seed, "progressbar": False, "n_jobs": 1}
    found: dict[str, Any] = {
        f"{name}, MAP": GPClassifier(sampler="map", **pair, **common) for name, pair in PAIRS.items()
    }
    each = [SquaredExponential(ard=True)] * n_classes
    for name, pair in PAIRS.items():
        found[f"{name}, kernel per class, MAP"] = GPClassifier(each, sampler="map", **pair, **common)
    binary = GPClassifier(sampler="map", **PAIRS["multinomial probit EP"], **common)
    found["one against the rest, binary EP, MAP"] = OneVsRestClassifier(binary)
    if hmc:
        chains = {"draws": draws, "tune": draws, "chains": 2}
        found |= {f"{name}, HMC": GPClassifier(**chains, **pair, **common) for name, pair in PAIRS.items()}
    return found


def report(name: str, options: argparse.Namespace) -> dict[str, Score]:
    X, y = DATA[name](return_X_y=True)
    y = np.asarray(y).astype(str)
    print(f"\n{name}: {len(X)} rows, {X.shape[1]} inputs, {len(np.unique(y))} classes", flush=True)
    scores = {}
    for label, method in methods(len(np.unique(y)), options.seed, options.draws, options.hmc).items():
        score = scores[label] = cross_validate(method, X, y, options.repeats, options.folds, options.seed)
        each = ", ".join(f"{100 * e:.1f}" for e in score.per_repeat)
        print(
            f"  {label:<46} error {100 * score.error:5.1f} % ({each})   log loss {score.log_loss:.4f}   "
            f"{score.seconds:.0f} s for {options.repeats} x {options.folds} fits",
            flush=True,
        )
    return scores


def cost(seconds: float = 8.0) -> dict[str, float]:
    """Milliseconds of log Z with its gradient, cold and from a solution 10 % away, in time on the processor."""
    X, y = glass()
    theta = theta_of(X.shape[1])
    nearby = theta * np.exp(0.1 * np.resize([1.0, -1.0], theta.size))
    calls = {}
    for name, likelihood in zip(PAIRS, ("softmax", "multinomial_probit"), strict=True):
        model = Model(X, y, kernel=KERNEL, likelihood=likelihood)
        start = model.posterior(nearby)[1].posterior.start
        for kind, begin in (("cold", None), ("warm", start)):
            calls[f"{name}, {kind}"] = lambda m=model, s=begin: m.log_evidence(theta, s)
    return {name: 1e3 * t for name, t in in_turns(calls, seconds, 5, time.thread_time).items()}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", choices=list(DATA), default=list(DATA))
    parser.add_argument("--repeats", type=int, default=1, help="repeats of the cross-validation (default 1)")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--hmc", action="store_true", help="HMC for the two multiclass methods as well")
    parser.add_argument("--draws", type=int, default=150, help="HMC: draws of each of 2 chains, and of warm-up")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    for category in (ConvergenceWarning, ApproximationWarning):
        warnings.simplefilter("ignore", category)
    warnings.filterwarnings("ignore", message="The least populated class in y has only 9 members")
    print(f"log Z with its gradient, glass, n = {N_ROWS}, C = {N_CLASSES}, one core")
    for name, milliseconds in cost().items():
        print(f"  {name:<38} {milliseconds:.1f} ms", flush=True)
    for name in options.data:
        report(name, options)


if __name__ == "__main__":
    main()
