"""Sampled latent values: the evidence and the predictions of brute force, without bias, with honest standard errors.

The random stream is a function of the last bits of K, so tolerances allow for any stream.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t

from hmcgp import GPClassifier, Model
from hmcgp.errors import InvalidInput, NotConverged
from hmcgp.evidence import EP, LatentSampling, SupportsLatentMixture, SupportsLeaveOneOut, SupportsStandardError
from hmcgp.evidence.sampled import provider as provider_module
from hmcgp.evidence.sampled.estimate import pivoted_root
from hmcgp.evidence.sampled.points import BATCH, Points
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import LabelNoise, Logistic, Probit
from hmcgp.posterior import predict, row_blocks
from tests.helpers.checks import classification_problem, squared_exponential

LIKELIHOODS = [Logistic(), Probit(), LabelNoise(0.1)]
likelihoods = pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)


def evaluate(K, y, likelihood, **settings):
    return LatentSampling(**settings)(K, y, likelihood, gradient=False)


def log_prob(likelihood, y, F):
    return likelihood.log_prob(np.broadcast_to(y, F.shape).ravel(), F.ravel()).reshape(F.shape)


def quadrature(K, y, likelihood, weights=1.0, n_nodes=60):
    """Latent values on a product Gauss-Hermite grid, of shape (G, n), and the masses of the joint density there."""
    x, w = np.polynomial.hermite_e.hermegauss(n_nodes)
    nodes = np.array(list(itertools.product(x, repeat=len(y))))
    prior = np.array(list(itertools.product(w / w.sum(), repeat=len(y)))).prod(axis=1)
    F = nodes @ np.linalg.cholesky(K).T
    return F, prior * np.exp((weights * log_prob(likelihood, y, F)).sum(axis=1))


def orthant(n):
    """A prior under which n labels behind a probit, all +1, have the evidence 1/(n + 1)."""
    return np.eye(n) + 2.0 * np.ones((n, n)), np.ones(n)  # K + I has correlations 1/2


# -- evidence --------------------------------------------------------------------------------------------------------


@likelihoods
@pytest.mark.parametrize("n", [2, 3])
def test_evidence_is_that_of_brute_force(likelihood, n):
    _, y, K = classification_problem(n, 2, seed=n)
    evidence = evaluate(K, y, likelihood)
    se = evidence.posterior.standard_error
    assert 0.0 < se < 0.02
    assert abs(evidence.log_z - np.log(quadrature(K, y, likelihood)[1].sum())) < max(8.0 * se, 3e-3)


@likelihoods
@pytest.mark.parametrize("weights", [(2.0, 1.0, 1.0), (0.4, 3.0, 1.5)])
def test_evidence_of_weighted_rows_is_that_of_brute_force(likelihood, weights):
    _, y, K = classification_problem(3, 2, seed=3)
    evidence = evaluate(K, y, likelihood.weighted(weights))
    exact = np.log(quadrature(K, y, likelihood, np.array(weights))[1].sum())
    assert abs(evidence.log_z - exact) < max(8.0 * evidence.posterior.standard_error, 5e-3)


@pytest.mark.parametrize("n", [1, 6, 40])
def test_a_prior_of_rank_one_has_one_dimension(n):
    """K = 11', so K + I has correlations 1/2, and all labels are +1 with probability 1/(n + 1)."""
    evidence = evaluate(np.ones((n, n)), np.ones(n), Probit())
    assert evidence.posterior.z.shape[1] == 1
    np.testing.assert_allclose(evidence.log_z, -np.log(n + 1.0), atol=0.05)  # heavy tail: one in 200 is off by 0.02


@likelihoods
def test_a_vanishing_prior_leaves_coin_tosses_and_no_error(likelihood):
    _, y, K = classification_problem(30, 2)
    evidence = evaluate(1e-12 * K, y, likelihood)
    np.testing.assert_allclose(evidence.log_z, 30 * np.log(0.5), rtol=1e-9)
    assert evidence.posterior.standard_error < 1e-9


@pytest.mark.parametrize("likelihood", [Logistic(), Probit()], ids=str)
def test_a_narrow_prior_makes_a_gaussian_posterior_which_ep_knows(likelihood):
    """Log likelihoods are all but quadratic where the latent values lie: all samples have the same weight."""
    _, y, K = classification_problem(20, 2)
    evidence = evaluate(0.003 * K, y, likelihood)
    np.testing.assert_allclose(evidence.log_z, EP()(0.003 * K, y, likelihood).log_z, atol=1e-5)
    assert evidence.posterior.standard_error < 1e-5


