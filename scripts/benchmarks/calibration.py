"""Is the posterior right?  Simulation-based calibration of the whole pipeline, from prior to draws.

Draw hyperparameters from the prior, data from the model with them, and the posterior of the hyperparameters given these
data by `hmcgp.sample`.  If prior, density, gradient and sampler are all right, the rank of the true value among L
independent posterior draws is uniform on 0 … L, for every parameter and for every function of parameters and data
(Talts et al. 2018; Modrák et al. 2023).  Any mistake on the way bends the ranks.

Two tests of uniformity, of N replicates: Pearson's chi-square over bins of ranks, and whether the empirical
distribution function leaves the band that holds all of it with a given probability (Säilynoja, Bürkner & Vehtari 2022;
here simulated).

Three studies: regression, where everything is exact and ranks must be uniform; the same with data noisier than they
say they are, which must be caught; and classification by Laplace's approximation, where bent ranks measure what the
approximation costs.  A chain with fewer effective draws than L is run again, longer: correlated draws bend ranks too,
and since a chain knows the data only, running it again does not.  No replicate is left out: what the diagnostics found
in the last run is counted and printed.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hmcgp import Model, sample
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian, Likelihood, Logistic
from hmcgp.reporting import diagnostics

Array = NDArray[np.float64]
Ranks = NDArray[np.int64]

LEVELS = 99  # L: draws that the truth is ranked among
BINS = 20
TUNE = 300
LENGTHS = (1, 4, 16)  # of chains, tried in turn until there are L effective draws


class Study(NamedTuple):
    """A model to draw data from, and to be inferred."""

    title: str
    likelihood: Likelihood
    n: int  # rows of a data set
    n_inputs: int
    kernel: SquaredExponential = SquaredExponential()
    thin: int = 4  # every so-manyth draw of the chain is ranked
    noise_factor: float = 1.0  # the data have this many times the noise variance that is called true


REGRESSION = Study("Regression, exact evidence", Gaussian(), n=30, n_inputs=1)
NOISIER = REGRESSION._replace(title="The same, data 30 % noisier than said", noise_factor=1.3)
LAPLACE = Study("Classification, Laplace's approximation", Logistic(), n=40, n_inputs=2)


class Replicate(NamedTuple):
    """What one simulated data set says."""

    ranks: dict[str, int]
    findings: list[str]  # kinds of what diagnostics found
    ess: float  # the smallest effective sample size of a parameter
    length: int  # of the chain that was ranked, one of LENGTHS
    redrawn: int  # data sets of a single class, drawn again


def draw_targets(study: Study, model: Model, theta: Array, rng: np.random.Generator) -> Array:
    """Targets from the model with hyperparameters theta, of shape (n,)."""
    eigenvalues, V = np.linalg.eigh(model.kernel_at(theta)(model.X))
    f = V @ (np.sqrt(np.maximum(eigenvalues, 0.0)) * rng.normal(size=study.n))
    likelihood = model.likelihood_at(theta)
    if isinstance(likelihood, Gaussian):
        return f + np.sqrt(study.noise_factor * likelihood.noise) * rng.normal(size=study.n)
    return np.where(rng.logistic(size=study.n) < f, 1.0, -1.0)  # true with probability 1/(1 + exp(-f))


def simulate(study: Study, rng: np.random.Generator) -> tuple[Model, Array, int]:
    """A model with simulated data, the hyperparameters that made them, and how often they were drawn again.

    Labels must be of both classes.  Drawing hyperparameters *and* data again until they are keeps ranks uniform: given
    the data, which decide it, the hyperparameters still follow the posterior.
    """
    placeholder = np.where(np.arange(study.n) % 2 == 0, 1.0, -1.0)
    for redrawn in range(1000):
        X = rng.normal(size=(study.n, study.n_inputs))
        prior = Model(X, placeholder, kernel=study.kernel, likelihood=study.likelihood)
        theta = prior.constrain(prior.initial(rng))
        y = draw_targets(study, prior, theta, rng)
        if study.likelihood.targets == "numbers" or len(np.unique(y)) == 2:
            return Model(X, y, kernel=study.kernel, likelihood=study.likelihood), theta, redrawn
    raise RuntimeError("a thousand data sets of one class: is the prior variance zero?")


def replicate(study: Study, seed: np.random.SeedSequence) -> Replicate:
    """Ranks of the truth of one simulated data set among posterior draws."""
    rng = np.random.default_rng(seed)
    model, theta, redrawn = simulate(study, rng)
    for length in LENGTHS:
        thin, seed_of_chain = length * study.thin, rng.spawn(1)[0]
        trace = sample(
            model, draws=LEVELS * thin, tune=length * TUNE, chains=1, random_state=seed_of_chain, n_jobs=1,
            progressbar=False,
        )  # fmt: skip
        ess = float(diagnostics.summary(trace)["ess_bulk"].min())
        if ess >= LEVELS:
            break
    kept = slice(thin - 1, None, thin)
    u = model.unconstrain(theta)
    lp, _ = model.logdensity_and_grad(u)
    lp_draws = np.asarray(trace.stats["lp"][0, kept], dtype=float)
    log_prior_draws = np.array([model.log_prior(v)[0] for v in trace.unconstrained[0, kept]])
    ranks = {name: int(np.sum(trace.draws[0, kept, j] < theta[j])) for j, name in enumerate(trace.names)}
    ranks["log density"] = int(np.sum(lp_draws < lp))
    ranks["log evidence"] = int(np.sum(lp_draws - log_prior_draws < lp - model.log_prior(u)[0]))
    found = sorted({finding.kind for finding in diagnostics.check(trace)})
    return Replicate(ranks, found, ess, length, redrawn)


def run(study: Study, replicates: int, *, seed: int, n_jobs: int = 2) -> list[Replicate]:
    """All replicates, the same ones whatever n_jobs."""
    seeds = np.random.SeedSequence(seed).spawn(replicates)
    return list(joblib.Parallel(n_jobs=n_jobs, batch_size=4)(joblib.delayed(replicate)(study, s) for s in seeds))


def ranks_by_name(done: list[Replicate]) -> dict[str, Ranks]:
    """Ranks of each quantity, of shape (N,)."""
    return {name: np.array([r.ranks[name] for r in done]) for name in done[0].ranks}


# -- uniformity ------------------------------------------------------------------------------------------------------


def chi_square_p(ranks: Ranks) -> float:
    """P-value of Pearson's chi-square over BINS bins of ranks."""
    counts = np.bincount(ranks * BINS // (LEVELS + 1), minlength=BINS)
    return float(stats.chisquare(counts).pvalue)


def ecdf(ranks: Ranks) -> NDArray[np.int64]:
    """How many ranks are <= k, for k = 0 … L - 1, of shape (..., L)."""
    return np.cumsum(np.apply_along_axis(np.bincount, -1, ranks, minlength=LEVELS + 1), axis=-1)[..., :-1]


GRID = np.arange(1, LEVELS + 1) / (LEVELS + 1)  # P(rank <= k) if uniform


def extremity(counts: NDArray[np.int64], n: int) -> Any:
    """The smallest two-sided binomial tail probability of any point of an ecdf, of shape (...)."""
    binomial = stats.binom(n, GRID)
    tails = 2.0 * np.minimum(binomial.cdf(counts), binomial.sf(counts - 1))
    return tails.min(axis=-1)


def simulated_extremity(n: int, simulations: int = 4000) -> Array:
    """Extremity of the ecdf of n uniform ranks, many times: what chance alone makes."""
    rng = np.random.default_rng(n)
    return np.asarray(extremity(ecdf(rng.integers(0, LEVELS + 1, size=(simulations, n))), n))


def ecdf_p(ranks: Ranks, by_chance: Array) -> float:
    """P-value of the whole ecdf: how often chance alone strays as far at its furthest point."""
    return float((1 + np.sum(by_chance <= extremity(ecdf(ranks), len(ranks)))) / (1 + len(by_chance)))


def ecdf_band(n: int, by_chance: Array, coverage: float = 0.95) -> tuple[Array, Array]:
    """Limits between which the whole ecdf (as a share) stays with this probability, each of shape (L,)."""
    gamma = np.quantile(by_chance, 1.0 - coverage)
    binomial = stats.binom(n, GRID)
    low, high = (np.asarray(binomial.ppf(p)) / n for p in (gamma / 2.0, 1.0 - gamma / 2.0))
    return low, high


class Verdict(NamedTuple):
    """How one quantity's ranks depart from uniform."""

    name: str
    chi_square_p: float
    ecdf_p: float
    mean: float  # of (rank + ½)/(L + 1): ½ if uniform, below it where posteriors lie above the truth
    z: float  # the same in standard errors
    outer: float  # share of truths in the outer 10 % of ranks: 0.1, more where posteriors are too narrow


def judge(done: list[Replicate]) -> list[Verdict]:
    """Tests of every quantity."""
    by_chance = simulated_extremity(len(done))
    found = []
    for name, ranks in ranks_by_name(done).items():
        place = (ranks + 0.5) / (LEVELS + 1)
        mean, outer = float(place.mean()), float(np.mean((place < 0.05) | (place > 0.95)))
        z = (mean - 0.5) * np.sqrt(12.0 * len(ranks))
        found.append(Verdict(name, chi_square_p(ranks), ecdf_p(ranks, by_chance), mean, float(z), outer))
    return found


# -- report ----------------------------------------------------------------------------------------------------------


def report(study: Study, done: list[Replicate], seconds: float) -> None:
    found = Counter(kind for r in done for kind in r.findings)
    ess = np.quantile([r.ess for r in done], [0.0, 0.05, 0.5])
    print(f"\n{study.title}: {len(done)} data sets of {study.n} rows, {seconds:.0f} s")
    lengths, redrawn = Counter(r.length for r in done), sum(r.redrawn for r in done)
    print(f"  smallest ESS of a parameter: least {ess[0]:.0f}, 5 % {ess[1]:.0f}, median {ess[2]:.0f}")
    print(f"  chains run again {LENGTHS[1]} and {LENGTHS[2]} times as long: {lengths[LENGTHS[1]]} and ", end="")
    print(f"{lengths[LENGTHS[2]]}; single-class data drawn again: {redrawn}")
    with_findings = sum(bool(r.findings) for r in done)
    print(f"  findings (all replicates kept): {dict(found) or 'none'}, in {with_findings} of them")
    print("  quantity         chi-square p   ecdf p   mean rank (z)      outer 10 %")
    for v in judge(done):
        print(f"  {v.name:<16} {v.chi_square_p:12.2g} {v.ecdf_p:8.2g}   {v.mean:.3f} ({v.z:+5.1f})   {v.outer:13.3f}")
    clean = [r for r in done if not r.findings]
    if 50 < len(clean) < len(done):
        p = {v.name: round(v.ecdf_p, 4) for v in judge(clean)}
        print(f"  ecdf p of the {len(clean)} replicates without findings: {p}")


def draw_panel(ax: Any, done: list[Replicate], name: str, colour: str) -> None:
    """Difference of the ecdf of the ranks from the uniform one, over the band of chance."""
    from hmcgp.plots import style

    ranks = ranks_by_name(done)[name]
    limits = (*ecdf_band(len(done), simulated_extremity(len(done))), ecdf(ranks) / len(ranks))
    lower, upper, ours = (np.concatenate([[0.0], limit - GRID, [0.0]]) for limit in limits)
    x = np.concatenate([[0.0], GRID, [1.0]])
    ax.fill_between(x, lower, upper, color=style.PALE, lw=0.0)
    ax.axhline(0.0, color=style.GREY, lw=0.8)
    ax.plot(x, ours, color=colour, lw=1.6)
    ax.set_title(name, fontsize=style.TEXT, color=style.INK)
    ax.set_xlim(0.0, 1.0)
    style.clean(ax)


def picture(results: dict[Study, list[Replicate]], path: Path) -> None:
    """Ecdf-difference plots: regression above; Laplace and the negative control below."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from hmcgp.plots import style

    panels = [(REGRESSION, name) for name in ("variance", "length_scale", "noise", "log density")]
    panels += [(LAPLACE, name) for name in ("variance", "length_scale", "log density")]
    figure, axes = plt.subplots(2, 4, figsize=(11.0, 5.4), layout="constrained")
    for ax, (study, name) in zip(axes.flat, panels, strict=False):
        draw_panel(ax, results[study], name, style.BLUE)
    alike = list(axes.flat)[:-1]
    largest = max(abs(limit) for ax in alike for limit in ax.get_ylim())
    for ax in alike:
        ax.set_ylim(-largest, largest)
        ax.tick_params(labelleft=ax in (axes[0, 0], axes[1, 0]))
    draw_panel(axes[1, 3], results[NOISIER], "noise", style.VERMILION)
    axes[1, 3].set_title("noise: data 30 % noisier than said", fontsize=style.TEXT, color=style.VERMILION)
    for ax, study in zip(axes[:, 0], (REGRESSION, LAPLACE), strict=True):
        ax.set_ylabel(f"{study.title.replace(', ', ',' + chr(10))}\n\necdf of ranks − uniform")
    for ax in axes[1]:
        ax.set_xlabel("rank of the truth / 100")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--replicates", type=int, default=400, help="data sets (a quarter for the control, 1.5 times for Laplace)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument(
        "--output", default=str(Path(__file__).parents[1] / "pictures" / "calibration_of_posterior.png")
    )
    options = parser.parse_args()
    results: dict[Study, list[Replicate]] = {}
    for study, share in ((REGRESSION, 1.0), (LAPLACE, 1.5), (NOISIER, 0.25)):
        begin = time.perf_counter()
        results[study] = run(study, round(share * options.replicates), seed=options.seed, n_jobs=options.jobs)
        report(study, results[study], time.perf_counter() - begin)
    picture(results, Path(options.output))


if __name__ == "__main__":
    main()
