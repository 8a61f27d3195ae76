"""Simulation-based calibration of the exact posteriors: `refine="exact"` and `sample_jointly`, beside Laplace's.

    python -m scripts.benchmarks.calibration_exact                   300 data sets: 80 minutes of one core

Hyperparameters, latent values and labels are drawn from the model (probit, 25 rows, two inputs, variance of the latent
function about 20, where Laplace's approximation is poor), and inferred in three ways from the same labels.  Where
inference is exact but for Monte Carlo error, the rank of the truth among draws is uniform; Laplace's ranks bend
(`scripts.benchmarks.calibration` has the tests of uniformity, and the references).

Draws with normalised weights w rank the truth at the share of weight below it.  With the truth as one more draw, of
the average weight w₀ = Σw² of a draw that counts, and v uniform,

    U = (Σ_{s: θ_s < θ} w_s + v w₀)/(1 + w₀),   rank = ⌊(L + 1)U⌋,

which for L equal weights is the number of draws below the truth.  A latent value is drawn at each draw of the
hyperparameters, and shares its weight.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from hmcgp import GPClassifier, Model, diagnostics, sample_jointly
from hmcgp.errors import HmcgpWarning
from hmcgp.evidence import SupportsLatentMixture
from hmcgp.kernels import SquaredExponential
from hmcgp.priors import LogNormal
from scripts.benchmarks.calibration import (
    GRID,
    LENGTHS,
    LEVELS,
    Replicate,
    ecdf,
    ecdf_band,
    judge,
    ranks_by_name,
    simulated_extremity,
)

Array = NDArray[np.float64]

N_ROWS = 25
KERNEL = SquaredExponential(LogNormal(3.0, 1.0), LogNormal(0.0, 0.7))
THIN = 4  # draws of a chain for each that is ranked
LAPLACE, EXACT, JOINT = "Laplace", 'refine="exact"', "sample_jointly"
SHORT: dict[str, Any] = {"chains": 1, "n_jobs": 1, "progressbar": False}


def simulate(rng: np.random.Generator) -> tuple[Model, Array, float, int]:
    """A model with simulated labels, its hyperparameters, the latent value of its first row, and data sets redrawn.

    Labels must be of both classes: hyperparameters *and* data are drawn again until they are.
    """
    for redrawn in range(1000):
        X = rng.normal(size=(N_ROWS, 2))
        labels = np.where(np.arange(N_ROWS) % 2 == 0, 1.0, -1.0)
        prior = Model(X, labels, kernel=KERNEL, likelihood="probit")
        theta = prior.constrain(prior.initial(rng))
        eigenvalues, V = np.linalg.eigh(prior.kernel_at(theta)(X))
        f = V @ (np.sqrt(np.maximum(eigenvalues, 0.0)) * rng.normal(size=N_ROWS))
        y = np.where(rng.normal(size=N_ROWS) < f, 1.0, -1.0)
        if len(np.unique(y)) == 2:
            return Model(X, y, kernel=KERNEL, likelihood="probit"), theta, float(f[0]), redrawn
    raise RuntimeError("a thousand data sets of one class: is the prior variance zero?")


def position(values: Array, weight: Array, truth: float, rng: np.random.Generator) -> float:
    """Share of the weight below the truth, U: uniform on (0, 1) for draws of the right distribution."""
    w = weight / weight.sum()
    own = float(w @ w)
    return (float(w @ (values < truth)) + rng.random() * own) / (1.0 + own)


def latent_draw(model: Model, theta: Array, rng: np.random.Generator) -> float:
    """Draw of the latent value of the first row, at given hyperparameters."""
    kernel, evidence = model.posterior(theta)
    posterior, x = evidence.posterior, model.X[:1]
    new = kernel(model.X, x), kernel.diag(x)
    if isinstance(posterior, SupportsLatentMixture):
        weights, means, variance = posterior.predict_mixture(*new)
    else:
        mean, variance = posterior.predict(*new)
        weights, means = np.ones(1), mean[None]
    component = rng.choice(len(weights), p=weights / weights.sum())
    return float(rng.normal(means[component, 0], np.sqrt(max(float(variance[0]), 0.0))))


def rank_all(
    laplace: Model, theta: Array, f: float, draws: Array, latent: Array, weight: Array, rng: np.random.Generator
) -> dict[str, int]:
    """Ranks of both hyperparameters, of Laplace's log density (a function of them and the data), and of f."""

    def log_density(at: Array) -> float:
        return laplace.logdensity_and_grad(laplace.unconstrain(at))[0]

    places = {
        name: position(draws[:, j], weight, float(theta[j]), rng) for j, name in enumerate(("variance", "length_scale"))
    }
    places["log density"] = position(np.array([log_density(at) for at in draws]), weight, log_density(theta), rng)
    places["latent value"] = position(latent, weight, f, rng)
    return {name: min(int((LEVELS + 1) * place), LEVELS) for name, place in places.items()}


