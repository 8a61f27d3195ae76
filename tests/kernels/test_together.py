"""Sums evaluated in one compiled call: the numbers of their terms, in any order."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from hmcgp.errors import InvalidInput
from hmcgp.kernels import Constant, Linear, Matern, SquaredExponential
from hmcgp.kernels.together import CurveAndLine
from hmcgp.model import Model
from tests.helpers.checks import check_gradient, random_symmetric

X = np.random.default_rng(3).normal(size=(11, 3)) * [1.0, 2.0, 0.5]
SCALES = [0.8, [0.5, 2.0, 1.3]]
SLOPES = [0.4, 2, [0.1, 2.0, 0.5], np.array([0.1, 2.0, 0.5])]


@pytest.mark.parametrize("scale", SCALES, ids=["one scale", "scales"])
@pytest.mark.parametrize("slope", SLOPES, ids=["one slope", "integer", "slopes", "array"])
@pytest.mark.parametrize("n", [1, 2, 11])
def test_numbers_are_those_of_the_terms(scale, slope, n):
    terms: list[Any] = [SquaredExponential(1.3, scale), Linear(slope), Constant(9.0), Constant(0.5)]
    G = random_symmetric(np.random.default_rng(n), n)
    found = [term.vjp(X[:n]) for term in terms]
    for order in permutations(range(4)):
        kernel = sum((terms[i] for i in order[1:]), terms[order[0]])
        assert CurveAndLine.of(kernel._terms(), X[:n]) is not None
        K, pullback = kernel.vjp(X[:n])
        np.testing.assert_allclose(K, sum(own for own, _ in found), rtol=1e-13)
        np.testing.assert_array_equal(K, K.T)
        np.testing.assert_array_equal(kernel(X[:n]), K)
        expected = np.concatenate([found[i][1](G) for i in order])
        np.testing.assert_allclose(pullback(G), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("rows", [np.asfortranarray(X), X[::2], X.astype(np.float32), (10 * X).astype(int)])
def test_rows_of_other_layouts_and_types(rows):
    terms = [SquaredExponential(1.3, 0.8), Linear(0.4), Constant(9.0)]
    K, pullback = (terms[0] + terms[1] + terms[2]).vjp(rows)
    np.testing.assert_allclose(K, sum(term(np.asarray(rows, dtype=float)) for term in terms), rtol=1e-12)
    G = random_symmetric(np.random.default_rng(0), len(rows))
    expected = np.concatenate([term.vjp(np.asarray(rows, dtype=float))[1](G) for term in terms])
    for other in (G, np.asfortranarray(G), np.pad(G, 2)[2:-2, 2:-2]):
        np.testing.assert_allclose(pullback(other), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("scale", [1e-180, 1e180])
def test_extreme_length_scales_leave_the_line_alone(scale):
    K, pullback = (SquaredExponential(1.0, [scale, 1.0, scale]) + Linear(0.4) + Constant(9.0)).vjp(X)
    with np.errstate(over="ignore"):
        expected = SquaredExponential(1.0, [scale, 1.0, scale])(X) + 0.4 * X @ X.T + 9.0
    np.testing.assert_allclose(K, expected, rtol=1e-13)
    assert pullback(np.ones((11, 11)))[4] == pytest.approx(np.sum(X @ X.T), rel=1e-11)


def test_gradient_matches_central_differences():
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    for kernel in (
        SquaredExponential(ard=True) + Linear() + Constant(),
        Constant() + Linear(ard=True) + SquaredExponential() + Constant(9.0),
    ):
        model = Model(X, y, kernel=kernel)
        found: Any = model.kernel_at(model.constrain(np.zeros(model.n_dim)))
        assert CurveAndLine.of(found._terms(), X) is not None
        check_gradient(model.logdensity_and_grad, np.linspace(-0.4, 0.6, model.n_dim), rtol=1e-5)


def test_other_sums_are_left_to_their_terms():
    class Steeper(Linear):
        def vjp(self, X):
            K, pull = super().vjp(X)
            return 2.0 * K, lambda G: 2.0 * pull(G)

    curve, line = SquaredExponential(1.3, 0.8), Linear(0.4)
    for terms in (
        [curve, Steeper(0.4)],
        [curve, Constant(1.0)],
        [line, Constant(1.0)],
        [curve, line, line],
        [curve, curve, line],
        [Matern(variance=1.0, length_scale=1.0), line],
        [curve, line.on([0])],
    ):
        assert CurveAndLine.of(terms, X) is None
    assert CurveAndLine.of([curve, line], X[:0]) is None
    np.testing.assert_allclose((curve + Steeper(0.4)).vjp(X)[0], curve(X) + 0.8 * X @ X.T, rtol=1e-13)


def test_wrong_lengths_are_refused_by_the_terms():
    with pytest.raises(InvalidInput, match="length scales"):
        (SquaredExponential(1.0, [1.0, 2.0]) + Linear(0.4)).vjp(X)
    with pytest.raises(ValueError, match="broadcast"):
        (SquaredExponential(1.0, 1.0) + Linear([0.1, 0.2]))(X)
