"""Laplace's approximation behind counts, successes and ordered levels."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp.errors import NotConverged
from hmcgp.evidence import Laplace
from hmcgp.evidence.low_rank import LowRank
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Binomial, Logistic, NegativeBinomial, Ordinal, Poisson
from tests.helpers.responses import check_both_gradients, grid_log_evidence, response_problem

NAMES = ["poisson", "negative_binomial", "binomial", "ordinal"]
each = pytest.mark.parametrize("name", NAMES)
WEIGHTS = np.random.default_rng(3).uniform(0.4, 2.5, 40)


@each
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [3, 12, 40])
def test_gradients_match_central_differences(name, n, weighted):
    _, y, K, likelihood = response_problem(name, n, seed=n)
    likelihood = likelihood.weighted(WEIGHTS[:n]) if weighted else likelihood
    check_both_gradients(Laplace(), K, y, likelihood, directions=3, tolerance=1e-7)


@each
@pytest.mark.parametrize("n", [1, 2, 3])
def test_log_evidence_is_close_to_brute_force(name, n):
    """Laplace's own error is some hundredths of a nat a row here; quadrature has none of it."""
    _, y, K, likelihood = response_problem(name, n, seed=5)
    exact = grid_log_evidence(K, y, likelihood)
    assert abs(Laplace()(K, y, likelihood).log_z - exact) < 0.05 * n


@each
def test_the_error_vanishes_as_the_prior_narrows(name):
    """log Z is off by O(K²), so that a tenth of K has about a hundredth of the error."""
    _, y, K, likelihood = response_problem(name, 2, seed=6)
    wide, narrow = (
        abs(Laplace()(s * K, y, likelihood).log_z - grid_log_evidence(s * K, y, likelihood)) for s in (0.01, 0.001)
    )
    assert narrow < 0.03 * wide + 1e-9


@each
def test_any_start_leads_to_the_same_answer(name):
    _, y, K, likelihood = response_problem(name, 40)
    cold = Laplace()(K, y, likelihood)
    for start in (cold.posterior.start, np.full(40, 50.0), np.full(40, -1e3), np.full(40, 1e3)):
        warm = Laplace()(K, y, likelihood, start)
        np.testing.assert_allclose(warm.log_z, cold.log_z, rtol=1e-12)
        np.testing.assert_allclose(warm.dK, cold.dK, atol=1e-8)
    assert Laplace()(K, y, likelihood, gradient=False).log_z == cold.log_z


@each
def test_order_of_the_data_does_not_matter(name):
    _, y, K, likelihood = response_problem(name, 30)
    order = np.random.default_rng(5).permutation(30)
    other = likelihood
    if hasattr(likelihood, "sizes"):
        other = likelihood.at_sizes(likelihood.sizes(30)[order])
    one, two = Laplace()(K, y, likelihood), Laplace()(K[np.ix_(order, order)], y[order], other)
    np.testing.assert_allclose(two.log_z, one.log_z, rtol=1e-12)
    np.testing.assert_allclose(two.dK, np.asarray(one.dK)[np.ix_(order, order)], atol=1e-9)


@each
def test_one_factorisation_is_not_enough(name):
    _, y, K, likelihood = response_problem(name, 20)
    with pytest.raises(NotConverged, match=r"decrement .* after 1 factorisation"):
        Laplace(max_iter=1)(K, y, likelihood)


@each
@pytest.mark.parametrize("weighted", [False, True])
def test_low_rank_agrees_with_its_dense_matrix(name, weighted):
    X, y, _, likelihood = response_problem(name, 40)
    likelihood = likelihood.weighted(WEIGHTS) if weighted else likelihood
    kernel = SquaredExponential(1.5, 1.2)
    K, k, _ = kernel.inducing_vjp(np.vstack([X[:8], X]), X[:8])
    C = LowRank.of(K, k)
    low, dense = Laplace()(C, y, likelihood), Laplace()(C.dense(), y, likelihood)
    np.testing.assert_allclose(low.log_z, dense.log_z, rtol=1e-10)
    np.testing.assert_allclose(low.dlik, dense.dlik, atol=1e-8)
    np.testing.assert_allclose(low.posterior.start, dense.posterior.start, atol=1e-8)


