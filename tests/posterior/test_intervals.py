"""Intervals of probabilities, against samples of the mixture; joint samples, against their covariances."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.special import expit, ndtr
from scipy.stats import kstest, norm

from hmcgp.errors import InvalidInput
from hmcgp.evidence import EP, TAP, Laplace, LowerBound, NaiveMeanField, UpperBound
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import LabelNoise, Logistic, MultinomialProbit, Probit, Softmax
from hmcgp.model import Model
from hmcgp.posterior import intervals, joint, mixture, over_draws, predict, row_blocks
from hmcgp.posterior.weights import WeightedDraws
from tests.helpers.checks import classification_problem, several_classes

X, Y, _ = classification_problem(30, 2, seed=3)
NEW = np.random.default_rng(5).normal(size=(6, 2)) * 2.0
RNG = np.random.default_rng(6)
THETA = np.exp(RNG.normal(0.5, 0.4, size=(40, 3)))
WEIGHT = np.exp(0.7 * RNG.normal(size=40))
DRAWS = WeightedDraws(THETA, WEIGHT / WEIGHT.mean())
FLIPS = WeightedDraws(np.column_stack([THETA, RNG.uniform(0.01, 0.2, size=40)]), DRAWS.weight)

CLASSES_X, CLASSES_Y, _ = several_classes(30, 3)
CLASSES_THETA = np.exp(RNG.normal(0.3, 0.3, size=(40, 3)))


def sampled(model, draws, n=10**6, seed=0):
    """Probabilities of the classes at each new input, of shape (n, m, C), of so many samples of the mixture."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, draws.weight / draws.total)
    mean, variance = predict.latent_moments(model, draws, NEW)
    parts = []
    for theta, m, v, count in zip(draws.theta, mean, variance, counts, strict=True):
        f = m + np.sqrt(v) * rng.normal(size=(count, len(m)))
        parts.append(model.likelihood_at(theta).probabilities_given(f))
    return np.concatenate(parts)


BINARY = [
    (Logistic(), "laplace", DRAWS),
    (Probit(), "ep", DRAWS),
    (LabelNoise(flip=0.1), "ep", DRAWS),
    (LabelNoise(), "ep", FLIPS),
]


@pytest.mark.parametrize(("likelihood", "evidence", "draws"), BINARY, ids=["logistic", "probit", "noise", "rates"])
def test_two_classes_against_a_million_samples(likelihood, evidence, draws):
    model = Model(X, Y, likelihood=likelihood, evidence=evidence)
    found = intervals.probability_intervals(model, draws, NEW, 0.8)
    assert found.shape == (len(NEW), 2, 2)
    p = sampled(model, draws)
    for c in range(2):
        below, above = (p[:, :, c] < found[:, c, 0]).mean(axis=0), (p[:, :, c] > found[:, c, 1]).mean(axis=0)
        np.testing.assert_allclose([below, above], 0.1, atol=4 * np.sqrt(0.09 / len(p)))  # four standard errors


def test_two_classes_are_accurate_to_all_digits():
    model = Model(X, Y)
    mean, variance = predict.latent_moments(model, DRAWS, NEW)
    low, high = intervals.probability_intervals(model, DRAWS, NEW, 0.9)[:, 1].T
    for end, share in ((low, 0.05), (high, 0.95)):
        z = (np.log(end) - np.log1p(-end) - mean) / np.sqrt(variance)
        np.testing.assert_allclose(DRAWS.weight @ ndtr(z) / DRAWS.total, share, rtol=1e-9)


def test_rates_of_flips_that_vary_are_solved_for():
    """Σ w Φ((Φ⁻¹((p - ε)/(1 - 2ε)) - μ)/σ) is the level, and with rates that are nearly the same nothing jumps."""
    model = Model(X, Y, likelihood=LabelNoise(), evidence="ep")
    found = intervals.probability_intervals(model, FLIPS, NEW, 0.6)
    mean, variance = predict.latent_moments(model, FLIPS, NEW)
    flip = FLIPS.theta[:, -1:]
    for i, share in enumerate((0.2, 0.8)):
        clean = np.clip((found[:, 1, i] - flip) / (1.0 - 2.0 * flip), 0.0, 1.0)
        cdf = FLIPS.weight @ ndtr((norm.ppf(clean) - mean) / np.sqrt(variance)) / FLIPS.total
        np.testing.assert_allclose(cdf, share, atol=1e-8)
    np.testing.assert_allclose(found[:, 0], 1.0 - found[:, 1, ::-1], rtol=1e-12)
    same = FLIPS.theta.copy()
    same[:, -1] = 0.1
    nearly = same.copy()
    nearly[0, -1] += 1e-12
    one, other = (
        intervals.probability_intervals(model, WeightedDraws(theta, FLIPS.weight), NEW, 0.6) for theta in (same, nearly)
    )
    np.testing.assert_allclose(other, one, atol=1e-7)


