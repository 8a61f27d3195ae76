"""The last eight years of CO2 at Mauna Loa from the 31 before, by HMC, by MAP and by scikit-learn's maximum likelihood.

After Rasmussen & Williams (2006), section 5.4.3: a smooth rise, a season of one year whose shape changes slowly,
irregularities of medium term, and noise,

    SquaredExponential + Periodic * SquaredExponential + RationalQuadratic + noise,

under two sets of priors: the default ones, on standardised years and concentrations, and `EXPERT` ones, in years and
parts per million, around values of the size of theirs.  The period is known.  Their noise also has a part that is
correlated over months; here it is white.

Which priors to take is decided without the last eight years: both learn from the months before 1982 and foretell 1982
to 1990, and the set of greater log predictive density there, by HMC, is the one that is reported for 1990 to 1998.
(When this script was first written the default priors were taken after the others had failed on the last eight years;
that choice used what it reported.)  The other set is shown beside it.

What comes out (2 chains of 150 + 120 draws, seed 0): the expert priors are chosen, with a log density of -0.95 against
-1.48 on 1982 to 1990, and then fail on 1990 to 1998, where 38 % of the months lie within their 90 % band, against 89 %
for the default ones.  Eight years are one sample of a slow trend: how one window went says little about the next.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from hmcgp import GPRegressor, datasets
from hmcgp.kernels import Periodic, RationalQuadratic, SquaredExponential
from hmcgp.likelihoods import Gaussian
from hmcgp.plots import style
from hmcgp.priors import LogNormal

YEARS = 8.0  # held out
END = 1998.0  # of the record
BAND = (0.05, 0.95)
PRIORS = ("default", "expert")


def around(median: float, factor: float) -> LogNormal:
    """A prior of this median, with 68 % within a factor to both sides."""
    return LogNormal(np.log(median), np.log(factor))


class Record(NamedTuple):
    """Years and concentrations (minus a level), those to learn from and those to foretell."""

    x: Any  # (n, 1)
    y: Any  # (n,)
    x_later: Any  # (m, 1)
    y_later: Any  # (m,)
    level: float  # ppm, the mean of the first


EXPERT = {
    "kernel": SquaredExponential(around(30.0**2, 10.0), around(50.0, 2.0))  # ppm², years
    + Periodic(around(3.0**2, 5.0), around(1.0, 2.0), period=1.0) * SquaredExponential(1.0, around(50.0, 2.5))
    + RationalQuadratic(around(1.0, 5.0), around(2.0, 2.5), shape=around(1.0, 2.5)),
    "likelihood": Gaussian(around(0.3**2, 4.0)),
    "standardize": False,
}


DEFAULT = {  # the same kernel under default priors, on standardised inputs; the period is in years
    "kernel": SquaredExponential() + Periodic(period=1.0) * SquaredExponential(variance=1.0) + RationalQuadratic()
}


def record(until: float = END - YEARS) -> Record:
    """The months before a year, and those of the eight years after it."""
    X, y = datasets.load_co2(return_X_y=True)
    x, y = X.to_numpy(), y.to_numpy()
    first, later = x[:, 0] < until, (x[:, 0] >= until) & (x[:, 0] < until + YEARS)
    level = float(y[first].mean())
    return Record(x[first], y[first] - level, x[later], y[later] - level, level)


class Forecast(NamedTuple):
    """What is said about the years held out."""

    mean: Any  # (m,)
    band: Any  # (m, 2), 5 and 95 %
    log_density: Any  # (m,)
    seconds: float

    def rmse(self, y: Any) -> float:
        return float(np.sqrt(np.mean((self.mean - y) ** 2)))

    def coverage(self, y: Any) -> float:
        """Share of the months within the band."""
        return float(np.mean((y > self.band[:, 0]) & (y < self.band[:, 1])))


def fitted(data: Record, priors: str = "default", **settings: Any) -> GPRegressor:
    model = EXPERT if priors == "expert" else DEFAULT
    return GPRegressor(progressbar=False, **model, **settings).fit(data.x, data.y)


def forecast(gp: GPRegressor, data: Record) -> Forecast:
    band = gp.predict_quantiles(data.x_later, BAND)
    density = gp.log_predictive_density(data.x_later, data.y_later)
    return Forecast(gp.predict(data.x_later), band, density, gp.trace_.sampling_time)


def maximum_likelihood(data: Record) -> Forecast:
    """scikit-learn, of the same kernel, from the medians of `EXPERT`."""
    wide = (1e-5, 1e5)
    rise = sk.ConstantKernel(30.0**2, wide) * sk.RBF(50.0, wide)
    season = sk.ConstantKernel(3.0**2, wide) * sk.ExpSineSquared(1.0, 1.0, wide, "fixed") * sk.RBF(50.0, wide)
    medium = sk.ConstantKernel(1.0, wide) * sk.RationalQuadratic(2.0, 1.0, wide, wide)
    begin = time.perf_counter()
    gp = GaussianProcessRegressor(rise + season + medium + sk.WhiteKernel(0.3**2, wide))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        gp.fit(data.x, data.y)
    mean, sd = gp.predict(data.x_later, return_std=True)
    band = mean[:, None] + norm.ppf(BAND) * sd[:, None]
    return Forecast(mean, band, norm.logpdf(data.y_later, mean, sd), time.perf_counter() - begin)


# -- report ----------------------------------------------------------------------------------------------------------


def draw(data: Record, ours: Forecast, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(11.0, 4.4), layout="constrained")
    later = data.x_later[:, 0]
    ax.axvline(later[0], color=style.PALE, lw=1.5)
    ax.fill_between(
        later, *(ours.band + data.level).T, color=style.BLUE, alpha=0.25, lw=0, label="90 % of observations"
    )
    ax.plot(later, ours.mean + data.level, color=style.BLUE, lw=1.5, label="mean")
    ax.plot(data.x[:, 0], data.y + data.level, color=style.GREY, lw=1.0, label="learnt from")
    ax.plot(later, data.y_later + data.level, ".", ms=4.0, color=style.VERMILION, label="held out")
    ax.set(
        xlabel="year",
        ylabel="CO2, ppm",
        xlim=(1974.0, 1998.2),
        ylim=(324.0, None),
        title="Mauna Loa, eight years ahead",
    )
    style.clean(ax)
    ax.legend(frameon=False, loc="upper left", fontsize=style.SMALL)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80, bbox_inches="tight")
    plt.close(figure)
    print(path)


def line(name: str, found: Forecast, y: Any) -> None:
    width = float(np.diff(found.band, axis=1).mean())
    print(
        f"{name:<24} {found.rmse(y):9.2f} {100.0 * found.coverage(y):10.0f} % {width:10.2f} "
        f"{found.log_density.mean():12.3f} {found.seconds:8.0f}",
        flush=True,
    )


class Both(NamedTuple):
    """Forecasts of one set of priors."""

    hmc: Forecast
    point: Forecast


def compare(data: Record, options: argparse.Namespace) -> dict[str, Both]:
    """Print and return the forecasts by every set of priors."""
    print(
        f"\n{len(data.y)} months before {data.x_later[0, 0]:.0f} to learn from, {len(data.y_later)} held out"
        f"\n{'':24} {'RMSE, ppm':>9} {'in the band':>12} {'its width':>10} {'log density':>12} {'seconds':>8}"
    )
    found = {}
    for priors in PRIORS:
        common = {"random_state": options.seed, "n_jobs": options.jobs}
        point = fitted(data, priors, sampler="map", **common)
        gp = fitted(data, priors, draws=options.draws, tune=options.tune, chains=options.chains, **common)
        found[priors] = Both(forecast(gp, data), forecast(point, data))
        line(f"HMC, {priors} priors", found[priors].hmc, data.y_later)
        line(f"MAP, {priors} priors", found[priors].point, data.y_later)
        print(gp.summary()[["mean", "sd", "ess_bulk", "r_hat"]].assign(MAP=point.trace_.flat[0]).round(3).to_string())
    line("ML-II (scikit-learn)", maximum_likelihood(data), data.y_later)
    return found


def better(found: dict[str, Both]) -> str:
    """The priors of the greatest log predictive density by HMC."""
    return max(found, key=lambda priors: float(found[priors].hmc.log_density.mean()))


def main() -> None:
    options = parse_options()
    chosen = options.priors
    if chosen is None:
        chosen = better(compare(record(END - 2.0 * YEARS), options))
        print(f"The {chosen} priors are better on {END - 2.0 * YEARS:.0f} to {END - YEARS:.0f}, and are taken.")
    data = record()
    found = compare(data, options)
    print(f"Reported: HMC with the {chosen} priors.")
    draw(data, found[chosen].hmc, Path(options.output))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--priors", choices=PRIORS, default=None, help="to report (default: chosen on 1982 to 1990)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=200, help="per chain (default 200)")
    parser.add_argument("--tune", type=int, default=200, help="warm-up draws per chain (default 200)")
    parser.add_argument("--chains", type=int, default=2, help="default 2")
    parser.add_argument("--jobs", type=int, default=None, help="threads (default: all cores)")
    parser.add_argument("--output", default=str(Path(__file__).parents[1] / "pictures" / "co2.png"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
