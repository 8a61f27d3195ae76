"""Two roads to the exact posterior meet: weighted draws, `refine="exact"`, and joint draws, `sample_jointly`.

They share kernel, prior and EP's sites, and nothing else: importance sampling of the latent values at draws made under
Laplace's approximation there, a Markov chain over hyperparameters and latent values here.

Tolerances.  Probabilities of new rows: 0.01 rms; Monte Carlo error is 0.003 to 0.005 of it.  Posterior means of the log
hyperparameters: 0.1 posterior standard deviations (sd), and three Monte Carlo standard errors of the difference on top.
With about 300 effective weighted draws and 1000 joint ones that error is 0.065 sd, so 0.1 sd alone would take ten
times the draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hmcgp import GPClassifier, datasets, sample_jointly
from hmcgp.kernels import SquaredExponential
from hmcgp.posterior import predict
from hmcgp.reporting.convergence import ess, weighted_ess

QUIET: dict[str, Any] = {"chains": 4, "tune": 300, "n_jobs": 1, "progressbar": False}


def crabs():
    X, y = datasets.load_crabs(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X.to_numpy(), np.asarray(y), order[:80], order[80:]


def pima():
    table = datasets.load_pima()
    return table.data.to_numpy(), np.asarray(table.target), np.flatnonzero(table.train), np.flatnonzero(~table.train)


def rms(difference):
    return float(np.sqrt(np.mean(difference**2)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # an R-hat of 1.013, say: chains are short
@pytest.mark.parametrize(("table", "ard", "n_weighted", "n_joint"), [(crabs, True, 400, 500), (pima, False, 300, 400)])
def test_weighted_draws_and_joint_draws_agree(table, ard, n_weighted, n_joint):
    """Crabs with a length scale for each input; Pima with one for all, since each of its draws takes longer."""
    X, y, train, test = table()
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    gp = GPClassifier(
        SquaredExponential(ard=ard), refine="exact", standardize=False, draws=n_weighted, predict_draws=n_weighted,
        random_state=1, **QUIET,
    ).fit(X[train], y[train])  # fmt: skip
    # The weights are of draws under Laplace
    assert gp.refinement_.method == "weighted"
    joint = sample_jointly(gp.model_.with_evidence("ep"), draws=n_joint, random_state=2, **QUIET)

    p, wanted = gp.predict_proba(X[test])[:, 1], joint.predict_proba(X[test])[:, 1]
    assert rms(p - wanted) < 0.01

    # a control: draws that are not weighted, and predictions by Laplace's approximation, are told apart
    plain = gp.sampling_trace_.thinned(200).flat
    timid = predict.probabilities(gp.model_.with_evidence("laplace"), plain, X[test], n_jobs=1)[:, 1]
    assert rms(timid - wanted) > (0.03 if table is crabs else 1.3 * rms(p - wanted))

    weight = gp.trace_.weight.reshape(gp.trace_.draws.shape[:2])
    for k, name in enumerate(joint.trace.names):
        u, v = gp.trace_.unconstrained[:, :, k], joint.trace.unconstrained[:, :, k]
        error = v.std() * np.sqrt(1.0 / weighted_ess(u, weight)[0] + 1.0 / ess(v)[0])
        assert error < 0.1 * v.std(), name  # enough draws to tell
        assert abs(np.average(u, weights=weight) - v.mean()) < 0.1 * v.std() + 3.0 * error, name