@pytest.mark.parametrize("likelihood", [Logistic(), Probit()], ids=str)
def test_ep_is_close_with_twenty_rows(likelihood):
    _, y, K = classification_problem(20, 2)
    np.testing.assert_allclose(evaluate(K, y, likelihood).log_z, EP()(K, y, likelihood).log_z, atol=0.05)


def relative_errors(seeds, **settings):
    """Ẑ/Z - 1 of five labels behind a probit, for each seed."""
    K, y = orthant(5)
    return 6.0 * np.exp([evaluate(K, y, Probit(), seed=seed, **settings).log_z for seed in seeds]) - 1.0


def test_the_evidence_has_no_bias():
    """In standard errors of the mean; EP's own value, the negative control, is seen to be wrong."""
    errors = relative_errors(range(60), max_samples=2048)
    se = errors.std(ddof=1) / np.sqrt(len(errors))
    assert abs(errors.mean()) < 4.0 * se
    K, y = orthant(5)
    assert abs(6.0 * np.exp(EP()(K, y, Probit()).log_z) - 1.0) > 6.0 * se


@pytest.mark.slow
@pytest.mark.parametrize("dof", [4.0, 40.0])
def test_neither_proposal_has_a_bias(monkeypatch, dof):
    """The Student t, forced, with its own standard error; that of each estimate is honest on average."""
    monkeypatch.setattr(provider_module, "_K_GAUSSIAN", -np.inf)
    K, y = orthant(5)
    found = [evaluate(K, y, Probit(), seed=seed, dof=dof) for seed in range(400)]
    errors = 6.0 * np.exp([e.log_z for e in found]) - 1.0
    assert abs(errors.mean()) < 4.0 * errors.std() / 20.0
    reported = np.sqrt(np.mean([e.posterior.standard_error**2 for e in found]))
    assert 0.85 < reported / errors.std() < 1.18


# -- samples ---------------------------------------------------------------------------------------------------------


def test_the_answer_is_a_function_of_the_question():
    X, y, K = classification_problem(15, 2)
    one = evaluate(K, y, Logistic())
    assert evaluate(K, y, Logistic()).log_z == one.log_z
    upper = K + np.triu(np.full_like(K, 7.0), 1)  # not read
    assert evaluate(upper, y, Logistic()).log_z == one.log_z
    near = evaluate(squared_exponential(X, 3.0 + 1e-9, 1.5), y, Logistic())
    assert near.log_z != one.log_z  # another stream: errors are independent
    assert abs(near.log_z - one.log_z) < 0.03
    assert evaluate(K, y, Logistic(), seed=1).log_z != one.log_z


def test_warm_and_cold_starts_agree():
    _, y, K = classification_problem(15, 2)
    cold = evaluate(K, y, Probit())
    warm = LatentSampling()(K, y, Probit(), cold.posterior.start, gradient=False)
    np.testing.assert_allclose(warm.log_z, cold.log_z, atol=1e-7)


def test_samples_are_added_until_the_error_is_small_or_the_limit_reached():
    _, y, K = classification_problem(20, 2)
    hard = LabelNoise(0.0, link="step")  # every latent value must have its sign
    few, more = evaluate(K, y, hard, max_samples=2048).posterior, evaluate(K, y, hard, max_samples=8192).posterior
    assert (few.n_samples, more.n_samples) == (2048, 8192)
    assert few.standard_error > 0.05
    enough = evaluate(K, y, hard, tol=0.4).posterior
    assert enough.standard_error <= 0.4
    assert enough.n_samples < 16384
    assert more.n_points == provider_module.KEPT  # beyond, samples are drawn again with equal weights
    np.testing.assert_array_equal(more.weights, 1.0 / provider_module.KEPT)
    f = more.ep.f + more.z @ more.root.A.T
    assert (y * f > 0.0).all()


