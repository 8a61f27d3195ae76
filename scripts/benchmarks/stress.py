"""Robustness, measured: evidence and gradient at thousands of hyperparameters drawn from the prior and a wider one.

    python -m scripts.benchmarks.stress                                        everything: about an hour on one core
    python -m scripts.benchmarks.stress --n 100 --data crabs pima --pairs ep-probit ep-logistic
    python -m scripts.benchmarks.stress --replay sonar/wide/ep-probit/17       one evaluation again, in full

Every evaluation is cold.  The hyperparameters are draws from the default prior and from one three times as wide in
u = log θ (logit for a flip rate).  Vector i of a data set, a width and a pair depends on --seed and i alone, so that
what fails can be replayed: `data/prior/pair/i` is printed.

    converged       share of the vectors with an answer; the others raised NotConverged or NotPositiveDefinite
    wrong           answers that are not finite, log Z > 0 (labels have a probability), and any other exception
    gradient error  |slope - differences| / max(|slope|, 1e-3 |log Z|) along a random direction in u, on a sample; the
                    differences are of fourth order, from the solution, and the best of three steps counts: rounding
                    spoils short ones where the prior variance is 1e8, a wrong gradient agrees with none
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hmcgp import Model, datasets
from hmcgp.errors import NotConverged, NotPositiveDefinite
from hmcgp.evidence import EP, TAP, EvidenceProvider, Laplace, LowerBound, NaiveMeanField, UpperBound
from hmcgp.kernels import SquaredExponential, White
from hmcgp.likelihoods import LabelNoise, Likelihood, Logistic, Probit
from hmcgp.runtime.parallel import run_tasks

LOG_CONCAVE, LABEL_NOISE = 0.999, 0.98  # targets: shares that converge
STEPS = (1e-3, 1e-2, 1e-4)  # of the differences, in u
GOOD_GRADIENT = 1e-5  # relative error above which a vector is named
WIDTHS = {"default": 1.0, "wide": 3.0}


class Pair(NamedTuple):
    """An evidence provider, the likelihood it integrates, and the least share of answers."""

    evidence: EvidenceProvider
    likelihood: Likelihood
    target: float = LOG_CONCAVE
    white: bool = False  # a step wants a White term, so that rows close to each other may differ


PAIRS = {
    "laplace-logistic": Pair(Laplace(), Logistic()),
    "laplace-probit": Pair(Laplace(), Probit()),
    "laplace-products": Pair(Laplace(newton="conjugate_gradients"), Logistic()),
    "ep-probit": Pair(EP(), Probit()),
    "ep-logistic": Pair(EP(), Logistic()),
    "ep-noise-probit": Pair(EP(), LabelNoise(), LABEL_NOISE),
    "ep-noise-step": Pair(EP(), LabelNoise(link="step"), LABEL_NOISE, white=True),
    "tap-probit": Pair(TAP(), Probit()),
    "naive-probit": Pair(NaiveMeanField(), Probit()),
    "lower-logistic": Pair(LowerBound(), Logistic()),
    "upper-logistic": Pair(UpperBound(), Logistic()),
}
DATA: dict[str, tuple[Callable[[], Any], str]] = {
    "crabs": (datasets.load_crabs, "M"),
    "pima": (datasets.load_pima, "Yes"),
    "sonar": (datasets.load_sonar, "M"),
    "ionosphere": (datasets.load_ionosphere, "good"),
    "thyroid": (partial(datasets.load_thyroid, binary=True), "Normal"),
}


def build(data: str, pair: str) -> Model:
    """The model of one data set: standardised inputs, ARD, default priors."""
    load, positive = DATA[data]
    bunch = load()
    X, target = bunch.data.to_numpy(dtype=float), np.asarray(bunch.target)
    X = X[:, X.std(axis=0) > 0.0]  # ionosphere has a constant column
    y = np.where(target == positive, 1.0, -1.0)
    if data == "pima":  # the published training rows
        X, y = X[np.asarray(bunch.train)], y[np.asarray(bunch.train)]
    kernel: Any = SquaredExponential(ard=True)
    if PAIRS[pair].white:
        kernel = kernel + White()
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return Model(X, y, kernel=kernel, likelihood=PAIRS[pair].likelihood, evidence=PAIRS[pair].evidence)


class Prior(NamedTuple):
    """The default prior of a model, drawn apart from its mean in u."""

    model: Model
    centre: Any  # (p,)
    width: float

    def draw(self, seed: int, i: int) -> tuple[Any, Any]:
        """Vector i and a unit direction, each of shape (p,)."""
        rng = np.random.default_rng([seed, i])
        u = self.centre + self.width * (self.model.initial(rng) - self.centre)
        direction = rng.normal(size=u.size)
        return u, direction / np.linalg.norm(direction)


def prior_of(model: Model, width: float) -> Prior:
    rng = np.random.default_rng(0)
    return Prior(model, np.mean([model.initial(rng) for _ in range(1000)], axis=0), width)


class Answer(NamedTuple):
    """One evaluation: log Z, its slopes in u, and the work; or how it failed."""

    log_z: float = np.nan
    grad: Any = None  # (p,) in u
    n_iter: int = 0
    start: Any = None  # what a neighbour can start from
    failure: str = ""  # name of one of the two errors that come from the numbers
    wrong: str = ""  # what no user may see


def evaluate(model: Model, u: Any, start: Any = None) -> Answer:
    with np.errstate(all="ignore"):
        try:
            theta = model.constrain(u)
            evidence, dtheta = model._log_evidence(theta, start)
            grad = np.zeros_like(u)
            model._prior.add_pulled_back(grad, dtheta, u, theta)
        except (NotConverged, NotPositiveDefinite) as error:
            return Answer(failure=type(error).__name__)
        except Exception as error:  # whatever it is, it is what we look for
            last = traceback.extract_tb(error.__traceback__)[-1]
            return Answer(wrong=f"{type(error).__name__}: {error} ({last.name}, line {last.lineno})")
    wrong = ""
    if not (np.isfinite(evidence.log_z) and np.isfinite(grad).all()):
        wrong = "not finite"
    elif evidence.log_z > 1e-9:
        wrong = f"log Z = {evidence.log_z:.3g} > 0"
    return Answer(evidence.log_z, grad, evidence.n_iter, evidence.posterior.start, "", wrong)


def gradient_error(model: Model, u: Any, direction: Any, answer: Answer, steps: tuple[float, ...] = STEPS) -> float:
    """Smallest relative error over the steps; NaN where no neighbour has an answer."""
    slope = float(answer.grad @ direction)
    scale = max(abs(slope), 1e-3 * abs(answer.log_z))
    smallest = np.nan
    for h in steps:
        f = {k: evaluate(model, u + k * h * direction, answer.start).log_z for k in (-2, -1, 1, 2)}
        numeric = (8.0 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12.0 * h)
        smallest = float(np.fmin(smallest, abs(numeric - slope) / scale))
        if smallest < 1e-2 * GOOD_GRADIENT:
            break
    return smallest


def stress(data: str, width: str, pair: str, options: argparse.Namespace) -> dict[str, Any]:
    """Evaluate n vectors of one data set, width and pair."""
    prior = prior_of(build(data, pair), WIDTHS[width])
    begin, failures, wrong, bad_gradients = time.perf_counter(), {}, {}, {}
    iterations, errors = [0], [0.0]
    for i in range(options.n):
        u, direction = prior.draw(options.seed, i)
        answer = evaluate(prior.model, u)
        place = f"{data}/{width}/{pair}/{i}"
        if answer.failure:
            failures[place] = answer.failure
        elif answer.wrong:
            wrong[place] = answer.wrong
        else:
            iterations.append(answer.n_iter)
            if i < options.gradients:
                errors.append(gradient_error(prior.model, u, direction, answer))
                if errors[-1] > GOOD_GRADIENT:
                    bad_gradients[place] = errors[-1]
    return {
        "data": data, "prior": width, "pair": pair, "n": options.n, "seed": options.seed,
        "converged": 1.0 - (len(failures) + len(wrong)) / options.n,
        "target": PAIRS[pair].target,
        "mean_iterations": float(np.mean(iterations[1:] or [0])),
        "worst_iterations": max(iterations),
        "gradients": len(errors) - 1,
        "gradients_without_differences": int(np.isnan(errors).sum()),
        "worst_gradient_error": float(np.nanmax(errors)),
        "failures": failures, "wrong": wrong, "bad_gradients": bad_gradients,
        "seconds": time.perf_counter() - begin,
    }  # fmt: skip


def report(row: dict[str, Any]) -> None:
    met = "met" if row["converged"] >= row["target"] else "NOT MET"
    print(
        f"{row['data']:<10} {row['prior']:<7} {row['pair']:<16} {100 * row['converged']:6.2f} % of {row['n']} "
        f"(≥ {100 * row['target']:g} {met})  wrong {len(row['wrong'])} ({'NOT MET' if row['wrong'] else 'met'})  "
        f"iterations {row['mean_iterations']:5.1f}, worst {row['worst_iterations']:3d}  "
        f"gradient error {row['worst_gradient_error']:.1e} in {row['gradients']}  {row['seconds']:.0f} s"
    )
    for what in ("failures", "wrong", "bad_gradients"):
        for place, how in list(row[what].items())[:5]:
            print(
                f"      {what}: --seed {row['seed']} --replay {place}: {how if isinstance(how, str) else f'{how:.1e}'}"
            )
        if len(row[what]) > 5:
            print(f"      {what}: {len(row[what]) - 5} more")
    print(end="", flush=True)


def replay(place: str, seed: int) -> None:
    """Print one evaluation in full."""
    data, width, pair, i = place.split("/")
    prior = prior_of(build(data, pair), WIDTHS[width])
    u, direction = prior.draw(seed, int(i))
    model, theta = prior.model, prior.model.constrain(u)
    print(model, "\ntheta = np.array(", theta.tolist(), ")", sep="")
    try:
        evidence, _ = model._log_evidence(theta, None)
        print(f"log Z {evidence.log_z!r}, iterations {evidence.n_iter}, residual {evidence.residual:.1e}")
    except Exception:
        traceback.print_exc()
        return
    answer = evaluate(model, u)
    print(f"slope {answer.grad @ direction!r}, error {gradient_error(model, u, direction, answer):.1e} {answer.wrong}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA), help="which tables (default all)")
    parser.add_argument("--pairs", nargs="+", choices=list(PAIRS), default=list(PAIRS), help="default all")
    parser.add_argument("--priors", nargs="+", choices=list(WIDTHS), default=list(WIDTHS), help="default both")
    parser.add_argument("--n", type=int, default=2000, help="vectors for each (default 2000)")
    parser.add_argument("--gradients", type=int, default=50, help="the first so many have differences taken too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="threads (default 1)")
    parser.add_argument("--json", default="stress.json", help="file for the figures (default stress.json)")
    parser.add_argument("--replay", metavar="DATA/PRIOR/PAIR/I", help="one vector again, and nothing else")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    if options.replay:
        return replay(options.replay, options.seed)
    figures: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine(), "stress": []}

    def task(data: str, width: str, pair: str) -> None:
        row = stress(data, width, pair, options)
        report(row)
        figures["stress"].append(row)
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)

    places = [(data, width, pair) for data in options.data for width in options.priors for pair in options.pairs]
    run_tasks([(task, place) for place in places], options.jobs)
    rows = figures["stress"]
    for name, target in (("log-concave", LOG_CONCAVE), ("label noise", LABEL_NOISE)):
        of = [r for r in rows if r["target"] == target]
        if of:
            share = np.average([r["converged"] for r in of], weights=[r["n"] for r in of])
            met = "met" if share >= target else "NOT MET"
            print(f"{name}: {100 * share:.2f} % of {sum(r['n'] for r in of)} converged (≥ {100 * target:g} {met})")
    wrong = sum(len(r["wrong"]) for r in rows)
    print(f"wrong numbers: {wrong} ({'NOT MET' if wrong else 'met'})\nwritten to {options.json}")


if __name__ == "__main__":
    main()