def test_steps_of_different_heights():
    """Behind a step, p is ε_s or 1 - ε_s: quantiles are among these numbers."""
    links = intervals._NoisyLinks(np.array([[0.1], [0.2]]), True)
    mean, variance = np.array([[-1.0, 2.0], [-1.0, 2.0]]), np.ones((2, 2))
    # P(f < 0) is 0.84 and 0.023; the four values are 0.1, 0.2, 0.8, 0.9 with half of it each
    q = np.array([0.3, 0.6, 0.9, 0.95])
    found = mixture.quantiles(q, mean, variance, None, links)
    np.testing.assert_allclose(found[:, 0], [0.1, 0.2, 0.8, 0.9], atol=1e-9)
    np.testing.assert_allclose(found[:, 1], [0.8, 0.9, 0.9, 0.9], atol=1e-9)


def test_a_higher_level_holds_a_lower_one_and_one_draw_is_its_own_interval():
    model = Model(X, Y)
    inner, outer = (intervals.probability_intervals(model, DRAWS, NEW, level) for level in (0.5, 0.95))
    assert (outer[..., 0] < inner[..., 0]).all()
    assert (inner[..., 1] < outer[..., 1]).all()
    mean, variance = predict.latent_moments(model, THETA[:1], NEW)
    low, high = intervals.probability_intervals(model, THETA[:1], NEW, 0.9)[:, 1].T
    half = norm.ppf(0.95) * np.sqrt(variance[0])
    np.testing.assert_allclose([low, high], expit([mean[0] - half, mean[0] + half]), rtol=1e-8)


# -- several classes -------------------------------------------------------------------------------------------------


def classes_model(likelihood):
    return Model(CLASSES_X, CLASSES_Y, kernel=SquaredExponential(ard=True), likelihood=likelihood)


@pytest.mark.parametrize("likelihood", [Softmax(), MultinomialProbit()])
def test_several_classes_against_samples(likelihood):
    model, draws = classes_model(likelihood), WeightedDraws(CLASSES_THETA, DRAWS.weight)
    found = intervals.probability_intervals(model, draws, NEW, 0.8)
    assert found.shape == (len(NEW), 3, 2)
    rng, n = np.random.default_rng(1), 20000
    chosen = np.sort(rng.choice(40, size=n, p=draws.weight / draws.total))
    f = np.empty((n, len(NEW), 3))
    for s in np.unique(chosen):
        kernel, evidence = model.posterior(draws.theta[s])
        mean, covariance = evidence.posterior.predict(kernel(CLASSES_X, NEW), kernel.diag(NEW))
        z = rng.normal(size=((chosen == s).sum(), len(NEW), 3))
        f[chosen == s] = mean + np.einsum("mab,smb->sma", np.linalg.cholesky(covariance), z)
    p = likelihood.probabilities_given(f)
    below, above = (p < found[..., 0]).mean(axis=0), (p > found[..., 1]).mean(axis=0)
    np.testing.assert_allclose([below, above], 0.1, atol=4 * np.sqrt(0.09 / n) + 2e-3)


def test_the_number_of_classes_is_not_read_off_the_inputs():
    model, draws = classes_model(Softmax()), WeightedDraws(CLASSES_THETA, DRAWS.weight)
    alone = intervals.probability_intervals(model, draws, np.array([[-1.5, -1.2]]), 0.8)
    beside = intervals.probability_intervals(model, draws, np.array([[-1.5, -1.2], [7.0, 9.0]]), 0.8)
    np.testing.assert_allclose(alone[0], beside[0], rtol=1e-12)


