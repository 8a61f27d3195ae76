"""Models with inducing inputs: density and gradient, predictions, leave-one-out, more rows, and refusals."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from hmcgp import Model, find_map, sample
from hmcgp.errors import InvalidInput
from hmcgp.evidence import Exact, LowRank
from hmcgp.joint.density import JointDensity
from hmcgp.kernels import Categorical, Matern, SquaredExponential, White
from hmcgp.likelihoods import LabelNoise
from hmcgp.model import GrowingModel
from hmcgp.posterior.leave_one_out import loo
from hmcgp.posterior.predict import latent_moments, observed_jointly, probabilities
from hmcgp.samplers import HMC
from tests.helpers.checks import check_gradient
from tests.helpers.custom_kernels import Cauchy

N, M = 60, 9
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, 2))
LABELS = np.where(X[:, 0] + 0.4 * RNG.normal(size=N) > 0.0, 1.0, -1.0)
NUMBERS = np.sin(X[:, 0]) + 0.2 * RNG.normal(size=N)
CLASSES = np.digitize(X[:, 0] + 0.3 * RNG.normal(size=N), [-0.5, 0.5]).astype(float)
Z = X[:M] + 0.01
NEW = RNG.normal(size=(5, 2))
WEIGHTS = RNG.uniform(0.5, 2.0, size=N)

MODELS: dict[str, dict[str, Any]] = {
    "laplace": {"y": LABELS},
    "ep": {"y": LABELS, "likelihood": "probit", "evidence": "ep"},
    "exact": {"y": NUMBERS, "likelihood": "gaussian"},
    "white": {"y": LABELS, "kernel": SquaredExponential(ard=True) + White()},
    "categories": {"y": LABELS, "kernel": SquaredExponential().on([0]) * Categorical().on([1])},
    "of one's own": {"y": LABELS, "kernel": Cauchy() * Matern()},
    "weights": {"y": LABELS, "weights": WEIGHTS},
    "flips": {"y": LABELS, "likelihood": LabelNoise(link="probit"), "evidence": "ep"},
    "lower": {"y": LABELS, "evidence": "lower"},
    "classes": {"y": CLASSES, "likelihood": "softmax"},
    "kernel per class": {"y": CLASSES, "likelihood": "softmax", "kernel": [SquaredExponential()] * 3},
    "titsias": {"y": NUMBERS, "likelihood": "gaussian", "evidence": Exact(variational=True)},
    "columns": {"y": np.stack([NUMBERS, LABELS], axis=1), "likelihood": "gaussian"},
}


def build(name, **more):
    settings = dict(MODELS[name])
    return Model(X, settings.pop("y"), **settings, **({"inducing": Z} | more))


@pytest.mark.parametrize("name", MODELS)
def test_gradient_matches_central_differences(name):
    model = build(name)
    rng = np.random.default_rng(0)
    for _ in range(2):
        check_gradient(model.logdensity_and_grad, 0.5 * rng.normal(size=model.n_dim), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["laplace", "ep", "exact", "lower", "classes", "kernel per class", "titsias"])
def test_inducing_inputs_at_all_rows_change_little(name):
    """Nothing but the jitter is between them."""
    dense, low_rank = build(name, inducing=None), build(name, inducing=X)
    u = np.zeros(dense.n_dim)
    assert abs(low_rank.evaluate(u).logdensity - dense.evaluate(u).logdensity) < 1e-3
    theta = dense.constrain(u)[None]
    for ours, theirs in zip(latent_moments(low_rank, theta, NEW), latent_moments(dense, theta, NEW), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("name", ["laplace", "ep", "exact", "columns", "flips", "lower", "kernel per class", "titsias"])
def test_predictions_and_leave_one_out(name):
    model = build(name)
    theta = model.constrain(np.zeros(model.n_dim))[None]
    mean, variance = latent_moments(model, theta, NEW)
    assert np.isfinite(mean).all()
    assert (variance.diagonal(axis1=-2, axis2=-1) > 0.0 if name == "kernel per class" else variance > 0.0).all()
    assert np.isfinite(loo(model, theta).elpd)
    if model.likelihood.targets != "numbers":
        assert probabilities(model, theta, NEW).shape == (5, 3 if name == "kernel per class" else 2)
    else:
        joint = next(iter(observed_jointly(model, theta, NEW)))
        np.testing.assert_allclose(joint[0], mean[0], atol=1e-12)


def test_white_noise_stays_exact():
    """It belongs to the diagonal, so that inducing inputs do not have to explain it."""
    kernel = SquaredExponential(1.0, 2.0)
    with_white = Model(X, LABELS, kernel=kernel + White(0.7), inducing=X)
    dense = Model(X, LABELS, kernel=kernel + White(0.7))
    u = np.zeros(0)
    assert abs(with_white.evaluate(u).logdensity - dense.evaluate(u).logdensity) < 1e-4


@pytest.mark.parametrize("name", ["laplace", "ep", "exact", "lower"])
def test_more_rows_are_as_all_rows_at_once(name):
    model = build(name)
    rows, y = NEW, np.where(NEW[:, 0] > 0.0, 1.0, -1.0)
    theta = model.constrain(np.zeros(model.n_dim))
    larger, log_weight = GrowingModel(model, theta[None]).grown(rows, y)
    both = model.with_rows(rows, y)
    before, after = (m.posterior(theta)[1].log_z for m in (model, both))
    np.testing.assert_allclose(log_weight, after - before, rtol=1e-8)
    np.testing.assert_allclose(latent_moments(larger, theta[None], NEW), latent_moments(both, theta[None], NEW))


def test_it_samples_and_is_maximised_as_any_density():
    model = build("laplace")
    run = sample(model, HMC(), draws=5, tune=10, chains=2, random_state=0, n_jobs=2, progressbar=False)
    again = sample(model, HMC(), draws=5, tune=10, chains=2, random_state=0, n_jobs=1, progressbar=False)
    np.testing.assert_array_equal(run.draws, again.draws)
    found = find_map(model, random_state=0, n_restarts=1)
    assert np.abs(model.evaluate(found.position).grad).max() < 1e-3


def test_it_survives_a_pickle_and_has_an_identity_of_its_own():
    model = build("laplace")
    u = np.full(model.n_dim, 0.2)
    assert pickle.loads(pickle.dumps(model)).evaluate(u).logdensity == model.evaluate(u).logdensity
    assert model.identity() != build("laplace", inducing=None).identity()
    assert model.identity() != build("laplace", inducing=Z[:-1]).identity()
    assert "inducing inputs" not in build("laplace", inducing=None).identity()


def test_failures_are_minus_infinity():
    evaluation = build("laplace").evaluate(np.array([60.0, 0.0, 0.0]))
    assert evaluation.logdensity == -np.inf
    assert evaluation.failure != 0
    assert not evaluation.grad.any()


@pytest.mark.parametrize(
    ("inducing", "message"),
    [
        (np.zeros((3, 4)), "must have the 2 inputs of the rows; got 4 columns"),
        (RNG.normal(size=(N + 1, 2)), "61 inducing inputs for 60 rows"),
        (np.vstack([Z, Z[:1]]), "equal rows"),
        (np.vstack([Z, [[30.0, 0.0]]]), r"1 of 10 inducing inputs lie farther outside.*\[30.0, 0.0\]"),
    ],
)
def test_bad_inducing_inputs_are_refused(inducing, message):
    with pytest.raises(InvalidInput, match=message):
        Model(X, LABELS, inducing=inducing)
    with pytest.raises(ValueError, match="NaN"):
        Model(X, LABELS, inducing=np.full((3, 2), np.nan))


@pytest.mark.parametrize("evidence", ["tap", "naive", "sampled"])
def test_providers_of_dense_matrices_are_refused_at_once(evidence):
    with pytest.raises(InvalidInput, match="knows dense covariances only"):
        Model(X, LABELS, likelihood="probit", evidence=evidence, inducing=Z)
    with pytest.raises(InvalidInput, match="knows dense covariances only"):
        build("ep").with_evidence(evidence)


def test_what_else_needs_a_dense_matrix_is_refused():
    with pytest.raises(InvalidInput, match="LabelNoise"):
        Model(X, LABELS, likelihood=LabelNoise(0.1, link="step"), evidence="ep", inducing=Z)
    with pytest.raises(InvalidInput, match="MultinomialEP knows dense covariances only"):
        Model(X, CLASSES, likelihood="multinomial_probit", inducing=Z)
    with pytest.raises(InvalidInput, match="dense covariances only"):
        JointDensity(build("laplace"))
    with pytest.raises(InvalidInput, match="EM-EP knows dense"):
        build("ep").expectation(np.zeros(3))


def test_the_memory_that_it_takes_is_that_of_tall_matrices():
    model = build("laplace")
    assert model.work_space.nbytes == 4 * 8 * N * M
    K, _ = model.posterior(model.constrain(np.zeros(3)))
    assert isinstance(K, SquaredExponential)
    assert LowRank.of(K(np.vstack([Z, X]), Z), K.diag(np.vstack([Z, X]))).rank == M