@each
def test_cavities_predict_rows_as_refits_without_them_do(name):
    """Linear response: to first order in what a row adds."""
    _, y, K, likelihood = response_problem(name, 40)
    mean, variance = Laplace()(K, y, likelihood, gradient=False).posterior.cavity()
    i, keep = 7, np.delete(np.arange(40), 7)
    rest = likelihood.at_sizes(likelihood.sizes(40)[keep]) if hasattr(likelihood, "sizes") else likelihood
    K_rest = np.ascontiguousarray(K[np.ix_(keep, keep)])
    m, v = Laplace()(K_rest, y[keep], rest, gradient=False).posterior.predict(K[keep][:, [i]], K[i, [i]])
    np.testing.assert_allclose([mean[i], variance[i]], [m[0], v[0]], atol=0.12)


@pytest.mark.parametrize("variance", [1.0, 1e2, 1e4])
def test_counts_from_1_to_100000_converge(variance):
    """In few steps, however K is rounded: that y f and exp f are large and cancel must not look like a fall of Ψ."""
    _, _, K, _ = response_problem("poisson", 30)
    y = np.round(np.exp(np.linspace(0.0, 12.0, 30)))
    rng = np.random.default_rng(0)
    for likelihood in (Poisson(offset=6.0), NegativeBinomial(0.01, offset=6.0)):
        for _ in range(10):
            rounding = np.tril(1.0 + 1e-15 * rng.normal(size=K.shape), -1)
            found = Laplace()(variance / K[0, 0] * K * (rounding + rounding.T + np.eye(len(K))), y, likelihood)
            assert np.isfinite(found.log_z)
            assert found.n_iter < 15


def test_poisson_is_that_of_gpy():
    """GPy 1.15.0: RBF of variance 1.5 and length scale 1.2 plus White of 0.1, Laplace."""
    X, y, K, _ = response_problem("poisson", 30)
    found = Laplace()(K, y, Poisson())
    smooth, distances = K - 0.1 * np.eye(30), np.sum((X[:, None] - X[None]) ** 2, axis=2)
    gradient = [np.sum(found.dK * dK) for dK in (smooth / 1.5, smooth * distances / 1.2**3, np.eye(30))]
    np.testing.assert_allclose(found.log_z, -93.2584743548546, rtol=1e-8)
    np.testing.assert_allclose(gradient, [2.72502333742719, 1.27362520643337, 30.4172293268572], rtol=1e-6)


@each
def test_few_factorisations_find_the_mode(name):
    """Of counts from about their logarithms, of others from 0."""
    for n in (40, 150):
        _, y, K, likelihood = response_problem(name, n)
        assert Laplace()(K, y, likelihood).n_iter <= 4


@pytest.mark.parametrize("variance", [4.0, 16.0, 64.0])
def test_a_wide_level_takes_few_steps(variance):
    """In the middle of a wide level W is smallest and does not change at first: that says nothing of a long step."""
    likelihood, y = Ordinal(("low", "middle", "high"), -4.0, [8.0]), np.repeat([1.0, 2.0], [200, 5])
    found = Laplace()(np.full((205, 205), variance) + 1e-6 * np.eye(205), y, likelihood)
    assert found.n_iter <= 3  # with a bound of first order, 4


def test_one_trial_each_is_the_logistic():
    _, y, K, _ = response_problem("binomial", 40)
    y = (y > np.median(y)).astype(float)
    one, two = Laplace()(K, y, Binomial()), Laplace()(K, 2.0 * y - 1.0, Logistic())
    np.testing.assert_allclose(one.log_z, two.log_z, rtol=1e-12)
    np.testing.assert_allclose(one.dK, two.dK, atol=1e-10)


def test_replicated_rows_in_one_are_as_many_rows():
    """Successes of trials are the rows of a classification, up to the number of their orders."""
    _, y, K, likelihood = response_problem("binomial", 12)
    rows = np.repeat(np.arange(12), likelihood.sizes(12).astype(int))
    trials = likelihood.sizes(12)
    labels = np.concatenate([np.repeat([1.0, -1.0], [int(k), int(n - k)]) for k, n in zip(y, trials, strict=True)])
    many = Laplace()(np.ascontiguousarray(K[np.ix_(rows, rows)]), labels, Logistic())
    few = Laplace()(K, y, Binomial(trials))
    constant = Binomial(trials).log_prob(y, np.zeros(12)).sum() + len(rows) * np.log(2.0)
    np.testing.assert_allclose(few.log_z, many.log_z + constant, rtol=1e-10)


def test_a_vanishing_dispersion_is_poisson():
    _, y, K, likelihood = response_problem("poisson", 40)
    narrow = NegativeBinomial(1e-8, likelihood.exposure, offset=likelihood.offset)
    np.testing.assert_allclose(Laplace()(K, y, narrow).log_z, Laplace()(K, y, likelihood).log_z, rtol=1e-6)
