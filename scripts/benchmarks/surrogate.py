"""Errors per processor second of the surrogate, HMC, and BlackJAX's NUTS on the same density; silent failures.

    python -m scripts.benchmarks.surrogate                      errors on crabs 80, Pima 200 and Pima 532
    python -m scripts.benchmarks.surrogate --sizes              n = 300 and 1000, default priors, without BlackJAX
    python -m scripts.benchmarks.surrogate --quick              a minute, to try it
    python -m scripts.benchmarks.surrogate --silent             480 fits, 8 tables x 3 priors x 20 seeds
    python -m scripts.benchmarks.surrogate --warm-up            HMC with tune=100 against tune=500

Errors are of the posterior means and second moments of the unconstrained hyperparameters, against a long run of HMC, in
standard deviations of what is averaged: root mean square over hyperparameters and seeds.  An error e of a run of t
processor seconds is worth 1/(e² t) effective draws per second, by definition, whatever the sampler says of itself.  One
core, warm-up included, compilation not.  BlackJAX runs where it is installed.  The reference has errors of its own,
1/sqrt(its effective draws), which are subtracted from e².

A fit of `--silent` is bad if a mean or a second moment is off by more than 4 standard errors, as the effective numbers
that the fit and the reference report imply, or a mean by more than 0.25 posterior standard deviations.  (Of 3000
comparisons that are right, one in five such runs has one beyond 4.)  It is silent if nothing says so: the surrogate was
neither given up nor flagged.  HMC in place of a surrogate is kept short: it is not silent, whatever its errors.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from hmcgp import Model, datasets, sample
from hmcgp.estimators.default_kernel import curve_line_and_offset
from hmcgp.kernels import SquaredExponential
from hmcgp.model.inducing import spread_inputs, with_inducing
from hmcgp.numerics.chain_statistics import ess_mean
from hmcgp.reporting import diagnostics
from hmcgp.reporting.convergence import weighted_ess
from hmcgp.samplers import SurrogateHMC, Trace
from scripts.benchmarks import contenders, peers, predictions
from scripts.papers import barber_williams as paper

BAD = 0.25  # posterior standard deviations
BAD_IN_ERRORS = 4.0  # standard errors
PRIORS = ("paper", "default", "classifier")  # the last two: of SquaredExponential(ard=True), of GPClassifier()


def crabs() -> tuple[Any, Any]:
    split = paper.crabs_splits(1)[0]
    return np.asarray(split.X, dtype=float), np.asarray(split.y, dtype=float)


def pima(n: int) -> tuple[Any, Any]:
    if n == 200:
        split = paper.pima()
        return np.asarray(split.X, dtype=float), np.asarray(split.y, dtype=float)
    return labelled(datasets.load_pima, n)


def labelled(loader: Any, n: int | None = None, columns: int | None = None) -> tuple[Any, Any]:
    """Standardised inputs and labels of -1 and 1 of the first rows, shuffled, of a table."""
    X, y = loader(return_X_y=True)
    X, y = np.asarray(X, dtype=float), np.asarray(y)
    order = np.random.default_rng(0).permutation(len(y))[:n]
    X = X[order][:, X[order].std(axis=0) > 0.0][:, :columns]
    y = np.where(y[order] == np.unique(y)[0], -1.0, 1.0)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def synthetic(n: int) -> tuple[Any, Any]:
    X, y, _ = predictions.table(n, 0)
    return X, np.where(y, 1.0, -1.0)


TABLES: dict[str, Callable[[], Any]] = {"crabs 80": crabs, "Pima 200": lambda: pima(200), "Pima 532": lambda: pima(532)}
# under default priors
SIZES: dict[str, Callable[[], Any]] = {f"synthetic {n}": partial(synthetic, n) for n in (300, 1000)}
SILENT: dict[str, Callable[[], Any]] = {
    "crabs 80": crabs,
    "Pima 200": lambda: pima(200),
    "breast cancer 150": lambda: labelled(datasets.load_breast_cancer, 150),
    "sonar 150, 6 inputs": lambda: labelled(datasets.load_sonar, 150, 6),
    "ionosphere 150, 8 inputs": lambda: labelled(datasets.load_ionosphere, 150, 8),
    "breast cancer 300": lambda: labelled(datasets.load_breast_cancer, 300),
    "ionosphere 300, 8 inputs": lambda: labelled(datasets.load_ionosphere, 300, 8),
    "synthetic 2000, 50 inducing inputs": partial(synthetic, 2000),
}
INDUCING = {"synthetic 2000, 50 inducing inputs": 50}


def build(name: str, prior: str) -> Model:
    """Density of a table, through inducing inputs where it has them."""
    X, y = (TABLES | SIZES | SILENT)[name]()
    if prior == "paper":
        model = contenders.paper_model(X, y)
    else:
        of_labels = curve_line_and_offset(np.zeros(X.shape[1], dtype=bool))
        model = Model(X, y, kernel=of_labels if prior == "classifier" else SquaredExponential(ard=True))
    return with_inducing(model, spread_inputs(X, INDUCING[name])) if name in INDUCING else model


# -- errors ----------------------------------------------------------------------------------------------------------


class Reference:
    """Moments of a long run, with their own errors."""

    def __init__(self, draws: Any) -> None:
        self.centre, self.scale = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
        z = (draws - self.centre) / self.scale
        self.second = np.mean(z**2, axis=(0, 1))
        self.spread = np.std(z**2, axis=(0, 1))
        self.sizes = [np.array([ess_mean(x[:, :, j]) for j in range(z.shape[2])]) for x in (z, z**2)]
        self.own = [float(np.mean(1.0 / size)) for size in self.sizes]  # squared errors

    def squared_errors(self, draws: Any, weight: Any = None) -> tuple[float, float]:
        """Mean squares of the errors of means, and of second moments, without those of the reference."""
        z = (draws - self.centre) / self.scale
        mean = np.average(z.reshape(-1, z.shape[2]), axis=0, weights=weight)
        second = np.average((z**2).reshape(-1, z.shape[2]), axis=0, weights=weight)
        return float(np.mean(mean**2)), float(np.mean(((second - self.second) / self.spread) ** 2))

    def worst(self, trace: Trace) -> tuple[float, float, float]:
        """Largest error of a mean in standard deviations, and of means and second moments in standard errors."""
        z = (trace.unconstrained - self.centre) / self.scale
        weight = trace.weight.reshape(z.shape[:2])
        errors = []
        for x, truth, spread, own in zip((z, z**2), (0.0, self.second), (1.0, self.spread), self.sizes, strict=True):
            average = np.average(x.reshape(len(trace), -1), axis=0, weights=weight.ravel())
            sizes = np.array([weighted_ess(x[:, :, j], weight)[0] for j in range(x.shape[2])])
            errors.append(np.abs(average - truth) / spread)
            errors.append(errors[-1] / np.sqrt(1.0 / sizes + 1.0 / own))
        return float(errors[0].max()), float(errors[1].max()), float(errors[3].max())


def ours(model: Model, sampler: str | SurrogateHMC, seed: int, **lengths: Any) -> tuple[Trace, float]:
    begin = time.process_time()
    trace = sample(model, sampler, random_state=seed, n_jobs=1, progressbar=False, chains=4, **lengths)
    return trace, time.process_time() - begin


def contest(name: str, seeds: int, *, reference: int, peer_seeds: int, peer_chains: int) -> None:
    """Print errors and processor times of all contenders on one table."""
    model = build(name, "default" if name in SIZES else "paper")
    long = Reference(ours(model, "hmc", 10_000, draws=reference, tune=500)[0].unconstrained)
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(seeds):
        for sampler in ("surrogate", "hmc"):
            trace, seconds = ours(model, sampler, seed, draws=1000, tune=500)
            rows.setdefault(sampler, []).append((*long.squared_errors(trace.unconstrained, trace.weight), seconds))
            if sampler == "surrogate" and trace.sampler != "surrogate":
                print(f"  {name}, seed {seed}: {trace.note}", flush=True)
    if name in TABLES and not contenders.missing("blackjax"):  # whose density has the paper's priors
        starts = np.stack([model.initial(rng) for rng in np.random.default_rng(0).spawn(peer_chains)])
        X, y = TABLES[name]()
        for seed in range(peer_seeds):
            run = peers.run_blackjax(X, y, starts, tune=500, draws=500, seed=seed, diagonal=False)
            errors = long.squared_errors(np.asarray(run.draws))
            rows.setdefault("BlackJAX NUTS", []).append((*errors, run.run_cpu_s))
    report(name, rows, long)


def report(name: str, rows: dict[str, list[tuple[float, float, float]]], long: Reference) -> None:
    print(f"\n{name:<16}{'seeds':>6}{'s':>8}{'rms mean':>10}{'rms 2nd':>10}{'worth/s':>10}{'2nd':>10}")
    worth = {}
    for who, found in rows.items():
        first, second, seconds = np.mean(found, axis=0)
        squares = [max(e - own, 1e-5) for e, own in zip((first, second), long.own, strict=True)]
        worth[who] = [1.0 / (square * seconds) for square in squares]
        print(
            f"{who:<16}{len(found):>6}{seconds:>8.2f}{np.sqrt(squares[0]):>10.4f}{np.sqrt(squares[1]):>10.4f}"
            f"{worth[who][0]:>10.0f}{worth[who][1]:>10.0f}"
        )
    for who in list(rows)[1:]:
        ratios = [a / b for a, b in zip(worth["surrogate"], worth[who], strict=True)]
        print(f"surrogate / {who}: means {ratios[0]:.1f}, second moments {ratios[1]:.1f}", flush=True)


def warm_up(name: str, seeds: int, *, draws: int, reference: int) -> None:
    """Print errors of plain HMC with short and long warm-up."""
    model = build(name, "paper")
    long = Reference(ours(model, "hmc", 10_000, draws=reference, tune=500)[0].unconstrained)
    rows: dict[str, list[tuple[float, float, float]]] = {"surrogate": []}
    flagged = {"tune=100": 0, "tune=500": 0}
    for seed in range(seeds):
        trace, seconds = ours(model, "surrogate", seed, draws=draws, tune=500)
        rows["surrogate"].append((*long.squared_errors(trace.unconstrained, trace.weight), seconds))
        for label, tune in (("tune=100", 100), ("tune=500", 500)):
            trace, seconds = ours(model, "hmc", seed, draws=draws, tune=tune)
            rows.setdefault(label, []).append((*long.squared_errors(trace.unconstrained), seconds))
            flagged[label] += bool(diagnostics.check(trace))
    report(name, rows, long)
    print(f"runs with findings: {flagged}", flush=True)


# -- silent failures -------------------------------------------------------------------------------------------------


def silent_failures(seeds: int, tables: list[str], priors: list[str], reference: int) -> None:
    """Count bad fits, and among them those that nothing tells of."""
    everything = np.zeros(4, dtype=int)
    for name in tables:
        for prior in priors:
            model = build(name, prior)
            # the surrogate of a default fit, draws=1000 and tune=500; HMC in its place would be longer
            runs = [ours(model, SurrogateHMC(effective=320), seed, draws=458, tune=100) for seed in range(seeds)]
            kept = [trace for trace, _ in runs if trace.sampler == "surrogate"]
            flagged = np.array([bool(diagnostics.check(trace)) for trace in kept], dtype=bool)
            errors = np.zeros((1, 3))
            if kept:
                long = Reference(ours(model, "hmc", 10_000, draws=reference, tune=500)[0].unconstrained)
                errors = np.array([long.worst(trace) for trace in kept])
            bad = ((errors[:, 0] > BAD) | (errors[:, 1:].max(axis=1) > BAD_IN_ERRORS))[: len(kept)]
            counts = np.array([bad.sum(), (bad & ~flagged).sum(), seeds - len(kept), flagged.sum()])
            seconds, worst = np.mean([time for _, time in runs]), errors.max(axis=0)
            print(
                f"{name}, {prior} priors, {model.n_dim} hyperparameters: {seeds} fits of {seconds:.1f} s, worst error "
                f"{worst[0]:.2f} sd, {worst[1]:.1f} (means) and {worst[2]:.1f} (second moments) standard errors; bad "
                f"{counts[0]}, silent {counts[1]}, given up {counts[2]}, flagged {counts[3]}",
                flush=True,
            )
            everything += counts
    total = seeds * len(tables) * len(priors)
    bad, silent, given_up, flagged = everything
    print(f"\n{total} fits: {bad} bad, {silent} of them silent; {given_up} given up, {flagged} flagged")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one table, two seeds, a short reference")
    parser.add_argument("--silent", action="store_true", help="count silent failures instead")
    parser.add_argument("--warm-up", action="store_true", help="HMC with short and long warm-up instead")
    parser.add_argument("--sizes", action="store_true", help="n = 300 and 1000 instead: hours for HMC with 8 seeds")
    parser.add_argument("--tables", nargs="+", help="names, or their beginnings; default: all")
    parser.add_argument("--priors", nargs="+", default=list(PRIORS), choices=PRIORS, help="of --silent")
    parser.add_argument("--seeds", type=int, help="default: 8, or 20 with --silent")
    parser.add_argument("--peer-seeds", type=int, default=3)
    parser.add_argument("--peer-chains", type=int, default=4, help="of BlackJAX; fewer cost less, and are worth less")
    parser.add_argument("--reference", type=int, default=10_000, help="draws of each of four chains")
    options = parser.parse_args()
    known = list(SILENT if options.silent else SIZES if options.sizes else TABLES)
    names = [name for name in known if not options.tables or any(name.startswith(t) for t in options.tables)]
    seeds = options.seeds or (2 if options.quick else 20 if options.silent else 8)
    reference = 1500 if options.quick else options.reference
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        ours(contenders.paper_model(*crabs()), "surrogate", 0, draws=20, tune=60)  # compiles
        if options.silent:
            silent_failures(seeds, names, options.priors, 1500 if options.quick else min(reference, 5000))
            return
        for name in names[:1] if options.quick else names:
            if options.warm_up:
                warm_up(name, seeds, draws=1000, reference=reference)
            else:
                contest(
                    name,
                    seeds,
                    reference=reference,
                    peer_seeds=options.peer_seeds,
                    peer_chains=options.peer_chains,
                )


if __name__ == "__main__":
    main()
