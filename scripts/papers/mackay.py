"""MacKay (1998), "Introduction to Gaussian processes": figures 4 to 7, and section 9.2.

Figure 3 is `scripts/pictures/kernels.py`; figure 7 and section 9.2 (a warp that outputs share) are in
`mackay_sections.py`.

His data are not published; ours are drawn by a fixed seed to show what he shows.

Figure 4: 16 points that can be explained in two ways, by a wiggly function with little noise or by a smooth one with
much.  The evidence as a function of length scale and noise has a maximum for each.  His two starts of MAP find one
each, and the share of draws in each is held against the integral of the density over a grid: for four chains of HMC,
which go from one to the other seldom and say so, for chains ten times as long, and for HMC that jumps between modes.
Figure 5: 37 noisy points on one input, none between 2.5 and 3.5, where error bars must widen.
Figure 6: 400 noisy points on two inputs, and the mean surface.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from hmcgp import GPRegressor, Model, find_map, find_modes, plots, sample
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian
from hmcgp.numerics import chain_statistics
from hmcgp.optimize.maximum import MapResult
from hmcgp.plots import style
from hmcgp.posterior import predict
from hmcgp.priors import LogNormal
from hmcgp.reporting import diagnostics
from hmcgp.samplers import JumpingHMC, Modes, Sampler, Trace
from scripts.papers.mackay_sections import report_crossover, report_warp

# -- figure 4 --------------------------------------------------------------------------------------------------------

WIGGLY, SMOOTH = (1.0, 0.01), (4.0, 2.0)  # his starts: length scale, variance of the noise
HIS = {"wiggly": "0.95 and nearly 0", "smooth": "3.5 and 3.0"}  # where they end, with his data
COLOURS = {"wiggly": style.VERMILION, "smooth": style.BLUE}


class TwoWays(NamedTuple):
    """Data with two explanations, the optima of the posterior density, and the log evidence around them."""

    model: Model  # of length scale and noise; the variance is 1
    optima: dict[str, MapResult]
    length_scales: Any  # (k,)
    noises: Any  # (l,)
    log_evidence: Any  # (l, k)

    @property
    def divide(self) -> float:
        """Length scale halfway between the optima, in the logarithm."""
        return float(np.sqrt(np.prod([found.parameters[0] for found in self.optima.values()])))

    def verdict(self) -> str:
        """Whether his two starts end at two optima, of which one has the shorter length scale and the smaller noise."""
        wiggly, smooth = (self.optima[name] for name in ("wiggly", "smooth"))
        apart = np.all(wiggly.parameters < 0.5 * smooth.parameters)
        same = "two starts, two optima, as in the paper" if apart else "DIFFERS: his two starts end at one optimum"
        return same if wiggly.converged and smooth.converged else "DIFFERS: a start does not reach its optimum"

    def modes(self, seed: int = 0) -> Modes:
        """The modes that starts from the prior lead to."""
        return find_modes(self.model, n_restarts=20, random_state=seed, n_jobs=1)


def two_ways(seed: int = 7, n: int = 16) -> TwoWays:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-5.0, 5.0, n))[:, None]
    covariance = SquaredExponential(1.0, 1.0)(x) + 0.1 * np.eye(n)
    y = np.linalg.cholesky(covariance) @ rng.normal(size=n)
    model = Model(
        x,
        y,
        kernel=SquaredExponential(1.0, LogNormal(0.0, 2.0)),
        likelihood=Gaussian(LogNormal(-2.0, 2.0, lower=1e-6)),
    )
    optima = {
        name: find_map(model, n_restarts=1, start=model.unconstrain(np.array(start)), n_jobs=1)
        for name, start in (("wiggly", WIGGLY), ("smooth", SMOOTH))
    }
    length_scales, noises = np.geomspace(0.2, 40.0, 60), np.geomspace(2e-3, 3.0, 60)
    surface = [[model.log_evidence(np.array([ell, noise]))[0] for ell in length_scales] for noise in noises]
    return TwoWays(model, optima, length_scales, noises, np.array(surface))


def exact_share(ours: TwoWays, n_grid: int = 120) -> float:
    """Posterior probability of a length scale below the divide, by a sum over a grid of u, on which areas are equal."""
    low, high = (ours.model.unconstrain(np.array(theta)) for theta in ((0.03, 1e-4), (300.0, 50.0)))
    u, v = (np.linspace(a, b, n_grid) for a, b in zip(low, high, strict=True))
    density = np.array([[ours.model.logdensity_and_grad(np.array([a, b]))[0] for b in v] for a in u])
    length_scales = np.array([ours.model.constrain(np.array([a, v[0]]))[0] for a in u])
    return float(softmax(density)[length_scales < ours.divide].sum())


def both_sampled(
    ours: TwoWays, sampler: str | Sampler = "hmc", *, draws: int = 1000, tune: int = 500, seed: int = 0
) -> Trace:
    """Sample by four chains."""
    return sample(ours.model, sampler, draws=draws, tune=tune, chains=4, random_state=seed, progressbar=False)


class Share(NamedTuple):
    """Share of the draws in the wiggly mode."""

    mean: float
    error: float  # Monte Carlo standard error, by the effective number of independent visits
    chains: list[float]

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.error:.3f}, by chain {np.round(self.chains, 2).tolist()}"


def wiggly_share(ours: TwoWays, trace: Trace) -> Share:
    here = (trace.draws[:, :, 0] < ours.divide).astype(float)
    return Share(float(here.mean()), chain_statistics.mcse_mean(here), here.mean(axis=1).tolist())


# -- figures 5 and 6 -------------------------------------------------------------------------------------------------

GAP = (2.5, 3.5)


class Fitted(NamedTuple):
    """Data, the function behind them, and a fit."""

    X: Any  # (n, d)
    y: Any  # (n,)
    truth: Any  # callable of (m, d)
    noise: float  # standard deviation
    gp: GPRegressor


def fit(X: Any, truth: Any, noise: float, rng: np.random.Generator, **settings: Any) -> Fitted:
    y = truth(X) + noise * rng.normal(size=len(X))
    return Fitted(X, y, truth, noise, GPRegressor(progressbar=False, **settings).fit(X, y))


def wave(X: Any) -> Any:
    return np.sin(2.5 * X[:, 0]) + 0.3 * X[:, 0]


def with_gap(seed: int = 0, **settings: Any) -> Fitted:
    """Fit 37 points on (0, 6), none of them in the gap."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 6.0 - (GAP[1] - GAP[0]), 37)
    x = np.sort(np.where(x > GAP[0], x + GAP[1] - GAP[0], x))
    return fit(x[:, None], wave, 0.1, rng, random_state=seed, **settings)


