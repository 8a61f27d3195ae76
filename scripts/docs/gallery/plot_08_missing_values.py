"""
Missing values
==============

With `missing="indicator"`, an input with gaps is accompanied by an indicator that has a relevance of its own.  Here
body-mass index was recorded less often for patients with diabetes, so that a gap says something.
"""

import matplotlib.pyplot as plt
import numpy as np

from hmcgp import GPClassifier, datasets, plots

pima = datasets.load_pima()
X, y = pima.data[["glu", "bmi", "age"]][:120].copy(), pima.target[:120]
rng = np.random.default_rng(0)
X.loc[rng.random(120) < np.where(y == "Yes", 0.5, 0.1), "bmi"] = np.nan

gp = GPClassifier(missing="indicator", draws=300, tune=300, chains=2, random_state=1).fit(X, y)
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
plots.relevance(gp, ax=axes[0])
plots.effect(gp, "missingindicator_bmi", axes=axes[1:])

# %%
# New rows may have gaps where the training rows had some:

new = X.iloc[:2].assign(bmi=[30.0, np.nan])
new.assign(probability=gp.predict_proba(new)[:, 1]).round(2)
