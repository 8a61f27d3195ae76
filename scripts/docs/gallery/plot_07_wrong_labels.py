"""
Labels that may be wrong
========================

Five of sixty labels are flipped on purpose.  The likelihood "label_noise" infers how often labels are wrong, and
`label_noise()` says which.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Circle

from hmcgp import GPClassifier
from hmcgp.kernels import SquaredExponential

rng = np.random.default_rng(5)
X = rng.uniform(-2, 2, (60, 2))
y = np.hypot(*X.T) < 1.3
flipped = rng.choice(60, 5, replace=False)
labels = y.copy()
labels[flipped] = ~labels[flipped]

gp = GPClassifier(SquaredExponential(), likelihood="label_noise", draws=120, tune=120, chains=2, random_state=1).fit(
    X, labels
)
wrong = gp.label_noise()

figure, ax = plt.subplots(figsize=(6.4, 5), layout="constrained")
points = ax.scatter(X[:, 0], X[:, 1], c=wrong, s=30 + 150 * wrong, cmap="viridis_r", vmin=0, vmax=1)
ax.scatter(X[flipped, 0], X[flipped, 1], facecolors="none", edgecolors="red", s=220, label="flipped")
figure.colorbar(points, label="probability that the label is wrong")
ax.add_patch(Circle((0, 0), 1.3, fill=False, ls="--", color="0.5"))
ax.set(aspect="equal")
ax.legend()

# %%
# The five most suspicious rows, and those that were flipped:

print(sorted(np.argsort(-wrong)[:5].tolist()), sorted(flipped.tolist()))