def starts_that_agree(ours: Fitted, n_starts: int = 10) -> int:
    """How many of his ten searches, from draws of the prior, end at the highest maximum that they find."""
    found = find_map(ours.gp.model_, n_restarts=n_starts, random_state=0, n_jobs=1).restarts
    return int(np.sum(found > np.max(found) - 1e-4))


class Width(NamedTuple):
    """Standard deviations at the middle of the gap, and the mean of those at the data."""

    gap: float
    data: float
    function_gap: float  # of the function, without noise
    function_data: float

    def verdict(self) -> str:
        """Whether error bars widen where there are no data."""
        wider = min(self.gap / self.data, self.function_gap / self.function_data)
        return "they widen in the gap, as in the paper" if wider > 1.2 else "DIFFERS: they do not widen in the gap"


def widths(ours: Fitted) -> Width:
    middle = np.array([[np.mean(GAP)]])
    spread = [ours.gp.predict(X, return_std=True)[1].mean() for X in (middle, ours.X)]
    function = [np.sqrt(ours.gp.latent_mean_and_variance(X)[1]).mean() for X in (middle, ours.X)]
    return Width(*map(float, spread + function))


def hills(X: Any) -> Any:
    return np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + 0.15 * X[:, 0] * X[:, 1]


def surface(seed: int = 0, n: int = 400, **settings: Any) -> Fitted:
    """Fit points on (-3, 3)²."""
    rng = np.random.default_rng(seed)
    return fit(rng.uniform(-3.0, 3.0, size=(n, 2)), hills, 0.3, rng, random_state=seed, **settings)


def surface_error(ours: Fitted, n_grid: int = 25) -> float:
    """Root mean squared error of the mean against the function, over a grid within the data."""
    side = np.linspace(-2.8, 2.8, n_grid)
    points = np.stack([axis.ravel() for axis in np.meshgrid(side, side)], axis=1)
    return float(np.sqrt(np.mean((ours.gp.predict(points) - ours.truth(points)) ** 2)))


# -- report ----------------------------------------------------------------------------------------------------------


def draw_evidence(ax: Any, ours: TwoWays, trace: Trace) -> None:
    top = ours.log_evidence.max()
    levels = top - np.array([16.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5, 0.1])
    kept = trace.thinned(600).flat
    ax.plot(*kept.T, ".", ms=2.5, color=style.GREY, alpha=0.5, label="draws", zorder=1)
    ax.contour(ours.length_scales, ours.noises, ours.log_evidence, levels=levels, cmap="viridis", linewidths=1.0)
    for name, found in ours.optima.items():
        ax.plot(*found.parameters, "*", ms=15, color=COLOURS[name], mec="white", label=f"{name}, MAP", zorder=3)
    ax.set(
        xscale="log",
        yscale="log",
        xlim=ours.length_scales[[0, -1]],
        ylim=ours.noises[[0, -1]],
        xlabel="length scale",
        ylabel="variance of the noise",
        title="Log evidence: two modes",
    )
    ax.legend(frameon=False, loc="lower right", fontsize=style.SMALL)