def test_two_classes_of_a_softmax_are_the_logistic_ones():
    """f_1 - f_0 of a softmax with K/2 for each is the latent function of the logistic model with K."""
    halves = THETA.copy()
    halves[:, 0] *= 0.5
    exact = intervals.probability_intervals(Model(X, Y, kernel=SquaredExponential(ard=True)), DRAWS, NEW, 0.8)
    two = Model(X, (Y + 1.0) / 2.0, kernel=SquaredExponential(ard=True), likelihood=Softmax())
    found = intervals.probability_intervals(two, WeightedDraws(halves, DRAWS.weight), NEW, 0.8)
    np.testing.assert_allclose(found, exact, atol=5e-3)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_multinomial_probit_given_latent_values(n_classes):
    f = 3.0 * np.random.default_rng(2).normal(size=(50, n_classes))
    likelihood = MultinomialProbit(n_classes=n_classes)
    expected = [likelihood.log_prob(np.full(50, c), f) for c in range(n_classes)]
    np.testing.assert_allclose(likelihood.probabilities_given(f).T, np.exp(expected), atol=1e-8)


def test_memory_of_intervals_does_not_grow_with_draws_times_rows(monkeypatch):
    model, rows = classes_model(Softmax()), np.random.default_rng(3).normal(size=(100, 2))
    whole = intervals.probability_intervals(model, CLASSES_THETA, rows, 0.9, n_jobs=1)
    held = 10 * 4 * 8 * 3 * intervals.BINS  # ten rows
    monkeypatch.setattr(over_draws, "HELD_BYTES", held)
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 2**16)
    monkeypatch.setattr(intervals, "_NUMBERS", 2**12)
    tracemalloc.start()
    try:
        parts = intervals.probability_intervals(model, CLASSES_THETA, rows, 0.9, n_jobs=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(parts, whole, rtol=1e-9)
    assert peak < held + 2**20  # points and temporary arrays; histograms of all rows at once would take 5 MB


# -- joint samples ---------------------------------------------------------------------------------------------------

GAUSSIANS = [Laplace(), EP(), TAP(), NaiveMeanField(), LowerBound(), UpperBound()]


@pytest.mark.parametrize("evidence", GAUSSIANS, ids=lambda e: type(e).__name__)
def test_joint_predictions_of_labels_have_the_marginals_of_single_ones(evidence):
    """And pairs of rows have the covariance that polarisation of variances gives: cov(a, b) = (v_{a+b} - v_{a-b})/4."""
    model = Model(X, Y, likelihood=Logistic() if not isinstance(evidence, TAP | NaiveMeanField) else Probit())
    kernel, found = model.with_evidence(evidence).posterior(THETA[0])
    K_cross, K_new = kernel(X, NEW), kernel(NEW)
    mean, covariance = found.posterior.predict_jointly(K_cross, K_new)
    single, variance = found.posterior.predict(K_cross, np.diag(K_new))
    np.testing.assert_allclose(mean, single, rtol=1e-12)
    np.testing.assert_allclose(np.diag(covariance), variance, rtol=1e-9, atol=1e-12)
    # a sum or difference of latent values is Gaussian too, with such cross-covariances
    ends = [
        found.posterior.predict(
            K_cross[:, :1] + sign * K_cross[:, 1:2], [K_new[0, 0] + K_new[1, 1] + 2 * sign * K_new[0, 1]]
        )
        for sign in (1, -1)
    ]
    np.testing.assert_allclose(covariance[0, 1], (ends[0][1][0] - ends[1][1][0]) / 4.0, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("likelihood", [Softmax(), MultinomialProbit()])
@pytest.mark.parametrize("per_class", [False, True])
def test_joint_predictions_of_classes(likelihood, per_class):
    """Against (K⁻¹ + W)⁻¹ itself, W coupling the classes of each row, at the training rows and new ones."""
    kernel = [SquaredExponential()] * 3 if per_class else SquaredExponential()
    model = Model(CLASSES_X, CLASSES_Y, kernel=kernel, likelihood=likelihood)
    theta = np.array([2.0, 1.0, 3.0, 0.7, 1.5, 1.2]) if per_class else np.array([2.0, 1.0])
    k, found = model.posterior(theta)
    mean, covariance = found.posterior.predict_jointly(k(CLASSES_X, NEW), k(NEW))
    single, blocks = found.posterior.predict(k(CLASSES_X, NEW), k.diag(NEW))
    np.testing.assert_allclose(mean, single, rtol=1e-12)
    np.testing.assert_allclose(np.einsum("iaib->iab", covariance), blocks, rtol=1e-9, atol=1e-12)
    n, m = len(CLASSES_X), len(NEW)
    everything = np.vstack([CLASSES_X, NEW])
    K = np.broadcast_to(k(everything), (3, n + m, n + m))
    prior = np.zeros((n + m, 3, n + m, 3))
    W = np.zeros((n + m, 3, n + m, 3))
    for c in range(3):
        prior[:, c, :, c] = K[c]
    for i, site in enumerate(found.posterior.site_precision()):
        W[i, :, i, :] = site
    flat, sites = prior.reshape(3 * (n + m), -1), W.reshape(3 * (n + m), -1)
    full = np.linalg.solve(np.eye(len(sites)) + flat @ sites, flat).reshape(n + m, 3, n + m, 3)
    np.testing.assert_allclose(covariance, full[n:, :, n:, :], atol=1e-9)


def test_samples_of_probabilities_are_joint_and_follow_the_intervals():
    """One draw many times over: latent values have the posterior's covariance, and their shares the levels."""
    model, S = Model(X, Y, evidence="ep"), 4000
    rows = np.vstack([NEW, NEW[:1] + 1e-6, NEW[:1] + 0.3])
    p = joint.probability_samples(model, np.repeat(THETA[:1], S, axis=0), rows, 0)
    assert p.shape == (S, 8, 2)
    f = np.log(p[:, :, 1]) - np.log(p[:, :, 0])
    kernel, found = model.posterior(THETA[0])
    mean, covariance = found.posterior.predict_jointly(kernel(X, rows), kernel(rows))
    np.testing.assert_allclose(f[:, 6], f[:, 0], atol=1e-3)  # the same place
    deviation = f[:, 7] - f[:, 0] - mean[7] + mean[0]
    independent = covariance[7, 7] + covariance[0, 0]
    assert kstest(deviation / np.sqrt(independent - 2.0 * covariance[7, 0]), "norm").pvalue > 0.001
    assert kstest(deviation / np.sqrt(independent), "norm").pvalue < 1e-6  # the negative control
    interval = intervals.probability_intervals(model, THETA[:1], rows, 0.8)
    np.testing.assert_allclose((p < interval[..., 0]).mean(axis=0), 0.1, atol=4 * np.sqrt(0.09 / S))


def test_samples_are_reproducible_and_follow_the_weights():
    model = Model(X, Y)
    one, two = (joint.probability_samples(model, DRAWS, NEW, 3, n_jobs=k) for k in (1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, joint.probability_samples(model, DRAWS, NEW, 4))
    weight = np.zeros(40)
    weight[7] = 40.0
    only = joint.probability_samples(model, WeightedDraws(THETA, weight), NEW, 3)
    repeated = joint.probability_samples(model, np.repeat(THETA[7:8], 40, axis=0), NEW, 3)
    np.testing.assert_allclose(only, repeated, rtol=1e-9)


@pytest.mark.parametrize("likelihood", [Softmax(), MultinomialProbit()])
def test_samples_of_several_classes_follow_the_intervals(likelihood):
    model, S = classes_model(likelihood), 1500
    theta = CLASSES_THETA[:1]
    p = joint.probability_samples(model, np.repeat(theta, S, axis=0), NEW, 0)
    assert p.shape == (S, 6, 3)
    np.testing.assert_allclose(p.sum(axis=2), 1.0, rtol=1e-12)
    interval = intervals.probability_intervals(model, theta, NEW, 0.8)
    np.testing.assert_allclose((p < interval[..., 0]).mean(axis=0), 0.1, atol=4 * np.sqrt(0.09 / S) + 2e-3)


def test_a_posterior_without_covariances_is_refused():
    class Lonely:
        def __init__(self, posterior):
            self.start, self.predict = posterior.start, posterior.predict

    class Marginal(Laplace):
        def __call__(self, *args, **settings):
            found = super().__call__(*args, **settings)
            return found._replace(posterior=Lonely(found.posterior))

    model = Model(X, Y).with_evidence(Marginal())
    with pytest.raises(InvalidInput, match="Marginal predicts no covariances between new inputs"):
        joint.probability_samples(model, DRAWS, NEW)
