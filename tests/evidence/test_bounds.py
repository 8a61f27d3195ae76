"""Bounds on the evidence: plain twins, brackets around brute force, derivatives, corners, and one maximum."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import Laplace, LowerBound, UpperBound
from hmcgp.evidence.bounds import optimisation
from hmcgp.likelihoods import Logistic
from hmcgp.numerics.compiled import compiled
from tests.helpers import reference
from tests.helpers.checks import check_gradient, classification_problem, squared_exponential

_excess, nu_of_x = compiled(optimisation._excess), compiled(optimisation.nu_of_x)
BOUNDS = [LowerBound, UpperBound]
bound = pytest.mark.parametrize("provider", BOUNDS)


@pytest.mark.parametrize("nu", [1e-6, 1e-3, 0.3, 1.0, 1.999, 2.001, 7.0, 40.0, 900.0, 1e6])
def test_x_and_nu_are_inverse(nu):
    with mpmath.workdps(40):
        z = mpmath.mpf(nu) / 2
        np.testing.assert_allclose(_excess(nu / 2.0), float(z * mpmath.coth(z) - 1), rtol=1e-14)
    # x = 4 + ν²/3 near its boundary: rounding of x to 1e-15 is one of ν² to 3e-15
    np.testing.assert_allclose(nu_of_x(2.0 * nu / np.tanh(nu / 2.0)), nu, rtol=1e-14, atol=1e-15 / nu)


@pytest.mark.parametrize("n", [2, 7, 60])
def test_lower_matches_the_plain_fixed_point(n):
    _, y, K = classification_problem(n, 3, seed=n)
    nu, log_z, G, R, _ = reference.lower_bound(K, y)
    ev = LowerBound()(K, y, Logistic())
    np.testing.assert_allclose(ev.log_z, log_z, rtol=1e-12)
    np.testing.assert_allclose(ev.posterior.nu, nu, rtol=1e-9)
    np.testing.assert_allclose(ev.dK, G, atol=1e-10)
    K_new = np.random.default_rng(0).normal(size=(n, 4))
    mean, variance = LowerBound()(K, y, Logistic(), gradient=False).posterior.predict(K_new, np.full(4, 100.0))
    np.testing.assert_allclose(mean, K_new.T @ ev.posterior.alpha, atol=1e-9)
    np.testing.assert_allclose(variance, 100.0 - np.einsum("nm,nk,km->m", K_new, R, K_new), atol=1e-9)


@pytest.mark.parametrize("n", [2, 7, 60])
def test_upper_matches_newton_in_mu(n):
    _, y, K = classification_problem(n, 3, seed=n)
    mu, log_z, G = reference.upper_bound(K, y)
    ev = UpperBound()(K, y, Logistic())
    np.testing.assert_allclose(ev.log_z, log_z, rtol=1e-12)
    np.testing.assert_allclose(ev.posterior.b, mu * y, atol=1e-10)
    np.testing.assert_allclose(ev.dK, G, atol=1e-10)


@pytest.mark.parametrize("n", [2, 3])
def test_brackets_brute_force_at_random_hyperparameters(n):
    rng = np.random.default_rng(n)
    likelihood = Logistic()
    for _ in range(12 if n == 2 else 4):
        X, y, _ = classification_problem(n, 2, seed=int(rng.integers(1000)))
        variance, length_scale = np.exp(rng.uniform([-6.0, -2.0], [6.0 if n == 2 else 3.0, 2.0]))
        K = squared_exponential(X, variance, length_scale) + 1e-9 * variance * np.eye(n)
        exact = reference.logistic_log_z(K, y)
        lower, upper = LowerBound()(K, y, likelihood).log_z, UpperBound()(K, y, likelihood).log_z
        assert lower <= exact + 1e-10
        assert exact <= upper + 1e-10
        assert upper - lower > 1e-9 * variance  # neither is the evidence itself


@pytest.mark.parametrize("variance", [1e-3, 1.0, 50.0, 1e5])
def test_upper_is_laplace_without_its_determinant(variance):
    """The minimum over μ is dual to the mode: log Z'' = log Z_Laplace + ½ log|B|, so it lies above."""
    X, y, _ = classification_problem(40, 2)
    K = squared_exponential(X, variance, 1.0)
    laplace = Laplace()(K, y, Logistic(), gradient=False)
    upper = UpperBound()(K, y, Logistic())
    half_log_det = np.log(np.diag(laplace.posterior.L)).sum()
    np.testing.assert_allclose(upper.log_z, laplace.log_z + half_log_det, rtol=1e-11)
    np.testing.assert_allclose(upper.posterior.f, laplace.posterior.f, rtol=1e-6, atol=1e-9)
    assert LowerBound()(K, y, Logistic()).log_z < upper.log_z


def test_upper_never_falls_with_the_prior_variance():
    X, y, _ = classification_problem(40, 2)
    values = [UpperBound()(squared_exponential(X, v, 1.0), y, Logistic()).log_z for v in 10.0 ** np.arange(-4, 8)]
    assert (np.diff(values) > 0.0).all()
    lower = [LowerBound()(squared_exponential(X, v, 1.0), y, Logistic()).log_z for v in 10.0 ** np.arange(-4, 8)]
    assert 0 < np.argmax(lower) < len(lower) - 1


def test_lower_holds_at_any_nu_and_is_greatest_at_the_answer():
    """Concave in x = 1/w: along a straight line in x through the maximum the bound only falls."""
    _, y, K = classification_problem(20, 2)
    ev = LowerBound()(K, y, Logistic())
    x = 2.0 * ev.posterior.nu / np.tanh(ev.posterior.nu / 2.0)
    rng = np.random.default_rng(0)

    def log_z(x):
        nu = np.array([nu_of_x(v) for v in x])
        d, w = y / 2.0, 1.0 / x
        H = np.eye(20) + w[:, None] * K
        sites = -np.logaddexp(0.0, -nu) - nu / 2.0 + w * nu**2 / 2.0
        return sites.sum() + 0.5 * d @ K @ np.linalg.solve(H, d) - 0.5 * np.linalg.slogdet(H)[1]

    np.testing.assert_allclose(log_z(x), ev.log_z, rtol=1e-12)
    for _ in range(5):
        direction = rng.normal(size=20)
        reach = 0.9 * np.min((x - 4.0) / np.abs(direction))
        values = np.array([log_z(x + t * reach * direction) for t in np.linspace(-1.0, 1.0, 21)])
        assert np.argmax(values) == 10
        assert (np.diff(values, 2) < 0.0).all()


PROBLEMS = {
    "separable": lambda X, y: (X, np.where(X[:, 0] > 0.0, 1.0, -1.0)),
    "overlapping": lambda X, y: (X, y),
    "opposite duplicates": lambda X, y: (np.vstack([X, X]), np.concatenate([y, -y])),
    "equal duplicates": lambda X, y: (np.vstack([X, X, X]), np.concatenate([y, y, y])),
    "one against all": lambda X, y: (X, np.where(np.arange(len(y)) == 0, 1.0, -1.0)),
}


@bound
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("length_scale", [1e-3, 0.1, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("variance", [1e-6, 1.0, 1e3, 1e8])
def test_survives_what_a_sampler_visits(provider, problem, length_scale, variance):
    """Converges, and its gradient is right, in every corner that the priors allow."""
    X, y, _ = classification_problem(24, 2, seed=2)
    X, y = PROBLEMS[problem](X, y)

    def log_z(u):  # u = log variance, log length scale
        K = squared_exponential(X, np.exp(u[0]), np.exp(u[1]))
        ev = provider()(K, y, Logistic())
        Z = X / np.exp(u[1])
        r2 = np.sum((Z[:, None] - Z[None]) ** 2, axis=2)
        return ev.log_z, np.array([np.sum(ev.dK * K), np.sum(ev.dK * K * r2)])

    u = np.log([variance, length_scale])
    value, grad = log_z(u)
    assert np.isfinite(value)
    assert value < 0.0
    assert np.isfinite(grad).all()
    # rounding in K (relative 1e-16) moves log Z by about eps * variance * |α|²; the difference quotient divides by 1e-5
    noise = 1e-16 * max(variance, 1.0) * len(y) / 1e-5
    check_gradient(log_z, u, rtol=1e-5, atol=1e-6 + noise)


@pytest.mark.parametrize(("variance", "fixed_point"), [(1.0, 10), (30.0, 50), (1e3, 250)])
def test_newton_takes_few_steps_where_the_fixed_point_takes_many(variance, fixed_point):
    X, y, _ = classification_problem(60, 3)
    K = squared_exponential(X, variance, 2.0)
    assert LowerBound()(K, y, Logistic()).n_iter <= 8
    assert reference.lower_bound(K, y, tol=1e-10)[-1] > fixed_point


def test_warm_start_saves_factorisations():
    X, y, K = classification_problem(150, 4)
    near = squared_exponential(X, 3.1, 1.52)
    for provider in BOUNDS:
        start = provider()(K, y, Logistic()).posterior.start
        assert provider()(near, y, Logistic(), start).n_iter < provider()(near, y, Logistic()).n_iter
    start = LowerBound()(K, y, Logistic()).posterior.start
    assert LowerBound()(near, y, Logistic(), start).n_iter <= 3


@bound
def test_an_indefinite_matrix_is_a_typed_error(provider):
    K = np.array([[1.0, 30.0], [30.0, 1.0]])
    with pytest.raises(NotPositiveDefinite, match="no Cholesky factor"):
        provider()(K, np.array([1.0, -1.0]), Logistic())


@bound
@pytest.mark.parametrize(("variance", "length_scale"), [(1e12, 1e4), (1e30, 0.3)])
def test_noise_is_not_called_an_answer(provider, variance, length_scale):
    """Opposite labels on nearly equal rows: K α cancels to nothing in double precision."""
    X, y, _ = classification_problem(24, 2, seed=2)
    K = squared_exponential(np.vstack([X, X]), variance, length_scale)
    with pytest.raises((NotConverged, NotPositiveDefinite)):
        provider()(K, np.concatenate([y, -y]), Logistic())


@bound
def test_the_value_does_not_hang_on_the_last_bit(provider):
    """Rows twice, with opposite labels, and a prior variance 1e10: rounding of K moves the upper bound by no nats."""
    X, y, _ = classification_problem(24, 2, seed=2)
    K = squared_exponential(np.vstack([X, X]), 1e10, 1e4)
    rng, values = np.random.default_rng(0), []
    for _ in range(10):
        E = np.triu(rng.choice([-(2.0**-52), 0.0, 2.0**-52], size=K.shape))
        values.append(provider()(K * (1.0 + np.maximum(E, E.T)), np.concatenate([y, -y]), Logistic()).log_z)
    assert np.ptp(values) < 1e-3


@bound
def test_nan_is_a_typed_error(provider):
    with pytest.raises((NotPositiveDefinite, NotConverged)):
        provider()(np.full((3, 3), np.nan), np.array([1.0, -1.0, 1.0]), Logistic())


@bound
@pytest.mark.parametrize("bad", [{"tol": 0.0}, {"tol": "a"}, {"max_iter": 0}, {"max_iter": 2.5}])
def test_settings_are_checked(provider, bad):
    with pytest.raises(InvalidInput, match=f"of {provider.__name__} must"):
        provider(**bad)


def test_factor_and_gradient_share_memory():
    _, y, K = classification_problem(10, 2)
    with pytest.raises(InvalidInput, match="gradient=False"):
        LowerBound()(K, y, Logistic()).posterior.predict(K, np.diag(K))


@pytest.mark.parametrize(("provider", "triangle"), [(LowerBound, np.tril), (UpperBound, np.triu)])
def test_only_one_triangle_is_read(provider, triangle):
    _, y, K = classification_problem(12, 2)
    assert provider()(triangle(K), y, Logistic()).log_z == provider()(K, y, Logistic()).log_z
