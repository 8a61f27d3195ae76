import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process import kernels as sk

from hmcgp.errors import NotConverged
from hmcgp.evidence import Laplace
from hmcgp.kernels import SquaredExponential, White
from hmcgp.likelihoods import Logistic
from hmcgp.model import Model
from hmcgp.posterior import predict, row_blocks
from hmcgp.posterior.leave_one_out import cavities
from hmcgp.posterior.predictors import predictor
from tests.helpers.checks import classification_problem

X, Y, _ = classification_problem(60, 2, seed=3)
NEW = np.random.default_rng(5).normal(size=(37, 2)) * 2.0
DRAWS = np.exp(np.random.default_rng(6).normal(0.5, 0.3, size=(60, 3)))


@pytest.fixture(scope="module")
def model():
    return Model(X, Y)


def test_one_draw_is_scikit_learns_prediction(model):
    variance, *length_scale = DRAWS[0]
    theirs = GaussianProcessClassifier(
        sk.ConstantKernel(variance) * sk.RBF(length_scale), optimizer=None, max_iter_predict=1000
    ).fit(X, Y)
    mean, var = predict.latent_moments(model, DRAWS[:1], NEW)
    their_mean, their_var = theirs.latent_mean_and_variance(NEW)
    np.testing.assert_allclose(mean[0], their_mean, atol=1e-5)
    np.testing.assert_allclose(var[0], their_var, atol=1e-5)
    # scikit-learn averages the sigmoid by an erf approximation good to about 1e-3
    np.testing.assert_allclose(
        predict.probabilities(model, DRAWS[:1], NEW)[:, 1], theirs.predict_proba(NEW)[:, 1], atol=2e-3
    )


def test_average_is_the_mean_over_draws(model):
    per_draw = predict.probabilities_per_draw(model, DRAWS, NEW)
    assert per_draw.shape == (60, 37, 2)
    np.testing.assert_allclose(per_draw.sum(axis=2), 1.0, rtol=1e-15)
    np.testing.assert_allclose(predict.probabilities(model, DRAWS, NEW), per_draw.mean(axis=0), rtol=1e-12)


def test_mixture_moments_are_those_of_the_mixture(model):
    mean, var = predict.latent_moments(model, DRAWS, NEW)
    got_mean, got_var = predict.mixture_moments(model, DRAWS, NEW)
    np.testing.assert_allclose(got_mean, mean.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(got_var, var.mean(axis=0) + mean.var(axis=0), rtol=1e-9)


def test_workers_do_not_change_a_bit(model):
    one, two = (predict.probabilities(model, DRAWS, NEW, n_jobs=k) for k in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_blocks_bound_the_memory_and_change_nothing(model, monkeypatch):
    whole = predict.probabilities(model, DRAWS[:3], NEW)
    monkeypatch.setattr(
        row_blocks, "BLOCK_BYTES", (16 * len(X) + 8 * 24) * 5
    )  # what is held for a row, and five of them
    found = predictor(model, DRAWS[0], *model.posterior(DRAWS[0]))
    assert [s.stop - s.start for s in row_blocks.blocks(model, found, len(NEW))] == [5] * 7 + [2]
    np.testing.assert_allclose(predict.probabilities(model, DRAWS[:3], NEW), whole, atol=1e-6)  # variances in float32


def test_far_tails_keep_their_relative_accuracy():
    """Probabilities of 1e-20 for either class: neither may be computed as 1 - p of the other."""
    mean, variance = np.array([-46.0, 46.0]), np.array([1.0, 1.0])
    negative, positive = Logistic().class_probabilities(mean, variance)
    np.testing.assert_allclose([positive[0], negative[1]], np.exp(-46.0 + 0.5), rtol=1e-10)


def test_latent_noise_widens_predictions():
    quiet = Model(X, Y, kernel=SquaredExponential(length_scale=1.0))
    noisy = Model(X, Y, kernel=SquaredExponential(length_scale=1.0) + White(2.0))
    theta = np.array([[2.0]])
    assert (predict.latent_moments(noisy, theta, NEW)[1] > predict.latent_moments(quiet, theta, NEW)[1] + 1.9).all()


class Fussy(Laplace):
    """Laplace, but only from a start that lies near the solution where the variance is large."""

    def __call__(self, K, y, likelihood, start=None, *, gradient=True):
        evidence = super().__call__(K, y, likelihood, start, gradient=gradient)
        if K[0, 0] > 50.0 and (start is None or np.abs(start - evidence.posterior.f).max() > 2.5):
            raise NotConverged("started too far away")
        return evidence


def test_a_draw_that_cannot_be_solved_at_once_is_approached_from_another():
    X, y, _ = classification_problem(30, 2)
    draws = np.array([[90.0, 1.0], [2.0, 1.0], [3.0, 1.5], [400.0, 0.8]])
    model = Model(X, y, kernel=SquaredExponential())
    fussy = model.with_evidence(Fussy())
    with pytest.raises(NotConverged):
        fussy.posterior(draws[3])
    np.testing.assert_allclose(
        predict.probabilities_per_draw(fussy, draws, X), predict.probabilities_per_draw(model, draws, X), atol=1e-9
    )
    np.testing.assert_allclose(cavities(fussy, draws), cavities(model, draws), atol=1e-8)
    with pytest.raises(NotConverged, match="started too far away"):
        predict.probabilities(fussy, draws[:1], X)
