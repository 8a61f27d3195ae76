"""Remedies where draws under Laplace cannot be weighted to expectation propagation, compared.

    python -m scripts.benchmarks.failed_weights                      sonar, ionosphere and digits 3 v 5: ten minutes

The weights Z_EP/Z_Laplace fail where the variance of the latent function lies too low under Laplace.  Then, from the
same draws:

*weights alone*   the Pareto-smoothed weights as they are;
*short chains*    HMC under EP from draws in proportion to their weights, as `refine="auto"` does;
*tempered*        500 particles go through densities p_Laplace^(1-b) p_EP^b, b raised as far as half of the particles
                  stay effective, resampled and moved by one trajectory of HMC at each b (sequential Monte Carlo);
*EP from there*   HMC under EP with the warm-up and draws of a fit, from the weighted draws.

Errors are differences from a long run under EP: probabilities of held-out rows (rms), and posterior means of the log
hyperparameters in posterior standard deviations (the worst).  Times are processor times, as shares of the fit under
Laplace that comes before.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from hmcgp import GPClassifier, Model, sample
from hmcgp.errors import HmcgpWarning
from hmcgp.estimators import refinement
from hmcgp.kernels import SquaredExponential
from hmcgp.numerics.density import Evaluation
from hmcgp.posterior import predict
from hmcgp.posterior.weights import WeightedDraws, Weights, pareto_smoothed, resampled
from hmcgp.samplers import HMC
from scripts.benchmarks.refinement import table

Array = NDArray[np.float64]
PARTICLES = 500
ALONE: dict[str, Any] = {"n_jobs": 1, "progressbar": False}


@dataclass(frozen=True)
class Tempered:
    """Log density (1 - b) log p_Laplace + b log p_EP of the same hyperparameters."""

    laplace: Model
    ep: Model
    b: float

    @property
    def n_dim(self) -> int:
        return self.ep.n_dim

    @property
    def names(self) -> list[str]:
        return self.ep.names

    def evaluate(self, u: Array, carry: Any = None, gradient: bool = True) -> Evaluation:
        carries = carry or (None, None)
        parts = [m.evaluate(u, c, gradient) for m, c in zip((self.laplace, self.ep), carries, strict=True)]
        shares = np.array([1.0 - self.b, self.b])
        value = sum(share * part.logdensity for share, part in zip(shares, parts, strict=True) if share)
        grad = sum((share * part.grad for share, part in zip(shares, parts, strict=True)), np.zeros(self.n_dim))
        return Evaluation(float(value), grad, tuple(part.carry for part in parts))

    def constrain(self, u: Array) -> Array:
        return self.ep.constrain(u)

    def initial(self, rng: np.random.Generator) -> Array:
        return self.ep.initial(rng)


def weights_of(log_ratio: Array) -> Array:
    w = np.exp(log_ratio - log_ratio.max())
    return w / w.sum()


def next_temperature(b: float, log_ratio: Array) -> float:
    """Largest temperature up to 1 at which half of the particles stay effective, by bisection."""

    def effective(to: float) -> float:
        return 1.0 / float(np.sum(weights_of((to - b) * log_ratio) ** 2))

    if effective(1.0) >= 0.5 * len(log_ratio):
        return 1.0
    low, high = b, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) >= 0.5 * len(log_ratio) else (low, middle)
    return low


def temper(laplace: Model, ep: Model, u: Array, rng: np.random.Generator) -> tuple[Array, int]:
    """Particles of the density under EP from draws under Laplace's, and the number of temperatures."""
    b, stages = 0.0, 0
    while b < 1.0:
        log_ratio = np.array(
            [ep.evaluate(x, gradient=False).logdensity - laplace.evaluate(x, gradient=False).logdensity for x in u]
        )
        to = next_temperature(b, log_ratio)
        w = weights_of((to - b) * log_ratio)
        metric = np.atleast_2d(np.cov(u.T, aweights=w)) + 1e-12 * np.eye(u.shape[1])
        moved = sample(
            Tempered(laplace, ep, to), HMC(metric=metric, step_size=0.8), draws=1, tune=0, chains=len(u),
            start=u[resampled(w)], random_state=rng.spawn(1)[0], **ALONE,
        )  # fmt: skip
        u, b, stages = moved.unconstrained[:, 0], to, stages + 1
    return u, stages


def digits(seed: int) -> tuple[Any, ...]:
    """Handwritten 3 against 5, 8 x 8 pixels: 250 rows to learn from, as in studies of the USPS digits."""
    X, y = load_digits(return_X_y=True)
    chosen = np.isin(y, (3, 5))
    X, y = X[chosen], y[chosen]
    X_train, X_test, *labels = train_test_split(X, y, train_size=250, stratify=y, random_state=seed)
    inked = X_train.std(axis=0) > 0.0
    return X_train[:, inked], X_test[:, inked], *labels