def draw_two_fits(ax: Any, ours: TwoWays) -> None:
    grid = np.linspace(-6.0, 6.0, 300)
    for name, found in ours.optima.items():
        mean, variance = predict.observed_moments(ours.model, found.parameters[None, :], grid[:, None])
        half = 1.645 * np.sqrt(variance[0])
        ax.fill_between(grid, mean[0] - half, mean[0] + half, color=COLOURS[name], alpha=0.15, lw=0)
        ell, noise = found.parameters
        label = f"{name}: length scale {ell:.2f}, noise {noise:.2f}, log density {found.logdensity:.1f}"
        ax.plot(grid, mean[0], color=COLOURS[name], lw=1.8, label=label)
    ax.plot(ours.model.X[:, 0], ours.model.y, "o", ms=5, color=style.INK, mec="white")
    low, high = ax.get_ylim()
    ax.set(xlim=grid[[0, -1]], ylim=(low, high + 0.25 * (high - low)), xlabel="x", ylabel="y", title="… and their fits")
    ax.legend(frameon=False, loc="upper left", fontsize=style.SMALL)


def draw(ours: TwoWays, trace: Trace, gap: Fitted, hilly: Fitted, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(13.0, 9.2), layout="constrained")
    draw_evidence(axes[0, 0], ours, trace)
    draw_two_fits(axes[0, 1], ours)
    axes[1, 0].axvspan(*GAP, color=style.PALE, zorder=0)
    plots.regression_1d(gap.gp, gap.X, gap.y, ax=axes[1, 0])
    plots.regression_2d(hilly.gp, hilly.X, hilly.y, ax=axes[1, 1])
    axes[1, 0].set_xlabel("x  (37 points, none in the grey)")
    axes[1, 1].set_title("400 points and the mean surface", fontsize=style.TEXT)
    for ax in axes[0]:
        style.clean(ax)
        ax.title.set_size(style.TEXT)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80, bbox_inches="tight")
    plt.close(figure)
    print(path)


def main() -> None:
    options = parse_options()
    ours = two_ways()
    for name, found in ours.optima.items():
        ell, noise = found.parameters
        print(
            f"Figure 4, {name}: length scale {ell:.3f}, noise {noise:.4f} (his: {HIS[name]}), "
            f"log density {found.logdensity:.2f}, "
            f"log evidence {ours.model.log_evidence(found.parameters)[0]:.2f}"
        )
    print(f"      verdict: {ours.verdict()} (his data are not ours, so that the numbers differ)")
    trace = both_sampled(ours, seed=options.seed)
    print(f"      share of the wiggly: {exact_share(ours):.3f} by a grid")
    print(f"      by HMC, 4 x 1000 draws: {wiggly_share(ours, trace)}")
    for finding in diagnostics.check(trace):
        print(f"      which says: {finding.message}")
    print(f"      by HMC, 4 x 10000 draws: {wiggly_share(ours, both_sampled(ours, draws=10000, seed=options.seed))}")
    modes = ours.modes(options.seed)
    jumping = both_sampled(ours, JumpingHMC(modes=modes), seed=options.seed)
    print(f"      by HMC with jumps, 4 x 1000 draws: {wiggly_share(ours, jumping)}")
    print(f"      by Laplace's approximation at the modes: {modes.share.round(3).tolist()}")

    gap = with_gap(options.seed, draws=options.draws, tune=options.draws, chains=2, n_jobs=options.jobs)
    width = widths(gap)
    print(
        f"Figure 5, standard deviation in the gap and at the data: observations {width.gap:.3f}, {width.data:.3f} "
        f"(ratio {width.gap / width.data:.2f}); function {width.function_gap:.3f}, {width.function_data:.3f} "
        f"(ratio {width.function_gap / width.function_data:.2f})"
    )
    print(
        f"      verdict: {width.verdict()}; of ten searches from the prior {starts_that_agree(gap)} end at the best one"
    )
    hilly = surface(options.seed, sampler="map", n_jobs=options.jobs)  # the mean alone is asked for
    error = surface_error(hilly)
    print(f"Figure 6, error of the mean surface: {error:.3f}, where the noise is {hilly.noise:g}")
    print(f"      verdict: {'the surface is found' if error < hilly.noise else 'DIFFERS: the surface is not found'}")
    draw(ours, trace, gap, hilly, Path(options.output))
    report_crossover(hills)
    report_warp()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=100, help="per chain, of 2, for figure 5 (default 100)")
    parser.add_argument("--jobs", type=int, default=None, help="threads (default: all cores)")
    parser.add_argument("--output", default=str(Path(__file__).parents[1] / "pictures" / "mackay.png"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
