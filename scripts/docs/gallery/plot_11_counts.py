"""
Counts: disasters in coal mines
===============================

191 disasters in British coal mines from 1851 to 1962; the record covers the first and the last year in part, which
`exposure` says.  The logarithm of the rate is a Gaussian process, whose length scale and variance are integrated out.
"""

from hmcgp import GPCounts, datasets, plots

coal = datasets.load_coal_mining()
exposure = coal.frame["exposure"]
gp = GPCounts(likelihood="poisson", draws=600, tune=300, chains=2, random_state=1)
gp.fit(coal.data, coal.target, exposure)
ax = plots.regression_1d(gp, coal.data, coal.target, exposure=1.0)
ax.set(ylabel="disasters a year", ylim=(-0.3, None))

# %%
# Rates, with intervals of the rate itself, at years of your choice:

some = coal.data[coal.data["year"].isin([1860, 1890, 1900, 1950])]
for year, rate, (low, high) in zip(some["year"], *gp.predict_rate(some, level=0.9), strict=True):
    print(f"{year:.0f}: {rate:.2f} disasters a year (90 %: {low:.2f} to {high:.2f})")

# %%
# Are the counts more spread than Poisson's?  The negative binomial infers its dispersion; leaving years out, it
# predicts no better:

spread = GPCounts(likelihood="negative_binomial", draws=600, tune=300, chains=2, random_state=1)
spread.fit(coal.data, coal.target, exposure)
print(gp.loo())
print(spread.loo())