def test_samples_drawn_again_have_the_moments_of_the_weighted_ones(monkeypatch):
    _, y, K = classification_problem(12, 2)
    kept = evaluate(K, y, LabelNoise(0.1), n_samples=8192).posterior
    monkeypatch.setattr(provider_module, "KEPT", 8192)
    every = evaluate(K, y, LabelNoise(0.1), n_samples=8192).posterior
    (mean, variance), (mean_of_all, of_all) = (p.predict(K, np.diag(K)) for p in (kept, every))
    np.testing.assert_allclose(mean, mean_of_all, atol=0.2)
    np.testing.assert_allclose(variance, of_all, rtol=0.2)


def test_labels_that_no_sample_explains():
    K = np.ones((2, 2))  # one latent value, two labels: impossible behind a step
    with pytest.raises(NotConverged, match=r"none of \d+ samples|double loop|residual"):
        evaluate(K + 1e-12 * np.eye(2), np.array([1.0, -1.0]), LabelNoise(0.0, link="step"))


@pytest.mark.parametrize("dof", [None, 5.0, 40.0])
def test_points_have_the_density_that_they_say(dof):
    points = Points(3, 4, (1,), dof=dof)
    z = points.batch(2)
    assert z.shape == (BATCH, 3)
    np.testing.assert_array_equal(z, points.batch(2))
    np.testing.assert_array_equal(z[: BATCH // 2], -z[BATCH // 2 :])
    normal = multivariate_normal(np.zeros(3))
    own = normal if dof is None else multivariate_t(np.zeros(3), df=dof)
    np.testing.assert_allclose(points.log_normal_ratio(z), normal.logpdf(z) - own.logpdf(z), atol=1e-12)
    many = np.concatenate([points.batch(b) for b in range(400)])
    expected = 1.0 if dof is None else dof / (dof - 2.0)
    np.testing.assert_allclose(np.cov(many.T), expected * np.eye(3), atol=0.05)
    if dof is not None:
        np.testing.assert_allclose(np.exp(points.log_normal_ratio(many)).mean(), 1.0, atol=0.01)


@pytest.mark.parametrize("rank", [1, 4, 9])
def test_root_of_a_covariance_with_and_without_full_rank(rank):
    B = np.random.default_rng(rank).normal(size=(9, rank))
    S = B @ B.T
    root = pivoted_root(S)
    assert root.A.shape == (9, rank)
    np.testing.assert_allclose(root.A @ root.A.T, S, atol=1e-12)
    C = B @ np.ones((rank, 2))
    np.testing.assert_allclose(root.A @ root.solve(C), C, atol=1e-9)


# -- predictions -----------------------------------------------------------------------------------------------------


def small_problem(likelihood):
    """Three rows, four new inputs, and what quadrature says about these: probability, latent mean and variance."""
    X = np.array([[0.0], [0.7], [1.5]])
    y, new = np.array([1.0, -1.0, 1.0]), np.array([[0.0], [0.4], [1.2], [3.0]])
    both = squared_exponential(np.vstack([X, new]), 4.0, 1.0)
    K, K_cross, k_diag = both[:3, :3].copy(), both[:3, 3:].copy(), np.diag(both)[3:].copy()
    F, mass = quadrature(K, y, likelihood)
    mass /= mass.sum()
    B = np.linalg.solve(K, K_cross)
    means, variance = F @ B, np.maximum(k_diag - np.einsum("nm,nm->m", K_cross, B), 0.0)
    p = mass @ likelihood.average(means, np.broadcast_to(variance, means.shape))
    mean = mass @ means
    return X, y, new, K, K_cross, k_diag, p, mean, variance + mass @ (means - mean) ** 2


@likelihoods
@pytest.mark.parametrize(
    ("n_seeds", "atol"), [(16, 3e-3), pytest.param(100, 1e-3, marks=pytest.mark.slow)], ids=["quick", "slow"]
)
def test_predictions_are_those_of_brute_force(likelihood, n_seeds, atol):
    """Averaged over seeds: the standard error of a probability is a fifth of the tolerance, or less."""
    _, y, _, K, K_cross, k_diag, p, mean, variance = small_problem(likelihood)
    posteriors = [evaluate(K, y, likelihood, n_samples=4096, seed=seed).posterior for seed in range(n_seeds)]
    found = np.mean([posterior.predict(K_cross, k_diag) for posterior in posteriors], axis=0)
    np.testing.assert_allclose(found[0], mean, atol=10.0 * atol)
    np.testing.assert_allclose(found[1], variance, rtol=0.05)
    average = np.mean([mixture_average(q, likelihood, K_cross, k_diag) for q in posteriors], axis=0)
    np.testing.assert_allclose(average, p, atol=atol)
    if isinstance(likelihood, LabelNoise):  # EP is wrong by 0.014
        ep = likelihood.average(*posteriors[0].ep.predict(K_cross, k_diag))
        assert np.abs(average - p).max() < 0.5 * np.abs(ep - p).max()


def mixture_average(posterior, likelihood, K_cross, k_diag):
    weights, means, within = posterior.predict_mixture(K_cross, k_diag)
    return weights @ likelihood.average(means, np.broadcast_to(within, means.shape))


@likelihoods
def test_class_probabilities_are_averages_over_the_samples(likelihood, monkeypatch):
    """Through the model, by blocks of rows, averaged over draws and for each."""
    X, y, new, *_, p, _, _ = small_problem(likelihood)
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 100_000)  # two rows at a time
    model = Model(X, y, kernel=SquaredExponential(length_scale=1.0), likelihood=likelihood).with_evidence("sampled")
    draws = np.array([[4.0], [4.0]])
    np.testing.assert_allclose(predict.probabilities(model, draws, new)[:, 1], p, atol=0.02)
    each = predict.probabilities_per_draw(model, draws, new)
    np.testing.assert_allclose(each[0].sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(each.mean(axis=0), predict.probabilities(model, draws, new), rtol=1e-12)


def test_moments_at_the_training_inputs_are_those_of_the_samples():
    _, y, K = classification_problem(25, 2)
    posterior = evaluate(K, y, LabelNoise(0.1)).posterior
    f = posterior.ep.f + posterior.z @ posterior.root.A.T
    mean, variance = posterior.predict(K, np.diag(K))
    np.testing.assert_allclose(mean, posterior.weights @ f, atol=1e-8)
    np.testing.assert_allclose(variance, posterior.weights @ (f - mean) ** 2, rtol=1e-6)
    weights, means, within = posterior.predict_mixture(K, np.diag(K))
    np.testing.assert_allclose(means, f, atol=1e-6)
    np.testing.assert_allclose(within, 0.0, atol=1e-8)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)


def test_what_the_posterior_can_do():
    _, y, K = classification_problem(10, 2)
    posterior = evaluate(K, y, Logistic()).posterior
    for protocol in (SupportsLatentMixture, SupportsStandardError, SupportsLeaveOneOut):
        assert isinstance(posterior, protocol)
    ep = EP()(K, y, Logistic(), gradient=False).posterior
    assert not isinstance(ep, SupportsLatentMixture)
    np.testing.assert_array_equal(posterior.cavity(), ep.cavity())
    np.testing.assert_array_equal(posterior.start_with(np.zeros(2), np.ones(2)), ep.start_with(np.zeros(2), np.ones(2)))


# -- refusals --------------------------------------------------------------------------------------------------------


def test_there_is_no_gradient():
    X, y, K = classification_problem(10, 2)
    model = Model(X, y, evidence="sampled")
    calls = [
        lambda: LatentSampling()(K, y, Logistic()),
        lambda: model.evaluate(np.zeros(model.n_dim)),
        lambda: GPClassifier(evidence="sampled", draws=5, tune=5, chains=1, progressbar=False).fit(X, y),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match=r"no gradient to follow: sample or maximise .* evidence='ep'"):
            call()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tol": 0.0}, "'tol' of LatentSampling must lie between 0 and 1"),
        ({"n_samples": 0}, "'n_samples' of LatentSampling must be an integer >= 1"),
        ({"n_samples": 4096, "max_samples": 2048}, "'max_samples' of LatentSampling must be an integer >= 4096"),
        ({"dof": 1.0}, "'dof' of LatentSampling must be a number above 2"),
        ({"seed": -1}, "'seed' of LatentSampling must be an integer >= 0"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(InvalidInput, match=message):
        LatentSampling(**settings)


def test_it_is_offered_for_no_fit():
    with pytest.raises(InvalidInput) as caught:
        Model(np.zeros((4, 1)), np.array([1.0, -1.0, 1.0, -1.0]), likelihood="probit", evidence="lower")
    assert "evidence='ep'" in str(caught.value)
    assert "sampled" not in str(caught.value)
