"""Exact regression evidence: closed forms of others, tiny cases, derivatives, and corners where it must give up."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from hmcgp.errors import InvalidInput, NotPositiveDefinite
from hmcgp.evidence import Exact, Iterative
from hmcgp.kernels import Linear, SquaredExponential, White
from hmcgp.likelihoods import Gaussian
from hmcgp.model import Model
from hmcgp.numerics.density import NOT_POSITIVE_DEFINITE
from hmcgp.posterior.predict import latent_moments
from hmcgp.priors import Gamma, LogNormal
from tests.helpers.checks import check_gradient, squared_exponential


def regression_problem(n, d, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, -1] + np.sqrt(noise) * rng.normal(size=n)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_brute_force(n):
    X, y = regression_problem(n, 2, seed=n)
    K = squared_exponential(X, 2.0, 1.3)
    expected = multivariate_normal(np.zeros(n), K + 0.2 * np.eye(n)).logpdf(y)
    np.testing.assert_allclose(Exact()(K, y, Gaussian(0.2)).log_z, expected, rtol=1e-12)


@pytest.mark.parametrize(("n", "noise"), [(3, 0.5), (40, 0.01), (150, 2.0)])
def test_matches_the_formulas_with_explicit_inverses(n, noise):
    X, y = regression_problem(n, 3, seed=n)
    K = squared_exponential(X, 2.0, 1.3)
    C_inverse = np.linalg.inv(K + noise * np.eye(n))
    G = 0.5 * (np.outer(C_inverse @ y, C_inverse @ y) - C_inverse)
    ev = Exact()(K, y, Gaussian(noise))
    np.testing.assert_allclose(ev.dK, G, atol=1e-9 / noise**2)
    np.testing.assert_allclose(ev.dlik, [np.trace(G)], rtol=1e-9)
    np.testing.assert_allclose(ev.posterior.f, K @ C_inverse @ y, atol=1e-9)


@pytest.mark.parametrize("seed", [0, 1])
def test_matches_scikit_learn(seed):
    X, y = regression_problem(60, 3, seed)
    model = Model(X, y, kernel=SquaredExponential(ard=True), likelihood="gaussian", evidence="exact")
    theta = np.array([1.7, 0.8, 1.5, 2.5, 0.07])
    theirs = GaussianProcessRegressor(
        sk.ConstantKernel(theta[0]) * sk.RBF(theta[1:4]) + sk.WhiteKernel(theta[4]), alpha=0.0, optimizer=None
    ).fit(X, y)
    log_z, grad = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    ours, ours_grad = model.log_evidence(theta)
    np.testing.assert_allclose(ours, log_z, rtol=1e-10)
    np.testing.assert_allclose(ours_grad * theta, grad, rtol=1e-8, atol=1e-8)  # theirs is in log theta
    X_new = np.random.default_rng(9).normal(size=(8, 3))
    kernel, ev = model.posterior(theta)
    mean, variance = ev.posterior.predict(kernel(X, X_new), kernel.diag(X_new))
    their_mean, their_sd = theirs.predict(X_new, return_std=True)
    np.testing.assert_allclose(mean, their_mean, atol=1e-8)
    np.testing.assert_allclose(variance + theta[4], their_sd**2, atol=1e-8)  # theirs is of a new observation


@pytest.mark.parametrize("noise", [1e-6, 0.1, 30.0])
def test_dlik_matches_central_differences(noise):
    X, y = regression_problem(25, 2)
    K = squared_exponential(X, 2.0, 0.7)

    def log_z(u):  # u = log noise
        ev = Exact()(K, y, Gaussian(float(np.exp(u[0]))))
        return ev.log_z, ev.dlik * np.exp(u)

    # pivots of 1e-6 beside a variance of 2: log Z is known to 1e-10, which differences divide by the step
    check_gradient(log_z, np.log([noise]), rtol=1e-6, atol=1e-6, step=6e-5)


@pytest.mark.parametrize("noise", [None, 0.3, Gamma(2.0, 5.0)], ids=repr)
@pytest.mark.parametrize(
    "kernel",
    [SquaredExponential(ard=True), SquaredExponential(2.0, LogNormal(0.0, 1.0)) + Linear() + White(0.01)],
    ids=["ard", "sum"],
)
def test_gradient_of_the_log_density(kernel, noise):
    X, y = regression_problem(30, 2)
    model = Model(X, y, kernel=kernel, likelihood=Gaussian(noise))
    assert isinstance(model.evidence, Exact)
    assert ("noise" in model.names) == (noise != 0.3)
    rng = np.random.default_rng(1)
    for _ in range(3):
        check_gradient(model.logdensity_and_grad, 0.7 * rng.normal(size=model.n_dim), rtol=1e-5, atol=1e-6)


def test_noise_apart_or_in_the_kernel_is_the_same_model():
    X, y = regression_problem(30, 2)
    apart = Model(X, y, kernel=SquaredExponential(LogNormal(0, 1), 1.0), likelihood=Gaussian(0.3))
    inside = Model(X, y, kernel=SquaredExponential(LogNormal(0, 1), 1.0) + White(0.2), likelihood=Gaussian(0.1))
    np.testing.assert_allclose(apart.log_evidence([2.0])[0], inside.log_evidence([2.0])[0], rtol=1e-12)


def exact_log_z(X, y, variance, length_scale, noise):
    """With 60 digits, rounding of K included in what is exact."""
    with mpmath.workdps(60):
        n, x = len(y), [mpmath.mpf(float(v)) for v in X[:, 0]]
        C = mpmath.matrix(n, n)
        for i in range(n):
            for j in range(n):
                C[i, j] = variance * mpmath.exp(-(((x[i] - x[j]) / length_scale) ** 2) / 2) + noise * (i == j)
        L = mpmath.cholesky(C)
        z = mpmath.lu_solve(L, mpmath.matrix([mpmath.mpf(float(v)) for v in y]))
        return float(
            -sum(v * v for v in z) / 2 - sum(mpmath.log(L[i, i]) for i in range(n)) - n * mpmath.log(2 * mpmath.pi) / 2
        )


@pytest.mark.parametrize("noise", [1e-4, 1e-8, 1e-12, 1e-13, 1e-15, 1e-30])
def test_tiny_noise_is_right_or_refused(noise):
    """A smooth function, nearly without noise: K alone is singular to working precision."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(20, 1))
    y = np.sin(3.0 * X[:, 0]) + np.sqrt(noise) * rng.normal(size=20)
    K = squared_exponential(X, 1.0, 0.5)
    if noise < 2e-13:
        with pytest.raises(NotPositiveDefinite, match="noise not too small"):
            Exact()(K, y, Gaussian(noise))
    else:
        # rounding of K, relative 1e-16, moves each of 20 log pivots by up to 1e-16/noise
        expected = exact_log_z(X, y, 1, 0.5, noise)
        np.testing.assert_allclose(Exact()(K, y, Gaussian(noise)).log_z, expected, atol=1e-10 + 20.0 * 1e-16 / noise)


