"""Probabilities of wrong labels, against brute force and on labels that were flipped on purpose."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from hmcgp import GPClassifier, Model
from hmcgp.errors import InvalidInput
from hmcgp.evidence import EP
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import LabelNoise
from hmcgp.posterior.label_noise import flip_probability

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def brute_force(K, y, flip):
    """P(flipped_i | y) by summing over true labels on a grid of latent values; probit link, n <= 3."""
    n = len(y)
    grid = np.stack(np.meshgrid(*[NODES] * n, indexing="ij"), axis=-1).reshape(-1, n)
    weight = np.stack(np.meshgrid(*[WEIGHTS] * n, indexing="ij"), axis=-1).reshape(-1, n).prod(axis=1)
    F = grid @ np.linalg.cholesky(K).T
    wrong, right = flip * ndtr(-y * F), (1.0 - flip) * ndtr(y * F)  # with the true label -y, and y
    out = np.empty(n)
    for i in range(n):
        others = np.prod(np.delete(wrong + right, i, axis=1), axis=1) * weight
        out[i] = others @ wrong[:, i] / (others @ (wrong + right)[:, i])
    return out


@pytest.mark.parametrize("flip", [0.02, 0.1, 0.4])
def test_independent_rows_are_exact(flip):
    """Without neighbours z = 0: nothing is known but the rate."""
    likelihood = LabelNoise(flip)
    y = np.array([1.0, -1.0])
    K = np.diag([2.0, 5.0])
    got = likelihood.flipped(y, *EP()(K, y, likelihood).posterior.cavity())
    np.testing.assert_allclose(got, brute_force(K, y, flip), rtol=1e-9)
    np.testing.assert_allclose(got, flip, rtol=1e-9)


@pytest.mark.parametrize("flip", [0.02, 0.1, 0.4])
@pytest.mark.parametrize("y", [[1.0, -1.0], [1.0, 1.0, -1.0], [-1.0, 1.0, -1.0]], ids=str)
def test_few_rows_against_brute_force(flip, y):
    y = np.array(y)
    x = np.array([0.0, 0.4, 0.9])[: len(y)]
    K = 4.0 * np.exp(-0.5 * (x[:, None] - x) ** 2)
    likelihood = LabelNoise(flip)
    got = likelihood.flipped(y, *EP()(K, y, likelihood).posterior.cavity())
    expected = brute_force(K, y, flip)
    np.testing.assert_allclose(got, expected, rtol=0.12)  # EP itself is off by up to 11 %
    odd = [i for i in range(len(y)) if np.sum(y == y[i]) == 1]
    if len(y) == 3:
        assert got[odd[0]] > 1.15 * flip  # outvoted


@pytest.mark.parametrize("link", ["probit", "step"])
def test_the_formula_is_bayes_rule(link):
    """Both ways to the observed label, true and flipped, add up to its average; and the limits on either side."""
    likelihood, clean = LabelNoise(0.1, link=link), LabelNoise(0.0, link=link)
    mean, variance, y = np.array([-2.0, 0.0, 0.7]), np.array([0.5, 1.0, 4.0]), np.array([1.0, -1.0, 1.0])
    truth = clean.average(y * mean, variance)
    joint = likelihood.flipped(y, mean, variance) * np.exp(likelihood.log_average(y, mean, variance))
    np.testing.assert_allclose(joint, 0.1 * (1.0 - truth), rtol=1e-12)
    np.testing.assert_array_equal(clean.flipped(y, mean, variance), 0.0)
    np.testing.assert_allclose(
        likelihood.flipped(np.ones(2), np.array([-50.0, 50.0]), np.ones(2)), [1.0, 0.0], atol=1e-200
    )


def flipped_problem(n, n_flipped, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    y = np.where(X[:, 0] + np.sin(2.0 * X[:, 1]) > 0.0, 1.0, -1.0)
    rows = rng.choice(n, n_flipped, replace=False)
    y[rows] *= -1.0
    return X, y, rows


def test_draws_are_averaged_with_their_own_rate():
    X, y, _ = flipped_problem(40, 2, 0)
    model = Model(X, y, kernel=SquaredExponential(), likelihood="label_noise", evidence="ep")
    draws = np.array([[4.0, 1.0, 0.05], [9.0, 1.5, 0.2]])
    each = [
        LabelNoise(flip).flipped(y, *EP()(model.kernel_at(d)(X), y, LabelNoise(flip)).posterior.cavity())
        for d, flip in zip(draws, (0.05, 0.2), strict=True)
    ]
    np.testing.assert_allclose(flip_probability(model, draws), np.mean(each, axis=0), rtol=1e-7)


def test_flipped_labels_rank_first_at_the_most_probable_hyperparameters():
    X, y, rows = flipped_problem(100, 5, 1)
    settings: dict[str, Any] = {"likelihood": "label_noise", "evidence": "ep", "sampler": "map"}
    p = GPClassifier(SquaredExponential(), random_state=0, n_jobs=1, **settings).fit(X, y).label_noise()
    assert p.shape == (100,)
    assert len(set(np.argsort(-p)[:5]) & set(rows)) >= 4
    assert np.median(np.delete(p, rows)) < 0.02


@pytest.mark.slow
def test_precision_on_five_percent_of_flipped_labels():
    """200 rows, 10 of them flipped: how many of the 10 first were?"""
    X, y, rows = flipped_problem(200, 10, 0)
    gp = GPClassifier(
        SquaredExponential(), likelihood="label_noise", evidence="ep", draws=100, tune=100, chains=2,
        predict_draws=100, random_state=0, progressbar=False, n_jobs=1,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        p = gp.fit(X, y).label_noise()
    found = len(set(np.argsort(-p)[:10]) & set(rows))
    print(f"{found} of 10 found; expected number of wrong labels {p.sum():.1f}")
    assert found >= 7
    assert 4.0 < p.sum() < 14.0


def test_other_likelihoods_and_unfitted_estimators_are_refused():
    X, y, _ = flipped_problem(30, 2, 0)
    gp = GPClassifier(SquaredExponential(), sampler="map", random_state=0)
    with pytest.raises(NotFittedError):
        gp.label_noise()
    with pytest.raises(InvalidInput, match=r"Logistic no label is ever wrong.*likelihood='label_noise'"):
        gp.fit(X, y).label_noise()
