"""Nonstationary and categorical kernels: independent formulas, limits and refusals."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from scipy.integrate import simpson
from scipy.interpolate import make_smoothing_spline
from sklearn.gaussian_process import kernels as sk

from hmcgp.errors import InvalidInput
from hmcgp.kernels import (
    Categorical,
    CategoryEffects,
    Constant,
    Gibbs,
    IntegratedWiener,
    Linear,
    Matern,
    Polynomial,
    RadialBasis,
    SquaredExponential,
    White,
    Wiener,
)
from hmcgp.model import Model
from tests.helpers.checks import check_gradient, random_symmetric

X = np.random.default_rng(3).normal(size=(9, 3)) * [1.0, 2.0, 0.5]
X2 = np.random.default_rng(4).normal(size=(5, 3))
NAMES = ["a", "b", "c"]


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_polynomial_against_scikit_learn(degree):
    # (σ₀² + x·x')^p
    theirs = sk.DotProduct(sigma_0=0.7) ** degree
    np.testing.assert_allclose(Polynomial(1.0, 0.49, degree)(X, X2), theirs(X, X2), rtol=1e-12)


@pytest.mark.parametrize("degree", [0, 1.5, True])
def test_degrees_are_counts(degree):
    with pytest.raises(InvalidInput, match="'degree' must be an integer >= 1"):
        Polynomial(degree=degree)


def test_wiener_is_a_sum_of_independent_steps():
    t = np.linspace(0.0, 3.0, 31)
    steps = np.tril(np.ones((30, 30))) * np.sqrt(1.7 * 0.1)  # f = steps @ white noise
    np.testing.assert_allclose(Wiener(1.7)(t[1:, None]), steps @ steps.T, rtol=1e-12)
    two_sided = Wiener(1.7, origin=1.0)(t[:, None])
    assert np.all(two_sided[:10, 11:] == 0.0)
    np.testing.assert_allclose(two_sided[:10, :10][::-1, ::-1], 1.7 * np.minimum.outer(t[1:11], t[1:11]), rtol=1e-12)
    np.testing.assert_allclose(np.diag(two_sided), 1.7 * np.abs(t - 1.0), rtol=1e-12)


def test_integrated_wiener_is_the_integral_of_the_walk():
    """∫₀^t ∫₀^t' min(s, s') ds ds', by Simpson's rule on a grid that has both ends."""
    s = np.linspace(0.0, 3.0, 3001)
    walk = np.minimum.outer(s, s)
    for i, j in ((1000, 1000), (1000, 3000), (2600, 400)):
        inner = simpson(walk[: i + 1, : j + 1], x=s[: j + 1], axis=1)
        np.testing.assert_allclose(
            IntegratedWiener(1.7)(s[[i], None], s[[j], None])[0, 0], 1.7 * simpson(inner, x=s[: i + 1]), rtol=1e-6
        )
    two_sided = IntegratedWiener(1.7, origin=1.0)(np.array([[0.5], [1.5]]))
    np.testing.assert_allclose(two_sided, np.eye(2) * 1.7 * 0.5**3 / 3.0, rtol=1e-12)


def test_integrated_wiener_and_a_line_are_the_smoothing_spline():
    """Its posterior mean is the minimum of Σ (y - f)² + (s/v) ∫ f''² (MacKay 1998, section 2.3)."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 5.0, 40))
    y = np.sin(2.0 * x) + 0.5 * x + 0.2 * rng.normal(size=40)
    variance, noise = 3.0, 0.04
    kernel = IntegratedWiener(variance, origin=x[0]) + Linear(1e5) + Constant(1e5)
    new = np.linspace(x[0], x[-1], 33)
    mean = kernel(new[:, None], x[:, None]) @ np.linalg.solve(kernel(x[:, None]) + noise * np.eye(40), y)
    spline = make_smoothing_spline(x, y, lam=noise / variance)
    np.testing.assert_allclose(mean, spline(new), atol=1e-4)  # the line's prior is wide, not infinite


def test_wiener_takes_one_input():
    with pytest.raises(InvalidInput, match="Wiener is a covariance function of one input; got 3"):
        Wiener(1.0)(X)
    with pytest.raises(InvalidInput, match=r"Additive\(Wiener\(...\)\)"):
        Model(X, np.sign(X[:, 0]), kernel=Wiener())


def test_gibbs_without_variation_is_the_squared_exponential():
    length_scale = [0.5, 1.0, 3.0]
    np.testing.assert_allclose(
        Gibbs(1.3, length_scale, 0.0)(X, X2), SquaredExponential(1.3, length_scale)(X, X2), rtol=1e-12
    )