def least_ess(trace: Any) -> float:
    return float(diagnostics.summary(trace)["ess_bulk"].min())


def by_refinement(
    model: Model, theta: Array, f: float, redrawn: int, rng: np.random.Generator
) -> tuple[Replicate, Replicate]:
    """Ranks under Laplace's approximation, and of its draws weighted to the exact posterior."""
    for length in LENGTHS:
        gp = GPClassifier(
            KERNEL, likelihood="probit", refine="exact", standardize=False, draws=LEVELS * THIN * length,
            tune=200 * length, predict_draws=LEVELS * THIN, random_state=rng.spawn(1)[0], **SHORT,
        ).fit(model.X, model.y)  # fmt: skip
        run, exact = gp.sampling_trace_, gp.trace_
        ess = least_ess(run)
        if ess >= LEVELS:
            break
    drawn = run.draws[0, THIN * length - 1 :: THIN * length]
    latent = np.array([latent_draw(model, at, rng) for at in drawn])
    found = sorted({finding.kind for finding in diagnostics.check(run)})
    ranks = rank_all(model, theta, f, drawn, latent, np.ones(LEVELS), rng)
    laplace = Replicate(ranks, found, ess, length, redrawn)
    assert gp.refinement_ is not None
    latent = np.array([latent_draw(gp.model_, at, rng) for at in exact.draws[0]])
    ranks = rank_all(model, theta, f, exact.draws[0], latent, exact.weight, rng)
    return laplace, Replicate(ranks, [gp.refinement_.method], gp.refinement_.effective, length, redrawn)


def by_joint_draws(model: Model, theta: Array, f: float, redrawn: int, rng: np.random.Generator) -> Replicate:
    """Ranks among joint draws of hyperparameters and latent values."""
    guided = model.with_evidence("ep")  # accepted more often where the approximation of Laplace is poor
    for length in LENGTHS:
        settings = {"draws": LEVELS * THIN * length, "tune": 150 * length, "random_state": rng.spawn(1)[0]}
        joint = sample_jointly(guided, **settings, **SHORT)  # type: ignore[arg-type]
        ess = least_ess(joint.trace)
        if ess >= LEVELS:
            break
    kept, equal = slice(THIN * length - 1, None, THIN * length), np.ones(LEVELS)
    ranks = rank_all(model, theta, f, joint.trace.draws[0, kept], joint.latent[0, kept, 0], equal, rng)
    return Replicate(ranks, sorted({x.kind for x in diagnostics.check(joint.trace)}), ess, length, redrawn)


def replicate(seed: np.random.SeedSequence) -> dict[str, Replicate]:
    """Ranks of the truth of one simulated data set, by the way of inference."""
    rng = np.random.default_rng(seed)
    data = simulate(rng)
    with warnings.catch_warnings():  # findings are counted instead
        warnings.simplefilter("ignore", HmcgpWarning)
        warnings.simplefilter("ignore", UserWarning)
        laplace, exact = by_refinement(*data, rng)
        return {LAPLACE: laplace, EXACT: exact, JOINT: by_joint_draws(*data, rng)}


