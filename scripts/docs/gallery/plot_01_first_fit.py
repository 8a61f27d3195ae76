"""
A first fit
===========

Two inputs of the Pima data, two classes: fit, look at the draws, map the probability, and check on patients that the
fit has not seen whether the probabilities come true.
"""

import matplotlib.pyplot as plt

from hmcgp import GPClassifier, datasets, plots

pima = datasets.load_pima()
X, y = pima.data[["glu", "bmi"]], pima.target
train, test = pima.train.copy(), ~pima.train
train[100:] = False  # the first hundred are enough here

gp = GPClassifier(draws=400, tune=300, chains=2, random_state=1).fit(X[train], y[train])
print(gp.refinement_)
gp.summary()[["mean", "sd", "q5", "q95", "ess_bulk", "r_hat"]]

# %%
# The probability of diabetes over both inputs, and its calibration: patients are grouped by the predicted probability,
# and the share of each group that has diabetes should lie on the diagonal.

figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
plots.predictive(gp, X[train], y[train], ax=axes[0])
plots.calibration(gp, X[test], y[test], ax=axes[1])

# %%
# How sure is a probability?  The interval counts what is not known about the latent function and the hyperparameters.

some = X[test].iloc[:4]
low, high = gp.predict_proba_interval(some)[:, 1].T
some.assign(probability=gp.predict_proba(some)[:, 1], low=low, high=high).round(2)