def test_gibbs_is_white_noise_blurred_by_varying_widths():
    # f(x) = ∫ g(s; x) w(s) ds with g a Gaussian of width r(x)/√2 has this covariance, up to normalisation
    x = np.linspace(-2.0, 2.0, 7)
    r = 0.8 * np.exp(0.4 * x)
    s = np.linspace(-30.0, 30.0, 20_001)
    g = np.exp(-((x[:, None] - s) ** 2) / r[:, None] ** 2)
    blurred = g @ g.T
    scale = np.sqrt(np.diag(blurred))
    np.testing.assert_allclose(Gibbs(1.0, 0.8, 0.4)(x[:, None]), blurred / np.outer(scale, scale), rtol=1e-9)


@pytest.mark.parametrize("n", [1, 65, 130])
def test_compiled_gibbs_matches_the_plain_formula(n):
    Z = np.random.default_rng(n).normal(size=(n, 2))
    weight = np.array([[0.3, -0.2], [0.1, 0.4]])  # of each input
    r = np.array([0.7, 1.6]) * np.exp(Z @ weight.T)  # (n, 2)
    q = r[:, None] ** 2 + r**2
    twin = np.prod(np.sqrt(2.0 * r[:, None] * r / q) * np.exp(-((Z[:, None] - Z) ** 2) / q), axis=-1)
    np.testing.assert_allclose(Gibbs(1.3, [0.7, 1.6], weight.ravel(), ard=True)(Z), 1.3 * twin, rtol=1e-12)


def test_gibbs_with_bumps_changes_the_length_scale_where_they_are():
    basis = RadialBasis([-2.0, 2.0], 0.5)
    kernel = Gibbs(1.0, 1.0, [-1.5, 0.0], basis)
    near, far = kernel(np.array([[-2.1], [-1.9]]))[0, 1], kernel(np.array([[1.9], [2.1]]))[0, 1]
    assert near < far
    np.testing.assert_allclose(far, np.exp(-0.5 * 0.2**2), rtol=1e-6)


def test_names_of_weights():
    def names(kernel, inputs):
        return [n for p in kernel.parameters(inputs) if p.is_free for n in p.flat_names]

    assert names(Gibbs(1.0, 1.0), NAMES) == ["weight[a]", "weight[b]", "weight[c]"]
    assert names(Gibbs(1.0, 1.0, basis=RadialBasis([0.0, 1.5], 1.0)), ["a"]) == ["weight[0]", "weight[1.5]"]
    assert names(Gibbs(1.0, 1.0, basis=np.square, ard=True), ["a", "b"]) == [
        "weight[a: 0]", "weight[a: 1]", "weight[b: 0]", "weight[b: 1]"
    ]  # fmt: skip
    assert names(Gibbs(1.0, 1.0, basis=lambda X: X[:, :1] ** 2), NAMES) == ["weight[0]"]


