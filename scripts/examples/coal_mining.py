"""Counts: the rate of disasters in British coal mines, 1851 to 1962.

    python -m scripts.examples.coal_mining [picture.png]

191 disasters in 112 years, of which the first and the last are covered in part (`exposure`).  The logarithm of the rate
is a Gaussian process; its length scale and variance, and the dispersion of a negative binomial, are integrated out.
"""

from __future__ import annotations

import sys

from hmcgp import GPCounts, datasets, plots


def main(path: str = "coal_mining.png") -> None:
    coal = datasets.load_coal_mining()
    exposure = coal.frame["exposure"]
    fits = {
        name: GPCounts(likelihood=name, draws=500, chains=2, random_state=1).fit(coal.data, coal.target, exposure)
        for name in ("poisson", "negative_binomial")
    }
    for name, gp in fits.items():
        print(f"{name}: {gp.loo()}")
    gp = fits["poisson"]
    some = coal.data[coal.data["year"].isin([1860, 1890, 1900, 1950])]
    for year, rate, (low, high) in zip(some["year"], *gp.predict_rate(some, level=0.9), strict=True):
        print(f"{year:.0f}: {rate:.2f} disasters a year (90 %: {low:.2f} to {high:.2f})")
    ax = plots.regression_1d(gp, coal.data, coal.target, exposure=1.0)
    ax.set(ylabel="disasters a year", ylim=(-0.3, None))
    ax.figure.savefig(path, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:])
