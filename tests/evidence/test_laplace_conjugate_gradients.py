"""Laplace's approximation with Newton's systems solved by conjugate gradients: the answers of factorisations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hmcgp import GPClassifier, Model
from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import Laplace
from hmcgp.evidence.laplace import conjugate_gradients, mode_search
from hmcgp.evidence.low_rank import LowRank
from hmcgp.likelihoods import Logistic, Probit, StudentT
from tests.helpers.checks import PROBLEMS, classification_problem, squared_exponential
from tests.helpers.responses import check_both_gradients, response_problem

BY_PRODUCTS, DIRECT = Laplace(newton="conjugate_gradients"), Laplace()
WEIGHTS = np.random.default_rng(3).uniform(0.4, 2.5, 150)
RESPONSES = ["poisson", "negative_binomial", "binomial", "ordinal"]


def search(K, y, start=None):
    """Iterations, products and factorisations of the compiled search."""
    begin, warm = (y, False) if start is None else (start, True)
    lik = Logistic()
    args = K, y, lik.row_numbers(y), lik.row_weights(len(y)), lik.kind, begin, warm, 1e-10, 200, True
    status, n_iter, *_, products, n_factor = conjugate_gradients.solve(*args)
    assert status == 0
    return n_iter, products, n_factor, mode_search.solve(*args)[1]


def agree(one, two, atol=1e-8):
    np.testing.assert_allclose(one.log_z, two.log_z, rtol=0.0, atol=atol)
    np.testing.assert_allclose(one.posterior.f, two.posterior.f, atol=1e-7)
    np.testing.assert_allclose(one.dK, two.dK, atol=1e-8)
    np.testing.assert_allclose(one.dlik, two.dlik, atol=1e-7)


@pytest.mark.parametrize("likelihood", [Logistic(), Probit(), Logistic(weights=WEIGHTS)], ids=["logit", "probit", "w"])
def test_answers_are_those_of_factorisations(likelihood):
    X, y, K = classification_problem(150, 4)
    start = DIRECT(squared_exponential(X, 3.6, 1.3), y, likelihood).posterior.start
    for begin in (None, start, np.zeros(150), np.full(150, 1e3)):
        agree(BY_PRODUCTS(K, y, likelihood, begin), DIRECT(K, y, likelihood))


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_counts_and_levels(name, weighted):
    _, y, K, likelihood = response_problem(name, 40)
    likelihood = likelihood.weighted(WEIGHTS[:40]) if weighted else likelihood
    agree(BY_PRODUCTS(K, y, likelihood), DIRECT(K, y, likelihood))
    check_both_gradients(BY_PRODUCTS, K, y, likelihood, directions=2, tolerance=1e-7)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("length_scale", [1e-3, 0.1, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("variance", [1e-6, 1.0, 1e3, 1e8])
def test_survives_what_a_sampler_visits(problem, length_scale, variance):
    X, y, _ = classification_problem(24, 2, seed=2)
    X, y = PROBLEMS[problem](X, y)
    K = squared_exponential(X, variance, length_scale)
    one, two = BY_PRODUCTS(K, y, Logistic()), DIRECT(K, y, Logistic())
    np.testing.assert_allclose(one.log_z, two.log_z, rtol=1e-12, atol=1e-8 + 1e-15 * variance * len(y))  # of Kα
    scale = variance * np.abs(two.dK).max()
    np.testing.assert_allclose(variance * one.dK, variance * two.dK, rtol=0.0, atol=1e-7 * (1.0 + scale))


def test_one_factorisation_confirms_the_mode():
    X, y, K = classification_problem(150, 4)
    start = DIRECT(K, y, Logistic()).posterior.start
    near = squared_exponential(X, 3.1, 1.52)
    n_cold, cold, n_factor, direct = search(near, y)
    assert n_factor == 1
    assert direct >= 3
    n_warm, warm, n_factor, direct = search(near, y, start)
    assert n_factor == 1
    assert direct == 2
    assert n_warm < n_cold
    assert 10 < warm < 0.8 * cold < 80


def test_the_last_iterate_saves_products():
    """From where the mode already is, a few products, Kg among them, see that nothing is left."""
    _, y, K = classification_problem(150, 4)
    n_iter, products, n_factor, _ = search(K, y, DIRECT(K, y, Logistic()).posterior.start)
    assert (n_iter, n_factor) == (2, 1)
    assert products <= 8


def test_where_products_are_too_many_factorisations_take_over():
    X, y, _ = classification_problem(150, 4)
    K = squared_exponential(X, 1e6, 1.5)
    _, products, n_factor, _ = search(K, y)
    assert products >= 130  # 100 + n/5
    assert n_factor > 1
    np.testing.assert_allclose(BY_PRODUCTS(K, y, Logistic()).log_z, DIRECT(K, y, Logistic()).log_z, rtol=1e-9)


def test_matrices_that_are_no_covariances_are_typed_errors():
    y = np.array([1.0, -1.0, 1.0])
    for K in (np.full((3, 3), np.nan), np.array([[1.0, 30.0, 0.0], [30.0, 1.0, 0.0], [0.0, 0.0, 1.0]])):
        with pytest.raises((NotPositiveDefinite, NotConverged)):
            BY_PRODUCTS(K, y, Logistic())


def test_steps_are_counted():
    _, y, K = classification_problem(60, 3)
    with pytest.raises(NotConverged, match="after 2 steps and factorisations"):
        Laplace(max_iter=2, newton="conjugate_gradients")(K, y, Logistic())


@pytest.mark.parametrize("bad", ["products", None, ["cholesky"], True])
def test_other_names_are_refused(bad):
    with pytest.raises(InvalidInput, match="'newton' of Laplace must be 'cholesky' or 'conjugate_gradients'; got"):
        Laplace(newton=bad)


def test_what_is_not_known_is_refused_before_any_work():
    X, y, K = classification_problem(12, 2)
    heavy, low_rank = r"conjugate_gradients'\) does not know Student's t", r"knows dense covariances only, no inducing"
    with pytest.raises(InvalidInput, match=heavy):
        Model(X, X[:, 0], likelihood="student_t", evidence=BY_PRODUCTS)
    with pytest.raises(InvalidInput, match=heavy):
        BY_PRODUCTS(K, X[:, 0].copy(), StudentT(1.0, 4.0))
    with pytest.raises(InvalidInput, match=heavy):
        Model(X, X[:, 0], likelihood="student_t").with_evidence(BY_PRODUCTS)
    with pytest.raises(InvalidInput, match=low_rank):
        Model(X, y, evidence=BY_PRODUCTS, inducing=X[:4])
    with pytest.raises(InvalidInput, match=low_rank):
        BY_PRODUCTS(LowRank.of(np.ascontiguousarray(K[:, :4]), np.diag(K).copy()), y, Logistic())
    with pytest.raises(InvalidInput, match="Laplace cannot integrate Softmax"):
        Model(X, np.arange(12.0) % 3, likelihood="softmax", evidence=BY_PRODUCTS)


def test_an_estimator_keeps_the_setting(tmp_path):
    X, y, _ = classification_problem(40, 2)
    settings: dict[str, Any] = {"sampler": "map", "refine": None, "random_state": 0, "progressbar": False}
    gp = GPClassifier(evidence=BY_PRODUCTS, **settings).fit(X, y)
    assert gp.get_params()["evidence__newton"] == "conjugate_gradients"
    assert "newton='conjugate_gradients'" in repr(gp.model_)
    np.testing.assert_allclose(gp.predict_proba(X), GPClassifier(**settings).fit(X, y).predict_proba(X), atol=1e-6)
    gp.save(tmp_path / "gp.hmcgp")
    again = GPClassifier.load(tmp_path / "gp.hmcgp")
    assert again.evidence == BY_PRODUCTS
    assert again.model_.evidence == BY_PRODUCTS
    np.testing.assert_array_equal(again.predict_proba(X), gp.predict_proba(X))
