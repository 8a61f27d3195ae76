"""
Three classes
=============

New thyroid: normal, hyper- and hypothyroid patients.  Each class has a latent function; all of them share a kernel.
"""

import numpy as np

from hmcgp import GPClassifier, datasets, plots

X, y = datasets.load_thyroid(return_X_y=True)
train = np.arange(len(y)) % 3 == 0
names = list(X.columns[:2])
gp = GPClassifier(likelihood="softmax", draws=100, tune=150, chains=2, random_state=1)
gp.fit(X.loc[train, names], y[train])
plots.effect(gp, names[0])

# %%
# Where it goes wrong on the other patients:

plots.confusion(gp, X.loc[~train, names], y[~train])

# %%
# Without `likelihood="softmax"`, the draws would be weighted to the multinomial probit by expectation propagation,
# which takes longer.

gp.summary().iloc[:4]