@pytest.mark.parametrize("provider", [Exact(), Iterative()])
def test_rows_that_disagree_without_noise_are_refused(provider):
    """Log Z = -1e11 was off by 2e7."""
    rng = np.random.default_rng(0)
    X, y = np.tile(rng.normal(size=(30, 2)), (2, 1)), rng.normal(size=60)
    K = squared_exponential(X, 440.0, 1.0)
    for targets in (y, y[:, None] * [1.0, 2.0]):
        with pytest.raises(NotPositiveDefinite, match="rounding eats log Z"):
            provider(K, targets, Gaussian(1e-10))
    assert np.isfinite(provider(K, y, Gaussian(1e-3)).log_z)


def test_log_z_is_known_or_refused():
    """Within the 0.1 nats and a millionth that the docstring promises; and not refused where that is easy."""
    rng = np.random.default_rng(1)
    answers = 0
    for _ in range(40):
        n, variance, length_scale, noise = 8, *10.0 ** rng.uniform([-1.0, -1.0, -12.0], [4.0, 1.0, -2.0])
        X = np.tile(rng.normal(size=(n, 1)), (2, 1))
        y = np.sin(X[:, 0]) + 10.0 ** rng.uniform(-6.0, 0.0) * rng.normal(size=2 * n)
        K = squared_exponential(X, variance, length_scale)
        with mpmath.workdps(60):
            C = mpmath.matrix(K.tolist()) + mpmath.mpf(noise) * mpmath.eye(2 * n)
            fit = (mpmath.matrix(y.tolist()).T * mpmath.lu_solve(C, mpmath.matrix(y.tolist())))[0]
            expected = float(-(fit + mpmath.log(mpmath.det(C)) + 2 * n * mpmath.log(2 * mpmath.pi)) / 2)
        try:
            log_z = Exact()(K, y, Gaussian(noise)).log_z
        except NotPositiveDefinite:
            assert noise < 1e-6 * variance
        else:
            answers += 1
            assert abs(log_z - expected) <= 0.1 + 1e-6 * abs(expected)
    assert answers >= 20


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e308])
def test_a_matrix_that_is_no_covariance_is_refused(bad):
    K = np.array([[1.0, 0.2], [bad, 1.0]])
    for matrix in (K, np.array([[1.0, 30.0], [30.0, 1.0]]), np.diag([bad, 1.0])):
        with pytest.raises(NotPositiveDefinite):
            Exact()(matrix, np.array([1.0, -1.0]), Gaussian(0.1))