def replicates(n_sets: int, *, seed: int, n_jobs: int = 1) -> Iterator[dict[str, Replicate]]:
    """Yield the ranks of one data set after another, in order."""
    seeds = np.random.SeedSequence(seed).spawn(n_sets)
    work = joblib.Parallel(n_jobs=n_jobs, return_as="generator", batch_size=1, pre_dispatch="4 * n_jobs")
    yield from work(joblib.delayed(replicate)(s) for s in seeds)


def run(n_sets: int, *, seed: int, n_jobs: int = 1) -> dict[str, list[Replicate]]:
    """All data sets, the same ones whatever n_jobs."""
    done = list(replicates(n_sets, seed=seed, n_jobs=n_jobs))
    return {name: [each[name] for each in done] for name in (LAPLACE, EXACT, JOINT)}


def report(results: dict[str, list[Replicate]]) -> None:
    for name, done in results.items():
        found = dict(Counter(kind for r in done for kind in r.findings))
        ess = np.quantile([r.ess for r in done], [0.0, 0.05, 0.5])
        lengths = {length: count for length, count in sorted(Counter(r.length for r in done).items()) if length > 1}
        print(f"\n{name}: {len(done)} data sets of {N_ROWS} rows; redrawn {sum(r.redrawn for r in done)}; {found}")
        print(f"  least effective draws: {ess[0]:.0f}, 5 % {ess[1]:.0f}, median {ess[2]:.0f}; run again: {lengths}")
        print("  quantity         chi-square p   ecdf p   mean rank (z)      outer 10 %")
        for v in judge(done):
            print(
                f"  {v.name:<16} {v.chi_square_p:12.2g} {v.ecdf_p:8.2g}   {v.mean:.3f} ({v.z:+5.1f})   {v.outer:13.3f}"
            )


def picture(results: dict[str, list[Replicate]], path: Path) -> None:
    """Difference of the ecdf of the ranks from the uniform one, a panel for each quantity, over the band of chance."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from hmcgp.plots import style

    n = len(results[JOINT])
    band = [np.concatenate([[0.0], limit - GRID, [0.0]]) for limit in ecdf_band(n, simulated_extremity(n))]
    x = np.concatenate([[0.0], GRID, [1.0]])
    names = list(results[JOINT][0].ranks)
    figure, axes = plt.subplots(1, len(names), figsize=(11.0, 3.2), sharey=True, layout="constrained")
    for ax, quantity in zip(axes, names, strict=True):
        ax.fill_between(x, *band, color=style.PALE, lw=0.0)
        ax.axhline(0.0, color=style.GREY, lw=0.8)
        for (method, done), colour in zip(results.items(), (style.VERMILION, style.BLUE, style.INK), strict=True):
            share = ecdf(ranks_by_name(done)[quantity]) / n
            ax.plot(x, np.concatenate([[0.0], share - GRID, [0.0]]), color=colour, lw=1.6, label=method)
        ax.set_title(quantity, fontsize=style.TEXT, color=style.INK)
        ax.set_xlim(0.0, 1.0)
        ax.set_xlabel("rank of the truth / 100")
        style.clean(ax)
    axes[0].set_ylabel("ecdf of ranks − uniform")
    axes[-1].legend(frameon=False, fontsize=style.SMALL, loc="upper right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=300, help="simulated data sets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--output", default=str(Path(__file__).parents[1] / "pictures" / "calibration_of_exact_posterior.png")
    )
    options = parser.parse_args()
    begin = time.perf_counter()
    results = run(options.sets, seed=options.seed, n_jobs=options.jobs)
    report(results)
    print(f"{time.perf_counter() - begin:.0f} s")
    picture(results, Path(options.output))


if __name__ == "__main__":
    main()
