"""
Which inputs matter, and what they do
=====================================

Relevance is the change of the probability when an input moves by its own spread and the others stay, with an interval
over the draws of the hyperparameters.  Effects show the whole curve.
"""

from hmcgp import GPClassifier, datasets, plots

pima = datasets.load_pima()
X, y = pima.data[pima.train][:120], pima.target[pima.train][:120]
gp = GPClassifier(draws=500, tune=300, chains=2, random_state=1).fit(X, y)
plots.relevance(gp)

# %%
# The three most relevant inputs, averaged over the patients (partial dependence).  The band is over the latent function
# and the hyperparameters.

result = gp.relevance()
plots.effects(gp, result.ranking[:3])

# %%
# The numbers behind the pictures:

result.to_frame().round(3)