def test_gibbs_in_a_model():
    y = np.sign(X[:, 0])
    model = Model(X[:, :2], y, kernel=Gibbs(ard=True))
    assert model.n_dim == 1 + 2 + 4
    check_gradient(model.logdensity_and_grad, 0.3 * np.random.default_rng(2).normal(size=7), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gibbs(1.0, 1.0, [0.1, 0.2]).parameters(NAMES), "2 values for 3 basis functions"),
        (lambda: Gibbs(1.0, 1.0, np.nan), "'weight' of Gibbs must be finite"),
        (lambda: Gibbs(1.0, 1.0, 0.1, basis=lambda X: X[:, 0])(X), r"shape \(n, m\)"),
        (lambda: RadialBasis([0.0], 0.0), "'width' of RadialBasis"),
        (lambda: RadialBasis([], 1.0), "'centres' of RadialBasis"),
        (lambda: RadialBasis([[1.0], [1.0, 2.0]], 1.0), "'centres' of RadialBasis"),
        (lambda: RadialBasis([0.0], 1.0)(X), "1 coordinates for 3 inputs"),
        (lambda: Categorical(1.0)(X, X[:, :2]), "3 and 2 columns"),
        (lambda: Gibbs(1.0, 1.0, 0.1)(X, X[:, :2]), "3 and 2 columns"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_kernels_with_a_basis_are_values():
    kernel = Gibbs(1.0, 1.0, [0.1, 0.2], RadialBasis([[0.0, 1.0], [1.0, 0.0]], 1.0))
    assert len({kernel, copy.deepcopy(kernel)}) == 1


def test_categorical_counts_mismatches():
    codes = np.random.default_rng(0).integers(0, 3, size=(20, 2)).astype(float)
    weight = np.array([0.4, 1.3])
    expected = np.exp(-np.sum(weight * (codes[:, None] != codes), axis=-1))
    kernel = Categorical(weight)
    np.testing.assert_allclose(kernel(codes), expected, rtol=1e-14)
    np.testing.assert_allclose(kernel(codes[:5], codes[5:]), expected[:5, 5:], rtol=1e-14)
    unseen = kernel(codes, np.full((1, 2), 9.0))
    np.testing.assert_allclose(unseen, np.exp(-1.7), rtol=1e-14)


@pytest.mark.parametrize("variance", [0.7, [0.7, 0.2]])
def test_effects_of_categories_are_a_line_of_indicators(variance):
    codes = np.random.default_rng(2).integers(0, 3, (9, 2)).astype(float)
    indicators = np.hstack([codes[:, [k]] == np.arange(3) for k in range(2)]).astype(float)
    spread = variance if np.ndim(variance) == 0 else np.repeat(variance, 3)
    effects, line = CategoryEffects(variance), Linear(spread)
    np.testing.assert_allclose(effects(codes), line(indicators), rtol=1e-14)
    np.testing.assert_allclose(effects(codes[:4], codes), line(indicators[:4], indicators), rtol=1e-14)
    np.testing.assert_allclose(effects.diag(codes), np.full(9, np.broadcast_to(variance, 2).sum()), rtol=1e-14)
    new = np.full((1, 2), 7.0)  # a category that no row has
    np.testing.assert_allclose(effects(new, codes), np.zeros((1, 9)), atol=1e-15)


def test_a_categorical_column_beside_a_number():
    rng = np.random.default_rng(1)
    Z = np.column_stack([rng.normal(size=12), rng.integers(0, 3, size=12)])
    kernel = SquaredExponential(1.0, 0.8).on(0) * Categorical(0.5).on(1)
    same = Z[:, 1][:, None] == Z[:, 1]
    expected = SquaredExponential(1.0, 0.8)(Z[:, :1]) * np.where(same, 1.0, np.exp(-0.5))
    np.testing.assert_allclose(kernel(Z), expected, rtol=1e-13)
    model = Model(Z, np.sign(Z[:, 0]), kernel=SquaredExponential().on(0) * Categorical().on(1))
    assert model.names == ["variance", "length_scale", "weight"]
    check_gradient(model.logdensity_and_grad, np.array([0.1, -0.2, 0.3]), rtol=1e-5)
    with pytest.raises(InvalidInput, match="Categorical does not know its derivatives"):
        kernel.input_vjp(Z, random_symmetric(rng, 12))


@pytest.mark.parametrize("variance", [0.4, [0.1, 2.0, 0.5, 0.3, 0.7, 1.1, 0.2, 0.9, 0.6]])
@pytest.mark.parametrize("columns", [[0, 1, 2], [2, 0], [1], [0, 1, 2, 3, 4], list(range(9))])  # in fours
@pytest.mark.parametrize("n", [1, 2, 9, 70])
def test_terms_of_a_sum_are_added_in_place(variance, columns, n):
    rng = np.random.default_rng(n)
    X, G = rng.normal(size=(n, 9)), rng.normal(size=(n, n))
    variance = variance if np.ndim(variance) == 0 else [variance[k] for k in columns]
    terms: list[Any] = [
        Matern(variance=1.3, length_scale=0.8),
        Linear(variance).on(columns),
        Constant(0.7),
        SquaredExponential(0.5, 2.0),
        White(0.1),
    ]
    found = [term.vjp(X) for term in terms]
    kept = [K.copy() for K, _ in found]
    for order in ([0, 1, 2, 3, 4], [1, 2, 0, 4, 3], [2, 1, 4, 3, 0]):
        for kernel in (sum(terms[i] for i in order), terms[order[0]] + sum(terms[i] for i in order[1:])):
            K, pullback = kernel.vjp(X)
            np.testing.assert_allclose(K, sum(kept), rtol=1e-13, atol=1e-14)  # sums of numbers of order 1
            np.testing.assert_array_equal(K, K.T)
            expected = np.concatenate([found[i][1](G + G.T) for i in order])
            np.testing.assert_allclose(pullback(G + G.T), expected, rtol=1e-11, atol=1e-11)
    for (K, _), before in zip(found, kept, strict=True):
        np.testing.assert_array_equal(K, before)


@pytest.mark.parametrize("variance", [0.4, 1, [0.1, 2.0, 0.5]])
def test_covariances_of_a_sum_between_rows(variance):
    kept = SquaredExponential(1.3, 0.8)(X, X2)

    class Stored(SquaredExponential):  # returns the same array every time
        def __call__(self, X, X2=None):
            return kept

    terms: list[Any] = [
        Linear(variance),
        Constant(9.0),
        SquaredExponential(1.3, 0.8),
        Linear(0.3).on([2, 0]),
        White(0.1),
    ]
    expected: Any = sum(term(X, X2) for term in terms)
    for order in ([0, 1, 2, 3, 4], [2, 3, 1, 4, 0]):
        kernel: Any = sum(terms[i] for i in order)
        np.testing.assert_allclose(kernel(X, X2), expected, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(kernel(X, X2[:0]), expected[:, :0])
        np.testing.assert_allclose(kernel(X[:, ::-1][:, ::-1], np.asfortranarray(X2)), expected, rtol=1e-13, atol=1e-13)
        K = kernel(X)
        np.testing.assert_allclose(K, sum(term(X) for term in terms), rtol=1e-13, atol=1e-13)
        np.testing.assert_array_equal(K, K.T)
    whole: Any = (20.0 * X).astype(np.int8)  # whose products are larger than it holds
    kernel = SquaredExponential(1.3, 50.0) + Linear(variance)
    expected = SquaredExponential(1.3, 50.0)(whole, whole[:4]) + Linear(variance)(whole.astype(float), whole[:4])
    np.testing.assert_allclose(kernel(whole, whole[:4]), expected, rtol=1e-13)
    before = kept.copy()
    np.testing.assert_allclose(
        (Stored(1.3, 0.8) + terms[0] + terms[1])(X, X2), kept + terms[0](X, X2) + 9.0, rtol=1e-13
    )
    np.testing.assert_array_equal(kept, before)
    with pytest.raises(ValueError, match=r"mismatch|align|broadcast"):
        (White(1.0) + Linear(0.4))(X, X2[:, :2])


def test_a_sum_of_constants():
    K, pullback = (Constant(0.5) + Constant(0.2) + Constant(1.0)).vjp(X)
    np.testing.assert_allclose(K, 1.7, rtol=1e-15)
    np.testing.assert_array_equal(pullback(np.ones((9, 9))), [81.0, 81.0, 81.0])


def test_a_subclass_of_a_line_keeps_its_own_covariance():
    class Doubled(Linear):
        def vjp(self, X):
            K, pull = super().vjp(X)
            return 2.0 * K, lambda G: 2.0 * pull(G)

    K, pullback = (White(1.0) + Doubled(0.4)).vjp(X)
    np.testing.assert_allclose(K, np.eye(9) + 0.8 * X @ X.T, rtol=1e-13)
    np.testing.assert_allclose(pullback(np.ones((9, 9)))[1], 2.0 * np.sum(X @ X.T), rtol=1e-11)

    class Tripled(Linear):
        def __call__(self, X, X2=None):
            return 3.0 * super().__call__(X, X2)

    np.testing.assert_allclose((White(1.0) + Tripled(0.4))(X, X2), 1.2 * X @ X2.T, rtol=1e-13)


@pytest.mark.parametrize("variance", [0.4, [0.1, 2.0, 0.5]])
def test_the_pullback_of_a_line_is_an_inner_product(variance):
    rng = np.random.default_rng(4)
    X, G = rng.normal(size=(30, 3)), rng.normal(size=(30, 30))
    G = G + G.T
    each = [np.sum(G * np.outer(x, x)) for x in X.T]
    expected = each if np.ndim(variance) else [sum(each)]
    np.testing.assert_allclose(Linear(variance).vjp(X)[1](G), expected, rtol=1e-11)


def test_a_term_of_the_wrong_length_is_refused():
    X = np.random.default_rng(0).normal(size=(5, 3))
    with pytest.raises(ValueError, match="broadcast"):
        (White(1.0) + Linear([0.1, 0.2])).vjp(X)
    K, pullback = (White(1.0) + Linear(1)).vjp(X)  # an integer
    np.testing.assert_allclose(K, X @ X.T + np.eye(5))
    np.testing.assert_allclose(pullback(np.ones((5, 5)))[-1], (X.sum(axis=0) ** 2).sum())
