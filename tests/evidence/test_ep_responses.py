"""Expectation propagation behind counts, successes and ordered levels."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp.errors import NotConverged
from hmcgp.evidence import EP, Laplace
from hmcgp.evidence.low_rank import LowRank
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Binomial, Logistic, NegativeBinomial, Ordinal, Poisson, Probit
from tests.helpers.responses import check_both_gradients, grid_log_evidence, response_problem

each = pytest.mark.parametrize("name", ["poisson", "negative_binomial", "binomial", "ordinal"])
WEIGHTS = np.random.default_rng(3).uniform(0.4, 2.5, 40)


@each
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_match_central_differences(name, weighted):
    n = 12
    _, y, K, likelihood = response_problem(name, n, seed=n)
    likelihood = likelihood.weighted(WEIGHTS[:n]) if weighted else likelihood
    check_both_gradients(EP(), K, y, likelihood, directions=2, tolerance=1e-6)


@each
@pytest.mark.parametrize("n", [1, 2, 3])
def test_log_evidence_is_that_of_brute_force(name, n):
    """Of one row exactly; of several to a thousandth of a nat, a tenth of Laplace's error or less."""
    _, y, K, likelihood = response_problem(name, n, seed=5)
    exact = grid_log_evidence(K, y, likelihood)
    error = abs(EP()(K, y, likelihood).log_z - exact)
    assert error < (1e-8 if n == 1 else 1e-3)
    assert error < 0.1 * abs(Laplace()(K, y, likelihood).log_z - exact)


@each
def test_both_orders_of_sweeps_and_all_starts_have_one_answer(name):
    _, y, K, likelihood = response_problem(name, 30)
    found = EP()(K, y, likelihood)
    one_by_one = EP(sweeps="sequential")(K, y, likelihood)
    np.testing.assert_allclose(one_by_one.log_z, found.log_z, rtol=1e-9)
    np.testing.assert_allclose(one_by_one.dlik, found.dlik, rtol=1e-6, atol=1e-7)
    for start in (found.posterior.start, np.full(60, 0.3), np.full(60, 1e3)):
        warm = EP()(K, y, likelihood, start)
        np.testing.assert_allclose(warm.log_z, found.log_z, rtol=1e-10)
        np.testing.assert_allclose(warm.dK, found.dK, atol=1e-7)
    assert EP()(K, y, likelihood, gradient=False).log_z == found.log_z


@each
@pytest.mark.parametrize("weighted", [False, True])
def test_low_rank_agrees_with_its_dense_matrix(name, weighted):
    X, y, _, likelihood = response_problem(name, 40)
    likelihood = likelihood.weighted(WEIGHTS) if weighted else likelihood
    K, k, _ = SquaredExponential(1.5, 1.2).inducing_vjp(np.vstack([X[:8], X]), X[:8])
    C = LowRank.of(K, k)
    low, dense = EP()(C, y, likelihood), EP()(C.dense(), y, likelihood)
    np.testing.assert_allclose(low.log_z, dense.log_z, rtol=1e-9)
    np.testing.assert_allclose(low.dlik, dense.dlik, rtol=1e-6, atol=1e-7)
    for part, other in zip(low.posterior.cavity(), dense.posterior.cavity(), strict=True):
        np.testing.assert_allclose(part, other, atol=1e-7)


@each
def test_a_row_of_weight_two_is_that_row_twice(name):
    _, y, K, likelihood = response_problem(name, 10)
    twice = np.where(np.arange(10) % 3 == 0, 2.0, 1.0)
    rows = np.repeat(np.arange(10), twice.astype(int))
    repeated = likelihood.at_sizes(likelihood.sizes(10)[rows]) if hasattr(likelihood, "sizes") else likelihood
    one = EP()(K, y, likelihood.weighted(twice))
    two = EP()(np.ascontiguousarray(K[np.ix_(rows, rows)]), y[rows], repeated)
    np.testing.assert_allclose(one.log_z, two.log_z, rtol=1e-9)
    np.testing.assert_allclose(one.dlik, two.dlik, rtol=1e-6, atol=1e-8)


@each
def test_cavities_predict_rows_as_refits_without_them_do(name):
    _, y, K, likelihood = response_problem(name, 40)
    mean, variance = EP()(K, y, likelihood).posterior.cavity()
    i, keep = 7, np.delete(np.arange(40), 7)
    rest = likelihood.at_sizes(likelihood.sizes(40)[keep]) if hasattr(likelihood, "sizes") else likelihood
    K_rest = np.ascontiguousarray(K[np.ix_(keep, keep)])
    m, v = EP()(K_rest, y[keep], rest, gradient=False).posterior.predict(K[keep][:, [i]], K[i, [i]])
    np.testing.assert_allclose([mean[i], variance[i]], [m[0], v[0]], atol=0.01)


@each
def test_one_sweep_is_not_enough(name):
    _, y, K, likelihood = response_problem(name, 20)
    with pytest.raises(NotConverged, match=r"residual .* after 1 factorisation"):
        EP(max_iter=1)(K, y, likelihood)


def test_single_trials_are_the_logistic_and_two_levels_the_probit():
    _, y, K, _ = response_problem("binomial", 40)
    y = (y > np.median(y)).astype(float)
    pairs = [(Binomial(), Logistic()), (Ordinal(("a", "b"), 0.0), Probit())]
    for response, label in pairs:
        one, two = EP()(K, y, response), EP()(K, 2.0 * y - 1.0, label)
        np.testing.assert_allclose(one.log_z, two.log_z, rtol=1e-9)
        np.testing.assert_allclose(one.dK, two.dK, atol=1e-8)


@pytest.mark.parametrize("variance", [1.0, 1e2, 1e4])
def test_counts_from_1_to_100000_converge(variance):
    _, _, K, _ = response_problem("poisson", 30)
    y = np.round(np.exp(np.linspace(0.0, 12.0, 30)))
    for likelihood in (Poisson(offset=6.0), NegativeBinomial(0.01, offset=6.0)):
        assert np.isfinite(EP()(variance / K[0, 0] * K, y, likelihood).log_z)
