"""Latent variances from a few training rows, for large batches."""

import numpy as np
import pytest

from hmcgp.evidence.products import Reduced
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian, LabelNoise
from hmcgp.model import Model
from hmcgp.posterior import predict, reduction
from hmcgp.posterior.kept import KeptPredictors
from hmcgp.posterior.predictors import predictor
from hmcgp.posterior.weights import WeightedDraws
from tests.helpers.checks import classification_problem

X, Y, _ = classification_problem(150, 2, seed=4)
NEW = np.random.default_rng(5).normal(size=(400, 2)) * 1.3
THETA = np.exp(np.random.default_rng(6).normal([1.5, 0.2], 0.2, size=(4, 2)))


@pytest.fixture
def eager(monkeypatch):
    """Reductions of a batch of 400 rows at 150 training rows."""
    monkeypatch.setattr(reduction, "LEAST_ROWS", 300)
    monkeypatch.setattr(reduction, "LEAST_TRAINING_ROWS", 100)
    monkeypatch.setattr(reduction, "SAMPLE", 50)
    monkeypatch.setattr(reduction, "SIZES", (4, 16, 40, 64))
    monkeypatch.setattr(predict, "SMALL", 0)


def labels(**settings):
    return Model(X, Y, kernel=SquaredExponential(), **settings)


def numbers(**settings):
    y = np.sin(2.0 * X[:, 0]) + 0.3 * np.random.default_rng(7).normal(size=150)
    return Model(X, y, kernel=SquaredExponential(), likelihood=Gaussian(noise=0.1), **settings)


def one(model):
    return predictor(model, THETA[0], *model.posterior(THETA[0]))


@pytest.mark.parametrize("model", [labels(), labels(evidence="ep"), numbers(), numbers(weights=1.0 + (Y > 0))])
def test_variances_tend_to_the_exact_ones_and_means_are_exact(model):
    found = one(model)
    mean, variance = found.latent(NEW)
    errors = []
    for size in (5, 20, 60, 140):
        few_mean, few_variance = reduction.reduced(found, size).latent(NEW)
        np.testing.assert_allclose(few_mean, mean, rtol=1e-8, atol=1e-10)
        errors.append(np.sqrt(np.mean((few_variance - variance) ** 2)))
    assert errors[0] > 3.0 * errors[1] > 9.0 * errors[2]
    assert errors[3] < 1e-3 * float(variance.max())  # float32


def test_far_away_the_variance_is_the_priors():
    found = reduction.reduced(one(labels()), 20)
    np.testing.assert_allclose(found.latent(NEW + 100.0)[1], THETA[0, 0])


def test_pivots_are_those_of_a_pivoted_cholesky_factorisation():
    K = SquaredExponential(variance=2.0, length_scale=0.7)(X)
    chosen = reduction.pivots(K, 12)
    left = K.copy()
    for i in chosen:
        assert left[i, i] == pytest.approx(np.diag(left).max(), rel=1e-9)
        left -= np.outer(left[:, i], left[i]) / left[i, i]
    assert len(set(chosen.tolist())) == 12
    twins = np.ones((5, 5))  # one row explains all: any others will do
    assert sorted(reduction.pivots(twins, 5).tolist()) == [0, 1, 2, 3, 4]


def test_batches_are_reduced_to_the_smallest_size_that_is_accurate(eager, monkeypatch):
    model = labels()
    draws = WeightedDraws(THETA, np.array([0.5, 1.5, 1.0, 1.0]), KeptPredictors(model))
    whole = np.vstack([predict.probabilities(model, draws, NEW[:200]), predict.probabilities(model, draws, NEW[200:])])
    for tolerance in (2e-3, 1e-4):
        monkeypatch.setattr(predict, "PROBABILITY_ERROR", tolerance)
        p = predict.probabilities(model, draws, NEW)
        assert 0.0 < np.abs(p - whole).max() < 2.0 * tolerance
    tried = {key[1] for key in draws.kept._entries if isinstance(key, tuple)}
    assert {4, 16} <= tried <= {4, 16, 40, 64}
    np.testing.assert_array_equal(predict.probabilities(model, draws, NEW), p)


def test_what_cannot_be_accurate_is_computed_in_full(eager, monkeypatch):
    model = labels()
    monkeypatch.setattr(predict, "PROBABILITY_ERROR", -1.0)
    found = predict.probabilities(model, THETA, NEW)
    monkeypatch.setattr(reduction, "LEAST_ROWS", 1000)
    np.testing.assert_array_equal(found, predict.probabilities(model, THETA, NEW))


def test_variances_of_numbers_are_within_their_tolerance(eager):
    model = numbers()
    draws = WeightedDraws(THETA, np.ones(4), KeptPredictors(model))
    for observed in (True, False):
        mean, variance = predict.mixture_moments(model, draws, NEW, observed=observed)
        parts = [predict.mixture_moments(model, draws, part, observed=observed) for part in (NEW[:200], NEW[200:])]
        np.testing.assert_allclose(mean, np.concatenate([m for m, _ in parts]), rtol=1e-9)
        np.testing.assert_allclose(variance, np.concatenate([v for _, v in parts]), rtol=2 * predict.VARIANCE_ERROR)
    assert any(isinstance(key, tuple) for key in draws.kept._entries)


def test_few_rows_and_several_classes_are_not_reduced(eager):
    assert reduction.sample_rows(labels(), NEW[:299]) is None
    assert reduction.sample_rows(labels(), NEW).shape == (50, 2)
    codes = np.random.default_rng(8).integers(0, 3, size=150).astype(float)
    assert reduction.sample_rows(Model(X, codes, likelihood="softmax"), NEW) is None


def test_label_noise_is_reduced_or_left_alone():
    """Sites of negative precision leave no positive definite matrix; then the predictor stays what it is."""
    found = one(labels(likelihood=LabelNoise(flip=0.2), evidence="ep"))
    few = reduction.reduced(found, 40)
    assert few is found or isinstance(few.products.explained, Reduced)
    mean, variance = few.latent(NEW)
    np.testing.assert_allclose(mean, found.latent(NEW)[0], rtol=1e-8, atol=1e-10)
    assert np.abs(variance - found.latent(NEW)[1]).max() < 0.05
