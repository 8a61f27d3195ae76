"""Brackets around the evidence of draws, predictions from both bounds, and what the upper bound is refused for."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from hmcgp import GPClassifier, Model, datasets, find_map, sample
from hmcgp.errors import InvalidInput
from hmcgp.evidence import Laplace, LowerBound, UpperBound
from hmcgp.likelihoods import Logistic
from hmcgp.posterior import evidence_bounds, over_draws, predict
from hmcgp.posterior.weights import WeightedDraws
from tests.helpers.checks import check_gradient

CRABS = datasets.load_crabs()
ROWS = np.random.default_rng(0).permutation(200)[:60]
X, TARGET = CRABS.data.iloc[ROWS], CRABS.target.iloc[ROWS]
Y = np.where(TARGET == "M", 1.0, -1.0)
Z = (X - X.mean()) / X.std()


@pytest.fixture(scope="module")
def draws():
    model = Model(Z, Y)
    rng = np.random.default_rng(0)
    draws = np.array([model.constrain(model.initial(rng)) for _ in range(60)])
    draws[3] = draws[2]  # a rejected proposal
    return draws


@pytest.mark.parametrize("evidence", ["laplace", "lower", "upper"])
def test_bounds_of_each_draw(draws, evidence):
    """Warm starts within a group, and the provider of the model, leave no trace."""
    model = Model(Z, Y, evidence=evidence)
    lower, upper = evidence_bounds.evidence_bounds(model, draws)
    assert lower.shape == upper.shape == (60,)
    assert (lower < upper).all()
    for s in (0, 3, 24, 25, 59):
        K = model.kernel_at(draws[s])(model.X)
        np.testing.assert_allclose(lower[s], LowerBound()(K, Y, Logistic()).log_z, rtol=1e-11)
        np.testing.assert_allclose(upper[s], UpperBound()(K, Y, Logistic()).log_z, rtol=1e-11)


def test_bounds_do_not_depend_on_the_workers_and_travel_to_processes(draws):
    model = Model(Z, Y)
    one, two = (evidence_bounds.evidence_bounds(model, draws, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    statistic, lower = pickle.loads(pickle.dumps((evidence_bounds._LogEvidence(), model.with_evidence("lower"))))
    np.testing.assert_array_equal(
        over_draws.solve_group(statistic, lower, WeightedDraws.of(draws[:25])), one.lower[:25]
    )


def test_with_evidence_leaves_the_model_alone():
    model = Model(Z, Y)
    other = model.with_evidence("lower")
    assert isinstance(model.evidence, Laplace)
    assert isinstance(other.evidence, LowerBound)
    assert other.names == model.names
    with pytest.raises(InvalidInput, match=r"LowerBound cannot integrate Probit \(it takes Logistic\): take evidence="):
        Model(Z, Y, likelihood="probit").with_evidence("lower")


def test_gradient_of_the_log_density():
    model = Model(Z, Y, evidence="lower")
    rng = np.random.default_rng(1)
    for _ in range(3):
        check_gradient(model.logdensity_and_grad, 0.7 * rng.normal(size=model.n_dim), rtol=1e-5, atol=1e-6)


def test_the_lower_bound_is_the_more_confident(draws):
    """Same hyperparameters: the upper bound keeps the prior's variance, the lower one knows what the labels say."""
    model = Model(Z, Y)
    (_, lower), (_, upper) = (
        predict.latent_moments(model.with_evidence(name), draws, Z.to_numpy()) for name in ("lower", "upper")
    )
    assert (lower < upper).all()
    far = np.full((1, 5), 1e3)
    for name in ("lower", "upper"):
        np.testing.assert_allclose(predict.probabilities(model.with_evidence(name), draws, far), 0.5, atol=1e-3)


@pytest.mark.parametrize("sampler", ["hmc", "nuts", "metropolis", "map"])
@pytest.mark.parametrize("evidence", ["upper", UpperBound()], ids=["name", "instance"])
def test_nothing_is_sampled_or_maximised_on_the_upper_bound(sampler, evidence):
    gp = GPClassifier(evidence=evidence, sampler=sampler, progressbar=False, draws=10, tune=10, chains=2)
    with pytest.raises(InvalidInput, match=r"never falls as the prior variance grows.*evidence='lower'"):
        gp.fit(X, TARGET)
    assert not hasattr(gp, "model_")


def test_the_model_of_the_upper_bound_refuses_a_density_and_gives_brackets():
    model = Model(Z, Y, evidence="upper")
    for call in (lambda: sample(model, draws=5, tune=5, chains=1, progressbar=False), lambda: find_map(model)):
        with pytest.raises(InvalidInput, match="cannot choose hyperparameters"):
            call()
    with pytest.raises(InvalidInput, match="cannot choose hyperparameters"):
        model.logdensity_and_grad(np.zeros(model.n_dim))
    log_z, grad = model.log_evidence(np.ones(model.n_dim))
    assert log_z < 0.0
    assert grad[model.names.index("variance")] > 0.0


@pytest.mark.parametrize("evidence", ["lower", "laplace"])
def test_the_estimator_reports_brackets(evidence):
    gp = GPClassifier(
        evidence=evidence, draws=20, tune=60, chains=2, predict_draws=30, random_state=0, progressbar=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        gp.fit(X, TARGET)
    bounds = gp.evidence_bounds()
    assert bounds.lower.shape == (30,)
    assert (bounds.lower < bounds.upper).all()
    if evidence == "lower":
        kept = gp.trace_.thinned(30)
        log_prior = [gp.model_.log_prior(u)[0] for u in kept.unconstrained.reshape(30, -1)]
        np.testing.assert_allclose(bounds.lower, np.ravel(kept.stats["lp"]) - log_prior, rtol=1e-10)
    assert gp.score(X, TARGET) > 0.9


def test_brackets_are_for_the_logistic_likelihood():
    gp = GPClassifier(likelihood="probit", sampler="map", random_state=0).fit(X, TARGET)
    with pytest.raises(InvalidInput, match="cannot integrate Probit"):
        gp.evidence_bounds()
