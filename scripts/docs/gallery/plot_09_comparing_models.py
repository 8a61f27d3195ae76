"""
Comparing models, and rows that surprise
========================================

Is a straight boundary enough?  `compare` ranks fits of the same rows by leave-one-out, with the errors of the
differences, and by their evidence.
"""

from hmcgp import GPClassifier, compare, datasets, plots
from hmcgp.kernels import Constant, Linear, SquaredExponential

X, y = datasets.load_crabs(return_X_y=True)
X, y = X[["FL", "RW"]][::2], y[::2]
settings = {"draws": 300, "tune": 300, "chains": 2, "random_state": 1}
fits = {
    "line": GPClassifier(Linear(ard=True) + Constant(), **settings).fit(X, y),
    "curve": GPClassifier(SquaredExponential(ard=True), **settings).fit(X, y),
}
found = compare(fits)
print(found)
plots.compare(found)

# %%
# Each row as the others predict it: those far below are mislabelled, or cases of their own.

plots.loo(fits["line"])