TABLES: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "sonar": lambda seed: table("sonar", seed),
    "ionosphere": lambda seed: table("ionosphere", seed),
    "digits 3 v 5": digits,
}


@dataclass(frozen=True)
class Draws:
    """Draws that stand for EP's posterior: unconstrained positions, weights, processor seconds, a remark."""

    u: Array
    weight: Array
    seconds: float
    remark: str = ""


def remedies(gp: GPClassifier, seed: int) -> dict[str, Draws]:
    """Draws by each way, from one fit under Laplace."""
    laplace, run = gp.model_, gp.trace_
    ep = laplace.with_evidence("ep")
    kept = run.thinned(PARTICLES)
    u = kept.unconstrained.reshape(len(kept), -1)
    rng = np.random.default_rng(seed)

    begin = time.process_time()
    ratio = np.array([ep.evaluate(x, gradient=False).logdensity for x in u]) - np.ravel(kept.stats["lp"])
    weights: Weights = pareto_smoothed(ratio)
    w = np.exp(weights.log_weight)
    weighing = time.process_time() - begin
    told = f"k {weights.pareto_k:.2f}, {weights.effective:.0f} of {len(u)} effective"
    found = {"weights alone": Draws(u, w, weighing, told)}

    begin = time.process_time()
    result = refinement.refined(gp, laplace, run, [ep])
    assert result is not None
    trace = result[1]
    short = trace.unconstrained.reshape(len(trace), -1)
    found["short chains"] = Draws(short, trace.weight, time.process_time() - begin, result[2].method)

    begin = time.process_time()
    particles, stages = temper(laplace, ep, u, rng)
    found["tempered"] = Draws(particles, np.ones(len(particles)), time.process_time() - begin, f"{stages} temperatures")

    begin = time.process_time()
    start = u[rng.permutation(resampled(w))[: gp.chains]]
    trace = sample(ep, draws=500, tune=500, chains=gp.chains, start=start, random_state=rng.spawn(1)[0], **ALONE)
    full = trace.unconstrained.reshape(len(trace), -1)
    found["EP from there"] = Draws(full, np.ones(len(full)), weighing + time.process_time() - begin)
    return found


def study(name: str, seed: int) -> list[tuple[str, float, float, float, float, str]]:
    """Rows of the printed table: the way, log loss, errors of probabilities and means, time, remark."""
    X, X_test, y, y_test = TABLES[name](seed)
    X, X_test = (X - X.mean(axis=0)) / X.std(axis=0), (X_test - X.mean(axis=0)) / X.std(axis=0)
    gp = GPClassifier(SquaredExponential(), refine=None, standardize=False, random_state=seed, **ALONE)
    begin = time.process_time()
    gp.fit(X, y)
    fitting = time.process_time() - begin
    ep = gp.model_.with_evidence("ep")
    long = sample(ep, draws=2500, tune=500, chains=4, random_state=seed + 100, **ALONE)
    reference = long.unconstrained.reshape(-1, ep.n_dim)

    def probabilities(u: Array, weight: Array) -> Array:
        every = max(len(u) // PARTICLES, 1)
        u, weight = u[::every], weight[::every]
        theta = np.array([ep.constrain(x) for x in u])
        return predict.probabilities(ep, WeightedDraws(theta, weight), X_test, n_jobs=1)

    truth = probabilities(reference, np.ones(len(reference)))
    rows = [("EP, long", log_loss(y_test, truth), 0.0, 0.0, np.nan, "")]
    for way, draws in remedies(gp, seed).items():
        p = probabilities(draws.u, draws.weight)
        mean = np.average(draws.u, axis=0, weights=draws.weight)
        shift = np.abs(mean - reference.mean(axis=0)) / reference.std(axis=0)
        error = float(np.sqrt(np.mean((p - truth) ** 2)))
        rows.append((way, log_loss(y_test, p), error, float(shift.max()), draws.seconds / fitting, draws.remark))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    print("| table, split | way | log loss | error of p, rms | of means, sd | time | |\n|---|---|---|---|---|---|---|")
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", HmcgpWarning)
        for name in options.tables:
            for seed in range(options.splits):
                for way, loss, error, shift, share, remark in study(name, seed):
                    print(
                        f"| {name} {seed} | {way} | {loss:.4f} | {error:.4f} | {shift:.2f} | {share:.2f} | {remark} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
