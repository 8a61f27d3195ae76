"""Gibbs & MacKay (2000), "Variational Gaussian process classifiers": theirs and ours.

Their method: logistic likelihood, the bounds of Jaakkola & Jordan on every sigmoid, hyperparameters by maximising the
lower bound on the evidence times the prior; the upper bound brackets, and gives predictions of its own.

Figure 1: the sigmoid between its bounds.  Figure 2: one input, labels that change sharply near x = 13 and gently from
29 to 43, predictions from either bound.  Their labels are not published; ours are drawn from a curve of that shape.
Table I: Pima, 200 rows train and 332 test, the published split; crabs with six inputs, the five measures and the colour
form.  Ripley's own 80/120 split is lost, so ten random splits, stratified by sex and colour form, stand in for it.
Table III and Figure 3 are `gibbs_mackay_effects.py`.
The covariance is theirs, (7): squared exponential with a length scale for each input, a constant, and a jitter.  Their
priors of the length scales are gamma densities whose numbers the paper does not give; ours are wide.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.metrics import log_loss

from hmcgp import Model, find_map, sample
from hmcgp.kernels import Constant, SquaredExponential, White
from hmcgp.posterior import evidence_bounds, predict
from hmcgp.priors import Gamma, LogNormal
from hmcgp.samplers import HMC
from scripts.papers.barber_williams import Split, crabs_splits, errors, line, pima

KERNEL = (
    SquaredExponential(LogNormal(2.0, 2.0), Gamma(2.0, 0.1), ard=True, standardized=True)
    + Constant(LogNormal(0.0, 2.0))
    + White(1e-3)
)
PUBLISHED = {"Pima": (70.0, 7.4), "crabs": (4.0, 2.0)}  # Table I: errors, and √(n p (1 - p)) of so many test rows
TOUCHING = (-2.015, 0.505)  # Figure 1: ν of the lower bound, μ of the upper one
SHARP, GENTLE, RANGE = 13.0, (29.0, 43.0), 52.0


# -- figure 1 --------------------------------------------------------------------------------------------------------


def sigmoid_lower_bound(a: Any, nu: float) -> Any:
    """σ(ν) exp[½(a - ν) - λ(ν)(a² - ν²)], which touches σ at a = ±ν."""
    lam = np.tanh(nu / 2.0) / (4.0 * nu)
    return expit(nu) * np.exp((a - nu) / 2.0 - lam * (a**2 - nu**2))


def sigmoid_upper_bound(a: Any, mu: float) -> Any:
    """exp[μ a - H₂(μ)], which touches σ where σ(-a) = μ."""
    entropy = -mu * np.log(mu) - (1.0 - mu) * np.log(1.0 - mu)
    return np.exp(mu * a - entropy)


# -- figure 2 --------------------------------------------------------------------------------------------------------


class Toy(NamedTuple):
    """Inputs and labels of one kind with theirs, and predictions from both bounds on a grid."""

    x: Any  # (n,)
    y: Any  # (n,), ±1
    grid: Any  # (m,)
    truth: Any  # (m,), P(y = +1) on the grid
    lower: Any  # (m,), P(y = +1) from the lower bound
    upper: Any  # (m,)
    bounds: Any  # log Z' and log Z'' at the optimum
    scales: Any  # (k,), prior variances,
    brackets: Any  # (2, k), and log Z', log Z'' there, length scale as at the optimum


def toy_curve(x: Any) -> Any:
    """P(y = +1): up within a unit of 13, down from 0.9 at 29 to 0.1 at 43."""
    middle, width = np.mean(GENTLE), (GENTLE[1] - GENTLE[0]) / (2.0 * np.log(9.0))
    return expit((x - SHARP) / 0.25) * expit((middle - x) / width)


def toy(n: int = 100, seed: int = 0) -> Toy:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, RANGE, n))
    y = np.where(rng.random(n) < toy_curve(x), 1.0, -1.0)
    kernel = SquaredExponential(LogNormal(0.0, 2.0), LogNormal(np.log(5.0), 1.0))
    model = Model(x[:, None], y, kernel=kernel, evidence="lower")
    theta = find_map(model, random_state=seed).parameters[None, :]
    grid = np.linspace(-28.0, 80.0, 433)
    lower, upper = (
        predict.probabilities(model.with_evidence(name), theta, grid[:, None])[:, 1] for name in ("lower", "upper")
    )
    scales = np.geomspace(1e-2, 1e5, 50)
    along = np.column_stack([scales, np.full(50, theta[0, 1])])
    return Toy(
        x,
        y,
        grid,
        toy_curve(grid),
        lower,
        upper,
        np.ravel(evidence_bounds.evidence_bounds(model, theta)),
        scales,
        np.array(evidence_bounds.evidence_bounds(model, along)),
    )


# -- data ------------------------------------------------------------------------------------------------------------


class Optimum(NamedTuple):
    """The maximum of lower bound times prior, and what it predicts."""

    errors: int  # on the test set, by the lower bound
    errors_upper: int  # by the upper bound, at the same hyperparameters
    log_loss: float
    log_loss_upper: float
    starts: Any  # log density reached from every start
    bounds: Any  # log Z' and log Z'' there

    @property
    def n_agree(self) -> int:
        """Starts that reach the best maximum."""
        return int(np.sum(self.starts > np.max(self.starts) - 1e-6))


def optimum(split: Split, n_restarts: int = 20, seed: int = 0) -> Optimum:
    model = Model(split.X, split.y, kernel=KERNEL, evidence="lower")
    found = find_map(model, n_restarts=n_restarts, random_state=seed)
    theta = found.parameters[None, :]
    lower, upper = (
        predict.probabilities(model.with_evidence(name), theta, split.X_test) for name in ("lower", "upper")
    )
    return Optimum(
        errors(lower, split.y_test),
        errors(upper, split.y_test),
        log_loss(split.y_test, lower),
        log_loss(split.y_test, upper),
        found.restarts,
        np.ravel(evidence_bounds.evidence_bounds(model, theta)),
    )


class Sampled(NamedTuple):
    """The same density integrated instead of maximised."""

    errors: int
    log_loss: float
    bounds: evidence_bounds.EvidenceBounds  # of the draws that predictions average over


def sampled(split: Split, draws: int = 250, tune: int = 250, chains: int = 4, seed: int = 0) -> Sampled:
    model = Model(split.X, split.y, kernel=KERNEL, evidence="lower")
    trace = sample(model, HMC(), draws=draws, tune=tune, chains=chains, random_state=seed, progressbar=False)
    kept = trace.thinned(300).flat
    p = predict.probabilities(model, kept, split.X_test)
    return Sampled(errors(p, split.y_test), log_loss(split.y_test, p), evidence_bounds.evidence_bounds(model, kept))


# -- report ----------------------------------------------------------------------------------------------------------


def draw(ours: Toy, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(17.0, 4.8), layout="constrained", width_ratios=[0.8, 1.5, 0.9]
    )
    a = np.linspace(-6.0, 6.0, 400)
    left.plot(a, expit(a), color="black", lw=2.0, label="σ(a)")
    nu, mu = TOUCHING
    left.plot(a, sigmoid_lower_bound(a, nu), color="C0", lw=2.0, label=f"lower, ν = {nu:g}")
    left.plot(a, sigmoid_upper_bound(a, mu), color="C3", lw=2.0, ls="--", label=f"upper, μ = {mu:g}")
    left.set(ylim=(0.0, 1.4), xlabel="a", ylabel="probability", title="The sigmoid between its bounds")
    left.legend(loc="upper left", frameon=False)

    middle.axvline(SHARP, color="0.8", lw=1.0)
    middle.axvspan(*GENTLE, color="0.93")
    middle.axhline(0.5, color="0.8", lw=1.0)
    seen = (ours.grid >= 0.0) & (ours.grid <= RANGE)
    middle.plot(ours.grid[seen], ours.truth[seen], color="0.5", ls=":", label="where the labels come from")
    middle.plot(ours.grid, ours.lower, color="C0", lw=2.0, label="from the lower bound")
    middle.plot(ours.grid, ours.upper, color="C3", lw=2.0, ls="--", label="from the upper bound")
    middle.plot(ours.x, np.where(ours.y > 0.0, 1.0, 0.0), "|", color="black", ms=12, label="labels")
    middle.set(
        ylim=(-0.05, 1.3),
        yticks=np.linspace(0.0, 1.0, 6),
        xlabel="x",
        ylabel="P(y = +1)",
        title="One input: predictions from either bound",
    )
    middle.legend(loc="upper center", ncols=2, frameon=False)

    low, high = ours.brackets
    right.fill_between(ours.scales, low, high, color="0.9")
    right.plot(ours.scales, low, color="C0", lw=2.0, label="log Z', lower")
    right.plot(ours.scales, high, color="C3", lw=2.0, ls="--", label="log Z'', upper")
    right.set(xscale="log", xlabel="prior variance", ylabel="log evidence", title="The evidence lies in between")
    right.legend(loc="lower right", frameon=False)

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80, bbox_inches="tight")
    plt.close(figure)
    print(path)


class Confidence(NamedTuple):
    """|p - ½| of either bound, averaged over the range of the inputs, and far away."""

    lower: float
    upper: float
    exception: float  # most by which the upper bound is the more confident of the two, where the inputs are
    lower_far: float
    upper_far: float


def confidence(ours: Toy) -> Confidence:
    inside = (ours.grid >= ours.x[0]) & (ours.grid <= ours.x[-1])
    lower, upper = np.abs(ours.lower - 0.5), np.abs(ours.upper - 0.5)
    return Confidence(
        float(lower[inside].mean()),
        float(upper[inside].mean()),
        float(np.max((upper - lower)[inside])),
        float(max(lower[0], lower[-1])),
        float(max(upper[0], upper[-1])),
    )


def table_one(name: str, ours: float) -> str:
    """Verdict on a number of errors: how far from theirs, in the standard errors that they give."""
    theirs, error = PUBLISHED[name]
    off = (ours - theirs) / error
    return f"{off:+.1f} of their standard errors: {'agrees' if abs(off) <= 1.0 else 'DIFFERS'}"


def main() -> None:
    options = parse_options()
    print(f"{'':46} {'paper':>12} {'ours':>28}")

    ours = toy(seed=options.seed)
    sure = confidence(ours)
    line("One input: mean |p - ½|, lower and upper bound", "lower >", f"{sure.lower:.3f} > {sure.upper:.3f}")
    line("      most by which the upper is the surer one", "", f"{max(sure.exception, 0.0):.4f} (where p crosses ½)")
    line("      |p - ½| far from the data", "→ 0", f"{sure.lower_far:.1e} lower, {sure.upper_far:.1e} upper")
    line("      bracket of log Z at the optimum", "", f"{ours.bounds[0]:.2f} to {ours.bounds[1]:.2f}")
    draw(ours, Path(options.output))

    split = pima()
    best = optimum(split, seed=options.seed)
    line("Pima, optimum: test errors of 332", "70 ± 7.4", f"{best.errors} (log loss {best.log_loss:.3f})")
    line("      verdict", "", table_one("Pima", best.errors))
    line("      by the upper bound", "", f"{best.errors_upper} (log loss {best.log_loss_upper:.3f})")
    line("      bracket of log Z", "", f"{best.bounds[0]:.1f} to {best.bounds[1]:.1f}")
    line("      starts that reach this optimum, of 20", "", f"{best.n_agree}")
    integrated = sampled(split, seed=options.seed)
    line("Pima, HMC on the lower bound: test errors", "", f"{integrated.errors} (log loss {integrated.log_loss:.3f})")
    width = integrated.bounds.upper - integrated.bounds.lower
    line(
        "      width of the bracket over draws",
        "",
        f"{width.min():.1f} to {width.max():.1f}, median {np.median(width):.1f}",
    )

    splits = crabs_splits(options.splits, species=True)
    rows = [optimum(s, n_restarts=20, seed=options.seed) for s in splits]
    counts = [row.errors for row in rows]
    print(f"\nCrabs, six inputs, {options.splits} stratified 80/120 splits (their one split is lost): errors of 120")
    line(
        "      optimum",
        "4 ± 2",
        f"{np.mean(counts):.1f} mean, {counts}, log loss {np.mean([r.log_loss for r in rows]):.3f}",
    )
    line("      verdict", "", table_one("crabs", float(np.mean(counts))))
    line("      starts that reach the optimum, of 20", "", f"{[row.n_agree for row in rows]}")
    gaps = ", ".join(f"{np.ptp(row.starts):.1f}" for row in rows if row.n_agree < len(row.starts))
    if gaps:
        print(f"      (The others end at a second maximum, lower by {gaps} in log density.)")
    draws = [sampled(s, seed=options.seed) for s in splits]
    counts = [row.errors for row in draws]
    line("      HMC", "", f"{np.mean(counts):.1f} mean, {counts}, log loss {np.mean([r.log_loss for r in draws]):.3f}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--splits", type=int, default=10, help="splits of the crabs (default 10)")
    parser.add_argument("--output", default=str(Path(__file__).parents[1] / "pictures" / "gibbs_mackay.png"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