def test_in_a_model_it_becomes_minus_infinity():
    X, y = regression_problem(30, 1)
    likelihood = Gaussian(LogNormal(-3.0, 2.0))  # the default prior would keep the noise above 1e-6
    model = Model(np.vstack([X, X]), np.concatenate([y, y]), kernel=SquaredExponential(), likelihood=likelihood)
    failed = model.evaluate(np.array([0.0, 0.0, -60.0]))
    assert (failed.logdensity, failed.failure) == (-np.inf, NOT_POSITIVE_DEFINITE)
    for u in (-700.0, -1e4, 700.0, np.nan):
        for direction in np.eye(3):
            value, grad = model.logdensity_and_grad(np.where(direction == 1.0, u, 0.0))
            assert np.isfinite(value) or (value == -np.inf and (grad == 0.0).all())


def test_only_the_lower_triangle_is_read_and_memory_is_shared_with_the_factor():
    X, y = regression_problem(12, 2)
    K = squared_exponential(X, 2.0, 1.0)
    assert Exact()(np.tril(K), y, Gaussian(0.1)).log_z == Exact()(K, y, Gaussian(0.1)).log_z
    with pytest.raises(InvalidInput, match="gradient=False"):
        Exact()(K, y, Gaussian(0.1)).posterior.predict(K, np.diag(K))


def test_an_unanswered_question_is_explained():
    X, y = regression_problem(5, 1)
    with pytest.raises(InvalidInput, match="'noise' of Gaussian is left to its default prior, not a number"):
        Exact()(squared_exponential(X, 1.0, 1.0), y, Gaussian())


def test_predictions_average_over_draws():
    X, y = regression_problem(20, 2)
    model = Model(X, y, likelihood="gaussian")
    draws = np.array([[1.0, 1.0, 2.0, 0.1], [2.0, 0.7, 1.5, 0.3]])
    X_new = np.random.default_rng(3).normal(size=(5, 2))
    mean, variance = latent_moments(model, draws, X_new)
    for s, theta in enumerate(draws):
        K = squared_exponential(np.vstack([X, X_new]), theta[0], theta[1:3])
        C = K[:20, :20] + theta[3] * np.eye(20)
        np.testing.assert_allclose(mean[s], K[20:, :20] @ np.linalg.solve(C, y), atol=1e-10)
        expected = theta[0] - np.einsum("mn,nm->m", K[20:, :20], np.linalg.solve(C, K[:20, 20:]))
        np.testing.assert_allclose(variance[s], expected, atol=1e-10)


def test_leaves_one_out_exactly():
    X, y = regression_problem(12, 2)
    K = squared_exponential(X, 2.0, 1.0)
    mean, variance = Exact()(K, y, Gaussian(0.2), gradient=False).posterior.cavity()
    for i in range(12):
        rest = np.arange(12) != i
        without = Exact()(K[np.ix_(rest, rest)], y[rest], Gaussian(0.2), gradient=False).posterior
        mu, v = without.predict(K[rest][:, [i]], K[[i], [i]])
        np.testing.assert_allclose([mean[i], variance[i]], [mu[0], v[0]], rtol=1e-9)
    with pytest.raises(InvalidInput, match="gradient=False"):
        Exact()(K, y, Gaussian(0.2)).posterior.cavity()
