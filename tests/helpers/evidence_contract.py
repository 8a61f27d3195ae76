"""Checks that every pair of evidence provider and likelihood must pass, and the list of the pairs."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp.evidence import EP, TAP, Exact, Laplace, LowerBound, NaiveMeanField, UpperBound
from hmcgp.likelihoods import Gaussian, LabelNoise, Logistic, Probit
from tests.helpers.checks import check_gradient, classification_problem, random_symmetric, squared_exponential

SMOOTH, STEP = LabelNoise(0.05), LabelNoise(0.1, link="step")
PAIRS = [
    (Laplace(), Logistic()),
    (Laplace(), Probit()),
    (Laplace(newton="conjugate_gradients"), Logistic()),
    (Laplace(newton="conjugate_gradients"), Probit()),
    (Exact(), Gaussian(1.0)),
    (LowerBound(), Logistic()),
    (UpperBound(), Logistic()),
    *((EP(), lik) for lik in (Logistic(), Probit(), SMOOTH, STEP)),
    *((EP(sweeps="sequential"), lik) for lik in (Logistic(), Probit(), SMOOTH, STEP)),
    *((TAP(), lik) for lik in (Probit(), SMOOTH, STEP)),
    *((NaiveMeanField(), lik) for lik in (Probit(), SMOOTH, STEP)),
]
IDS = [f"{p}-{lik}" for p, lik in PAIRS]


def soft(K, likelihood):
    """The prior with the White term that a step wants, so that rows close to each other may differ."""
    return K + 0.5 * np.eye(len(K)) if likelihood == STEP else K


def dK_matches_central_differences(provider, likelihood, n):
    _, y, K = classification_problem(n, 2, seed=n)
    K = soft(K, likelihood)
    K = K + 0.1 * np.eye(n)  # so that K ± hV stays a covariance
    dK = provider(K, y, likelihood).dK
    rng = np.random.default_rng(1)
    for _ in range(5):
        V = random_symmetric(rng, n)
        h = 1e-5
        up1, down1, up2, down2 = (provider(K + c * h * V, y, likelihood).log_z for c in (1.0, -1.0, 2.0, -2.0))
        numeric = (8.0 * (up1 - down1) - (up2 - down2)) / (12.0 * h)  # behind a step, log Z bends too much for two
        np.testing.assert_allclose(np.sum(dK * V), numeric, rtol=1e-7, atol=1e-8)


def dK_is_symmetric_to_the_last_bit(provider, likelihood):
    _, y, K = classification_problem(70, 3)
    K = soft(K, likelihood)
    dK = provider(K, y, likelihood).dK
    np.testing.assert_array_equal(dK, dK.T)


def inputs_are_not_changed(provider, likelihood):
    _, y, K = classification_problem(20, 3)
    K = soft(K, likelihood)
    K0, y0 = K.copy(), y.copy()
    start = np.full(provider(K, y, likelihood).posterior.start.shape, 0.3)
    provider(K, y, likelihood, start)
    np.testing.assert_array_equal(K, K0)
    np.testing.assert_array_equal(y, y0)
    np.testing.assert_array_equal(start, 0.3)


def order_of_the_data_does_not_matter(provider, likelihood):
    _, y, K = classification_problem(30, 2)
    K = soft(K, likelihood)
    order = np.random.default_rng(5).permutation(30)
    one, two = provider(K, y, likelihood), provider(K[np.ix_(order, order)], y[order], likelihood)
    np.testing.assert_allclose(two.log_z, one.log_z, rtol=1e-12)
    np.testing.assert_allclose(two.dK, one.dK[np.ix_(order, order)], atol=1e-10)


def exchanging_the_labels_changes_nothing(provider, likelihood):
    _, y, K = classification_problem(30, 2)
    K = soft(K, likelihood)
    one, two = provider(K, y, likelihood), provider(K, -y, likelihood)
    np.testing.assert_allclose(two.log_z, one.log_z, rtol=1e-13)
    np.testing.assert_allclose(two.dK, one.dK, atol=1e-12)


def a_vanishing_prior_leaves_coin_tosses(provider, likelihood):
    """f = 0 everywhere: what is left is the likelihood there, ½ for every label."""
    if likelihood == STEP:
        pytest.skip("only the sign of f matters behind a step: no prior vanishes; see test_ep.py")
    _, y, K = classification_problem(30, 2)
    K = soft(K, likelihood)
    alone = likelihood.log_prob(y, np.zeros(30)).sum()
    np.testing.assert_allclose(provider(1e-12 * K, y, likelihood).log_z, alone, rtol=1e-9)
    if likelihood.targets == "labels":
        np.testing.assert_allclose(alone, 30 * np.log(0.5), rtol=1e-14)


def derivatives_in_the_parameters_of_the_likelihood(provider, likelihood):
    _, y, K = classification_problem(20, 2)
    K = soft(K, likelihood) + 0.1 * np.eye(20)
    values = np.array([p.value for p in likelihood.parameters(["a", "b"])])

    def log_z(x):
        ev = provider(K, y, likelihood.with_values(x.tolist()))
        return ev.log_z, ev.dlik

    assert log_z(values)[1].shape == values.shape
    check_gradient(log_z, values)


def cold_and_warm_starts_agree(provider, likelihood, scale):
    X, y, K = classification_problem(40, 2)
    K = soft(K, likelihood)
    near = soft(squared_exponential(X, 3.0 * scale, 1.4), likelihood)
    start = provider(near, y, likelihood).posterior.start
    cold, warm = provider(K, y, likelihood), provider(K, y, likelihood, start)
    np.testing.assert_allclose(warm.log_z, cold.log_z, rtol=1e-12)
    np.testing.assert_allclose(warm.dK, cold.dK, atol=1e-9)
    assert warm.residual <= 1e-9


def starting_at_the_answer_gives_it_again(provider, likelihood):
    """A sampler that rejects evaluates the same point again, from its own solution."""
    _, y, K = classification_problem(40, 2)
    K = soft(K, likelihood)
    cold = provider(K, y, likelihood)
    warm = provider(K, y, likelihood, cold.posterior.start)
    np.testing.assert_allclose(warm.log_z, cold.log_z, rtol=1e-13)
    np.testing.assert_allclose(warm.dK, cold.dK, atol=1e-11)


def an_absurd_start_is_survived(provider, likelihood, start):
    _, y, K = classification_problem(40, 2)
    K = soft(K, likelihood)
    cold = provider(K, y, likelihood)
    warm = provider(K, y, likelihood, np.full(cold.posterior.start.shape, start))
    np.testing.assert_allclose(warm.log_z, cold.log_z, rtol=1e-12)


def prediction_at_the_training_inputs_is_the_posterior(provider, likelihood):
    _, y, K = classification_problem(25, 2)
    K = soft(K, likelihood)
    ev = provider(K, y, likelihood, gradient=False)
    mean, variance = ev.posterior.predict(K, np.diag(K))
    np.testing.assert_allclose(mean, ev.posterior.f, atol=1e-9)
    if isinstance(provider, UpperBound):  # a linear tilt moves the prior, and leaves its covariance
        np.testing.assert_array_equal(variance, np.diag(K))
    else:
        assert ((variance > 0.0) & (variance < np.diag(K))).all()


def without_the_gradient_the_value_is_the_same(provider, likelihood):
    _, y, K = classification_problem(25, 2)
    K = soft(K, likelihood)
    assert provider(K, y, likelihood, gradient=False).log_z == provider(K, y, likelihood).log_z


CHECKS = [
    dK_is_symmetric_to_the_last_bit,
    inputs_are_not_changed,
    order_of_the_data_does_not_matter,
    exchanging_the_labels_changes_nothing,
    a_vanishing_prior_leaves_coin_tosses,
    derivatives_in_the_parameters_of_the_likelihood,
    starting_at_the_answer_gives_it_again,
    prediction_at_the_training_inputs_is_the_posterior,
    without_the_gradient_the_value_is_the_same,
]
