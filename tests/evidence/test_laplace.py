import mpmath
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process import kernels as sk

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import Laplace
from hmcgp.likelihoods import Logistic, Probit
from tests.helpers import reference
from tests.helpers.checks import PROBLEMS, check_gradient, classification_problem, squared_exponential

LIKELIHOODS = [(Logistic(), reference.logistic), (Probit(), reference.probit)]
IDS = ["logistic", "probit"]


@pytest.mark.parametrize(("likelihood", "twin"), LIKELIHOODS, ids=IDS)
@pytest.mark.parametrize("n", [2, 7, 60])
def test_matches_the_plain_twin(likelihood, twin, n):
    _, y, K = classification_problem(n, 3, seed=n)
    K += 1e-3 * np.eye(n)  # the twin inverts K
    f, log_z, G, R = reference.laplace(K, y, twin)
    ev = Laplace()(K, y, likelihood)
    np.testing.assert_allclose(ev.log_z, log_z, rtol=1e-11)
    np.testing.assert_allclose(ev.posterior.f, f, atol=1e-8)
    np.testing.assert_allclose(ev.dK, G, atol=1e-8)
    K_new = np.random.default_rng(0).normal(size=(n, 4))
    mean, variance = Laplace()(K, y, likelihood, gradient=False).posterior.predict(K_new, np.full(4, 100.0))
    np.testing.assert_allclose(mean, K_new.T @ np.linalg.solve(K, f), atol=1e-7)
    np.testing.assert_allclose(variance, 100.0 - np.einsum("nm,nk,km->m", K_new, R, K_new), atol=1e-7)


@pytest.mark.parametrize(("likelihood", "twin"), LIKELIHOODS, ids=IDS)
def test_close_to_brute_force_and_exact_for_a_narrow_prior(likelihood, twin):
    _, y, K = classification_problem(3, 2)
    for scale, tolerance in [(1.0, 0.15), (0.1, 4e-3), (0.01, 5e-5)]:
        exact = reference.brute_force_log_z(scale * K, y, lambda y, f: twin(y, f)[0])
        np.testing.assert_allclose(Laplace()(scale * K, y, likelihood).log_z, exact, atol=tolerance)


def test_matches_scikit_learn():
    X, y, K = classification_problem(50, 3)
    theirs = GaussianProcessClassifier(sk.ConstantKernel(3.0) * sk.RBF(1.5), optimizer=None).fit(X, y)
    ours = Laplace()(K, y, Logistic(), gradient=False)
    # scikit-learn stops Newton when log Z changes by less than 1e-10
    np.testing.assert_allclose(ours.log_z, theirs.log_marginal_likelihood_value_, atol=1e-8)
    X_new = np.random.default_rng(1).normal(size=(6, 3))
    mean, variance = theirs.latent_mean_and_variance(X_new)
    K_new = squared_exponential(np.vstack([X, X_new]), 3.0, 1.5)[: len(X), len(X) :]
    got = ours.posterior.predict(K_new, np.full(6, 3.0))
    np.testing.assert_allclose(got[0], mean, atol=1e-5)
    np.testing.assert_allclose(got[1], variance, atol=1e-5)


@pytest.mark.parametrize("likelihood", [Logistic(), Probit()], ids=IDS)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("length_scale", [1e-3, 0.1, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("variance", [1e-6, 1.0, 1e3, 1e8])
def test_survives_what_a_sampler_visits(likelihood, problem, length_scale, variance):
    """Converges, and its gradient is right, in every corner that the priors allow."""
    X, y, _ = classification_problem(24, 2, seed=2)
    X, y = PROBLEMS[problem](X, y)

    def log_z(u):  # u = log variance, log length scale
        K = squared_exponential(X, np.exp(u[0]), np.exp(u[1]))
        ev = Laplace()(K, y, likelihood)
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


def test_curvature_may_underflow():
    """Labels so well explained that W = 0 to working precision: an attempt that divides by W gives NaN."""
    K = 1e12 * np.eye(4)
    y = np.array([1.0, -1.0, 1.0, -1.0])
    start = 800.0 * y  # W = exp(-800) = 0 at the first factorisation
    ev = Laplace()(K, y, Logistic(), start)
    assert np.isfinite(ev.log_z)
    assert np.isfinite(ev.dK).all()
    np.testing.assert_allclose(ev.log_z, Laplace()(K, y, Logistic()).log_z, rtol=1e-10)


def test_an_indefinite_matrix_is_a_typed_error():
    K = np.array([[1.0, 30.0], [30.0, 1.0]])
    with pytest.raises(NotPositiveDefinite, match="no Cholesky factor"):
        Laplace()(K, np.array([1.0, -1.0]), Logistic())


@pytest.mark.parametrize(("variance", "length_scale"), [(1e12, 1e4), (1e30, 0.3)])
def test_noise_is_not_called_an_answer(variance, length_scale):
    """Opposite labels on nearly equal rows: K α cancels to nothing in double precision."""
    X, y, _ = classification_problem(24, 2, seed=2)
    K = squared_exponential(np.vstack([X, X]), variance, length_scale)
    with pytest.raises((NotConverged, NotPositiveDefinite)):
        Laplace()(K, np.concatenate([y, -y]), Logistic())


def test_whether_noise_is_refused_does_not_hang_on_the_last_bit():
    """As above, with K rounded in twenty other ways."""
    X, y, _ = classification_problem(24, 2, seed=2)
    K = squared_exponential(np.vstack([X, X]), 1e12, 1e4)
    rng = np.random.default_rng(0)
    for _ in range(20):
        E = np.triu(rng.choice([-(2.0**-52), 0.0, 2.0**-52], size=K.shape))
        with pytest.raises((NotConverged, NotPositiveDefinite)):
            Laplace()(K * (1.0 + np.maximum(E, E.T)), np.concatenate([y, -y]), Logistic())


def exact_laplace_log_z(K, y, logistic):
    """Log Z of Laplace's approximation, by Newton's method in 60 digits."""
    with mpmath.workdps(60):
        n, K, psi = len(y), mpmath.matrix(K.tolist()), -mpmath.inf
        alpha, step, length = mpmath.zeros(n, 1), mpmath.zeros(n, 1), mpmath.mpf(1)
        while True:
            f = K * (alpha + length * step)
            if logistic:
                p = [1 / (1 + mpmath.exp(-yi * fi)) for yi, fi in zip(y, f, strict=True)]
                slopes, W = [1 - pi for pi in p], mpmath.diag([pi * (1 - pi) for pi in p])
            else:
                p = [mpmath.erfc(-yi * fi / mpmath.sqrt(2)) / 2 for yi, fi in zip(y, f, strict=True)]
                slopes = [mpmath.npdf(fi) / pi for fi, pi in zip(f, p, strict=True)]
                W = mpmath.diag([r * (r + yi * fi) for r, yi, fi in zip(slopes, y, f, strict=True)])
            trial = mpmath.fsum(mpmath.log(pi) for pi in p) - ((alpha + length * step).T * f)[0] / 2
            if trial < psi - mpmath.mpf(10) ** -50:
                length /= 2
                continue
            alpha, psi, length = alpha + length * step, trial, mpmath.mpf(1)
            r = mpmath.matrix([yi * s for yi, s in zip(y, slopes, strict=True)]) - alpha
            step = mpmath.lu_solve(mpmath.eye(n) + W * K, r)
            if (r.T * K * step)[0] < mpmath.mpf(10) ** -40:
                return float(psi - mpmath.log(mpmath.det(mpmath.eye(n) + W * K)) / 2)


@pytest.mark.parametrize("likelihood", [Logistic(), Probit()], ids=repr)
@pytest.mark.parametrize(
    ("x", "y", "variance", "length_scale"),
    [
        ([0.0, 1.2, 0.0], [1, 1, -1], 4.5e11, 0.84),  # a small decrement that still moves the row without a copy by 1
        ([0.0, 1.0], [1, 1], 1e15, 10.0),  # the first steps leave f and Kα apart
        ([0.0, 0.5, -0.7, 0.9, -0.2], [1, 1, 1, -1, -1], 1e15, 8.0),
        ([0.0, 1.0, 2.0, 3.0], [1, -1, 1, 1], 3e26, 3.4),  # W underflows on the way
        ([0.0, 0.4, 0.8], [1, 1, -1], 1e24, 30.0),
        ([0.0, 0.4, 0.8], [1, 1, -1], 1e8, 3.0),
    ],
)
def test_huge_prior_variances_are_right_or_refused(x, y, variance, length_scale, likelihood):
    y = np.array(y, dtype=float)
    K = squared_exponential(np.array(x)[:, None], variance, length_scale)
    expected = exact_laplace_log_z(K, y, isinstance(likelihood, Logistic))
    try:
        log_z = Laplace()(K, y, likelihood, gradient=False).log_z
    except (NotConverged, NotPositiveDefinite):
        assert variance > 1e10
    else:
        np.testing.assert_allclose(log_z, expected, atol=1e-3)


@pytest.mark.parametrize("bad", [{"tol": 0.0}, {"tol": "a"}, {"max_iter": 0}, {"max_iter": 2.5}])
def test_settings_are_checked(bad):
    with pytest.raises(InvalidInput, match="of Laplace must"):
        Laplace(**bad)


def test_nan_is_a_typed_error():
    K = np.full((3, 3), np.nan)
    with pytest.raises((NotPositiveDefinite, NotConverged)):
        Laplace()(K, np.array([1.0, -1.0, 1.0]), Logistic())


def test_factor_and_gradient_share_memory():
    _, y, K = classification_problem(10, 2)
    with pytest.raises(InvalidInput, match="gradient=False"):
        Laplace()(K, y, Logistic()).posterior.predict(K, np.diag(K))


def test_every_start_leads_to_the_same_number_where_a_lonely_row_is_vast():
    """Its W of 1e-5 makes log|B| sensitive to steps far below the tolerance on the decrement."""
    y = np.array([-1.0, -1.0, 1.0, -1.0, -1.0])  # copies that contradict each other
    K = np.full((5, 5), 9e4)
    K[0], K[:, 0], K[0, 0] = 1.3e4, 1.3e4, 1.85e6
    cold = Laplace()(K, y, Probit())
    for scale in np.linspace(0.9, 1.1, 21):
        near = K * scale
        near[0, 0] *= scale
        warm = Laplace()(K, y, Probit(), Laplace()(near, y, Probit()).posterior.f)
        np.testing.assert_allclose(warm.log_z, cold.log_z, rtol=0.0, atol=3e-8)


def test_warm_start_saves_factorisations():
    X, y, K = classification_problem(150, 4)
    start = Laplace()(K, y, Logistic()).posterior.start
    near = squared_exponential(X, 3.1, 1.52)
    assert Laplace()(near, y, Logistic(), start).n_iter == 1  # two factorisations, the second one at the mode
    assert Laplace()(near, y, Logistic()).n_iter >= 2


@pytest.mark.parametrize("likelihood", [Probit(), Logistic()], ids=str)
def test_leaves_one_out_by_linear_response(likelihood):
    """With explicit inverses."""
    _, y, K = classification_problem(20, 2)
    K += 0.1 * np.eye(20)
    posterior = Laplace()(K, y, likelihood, gradient=False).posterior
    mean, variance = posterior.cavity()
    W = -likelihood.derivatives(y, posterior.f).second
    R = np.linalg.inv(K + np.diag(1.0 / W))
    v = 1.0 / np.diag(R) - 1.0 / W
    np.testing.assert_allclose(variance, v, rtol=1e-9)
    np.testing.assert_allclose(mean, posterior.f - v * likelihood.derivatives(y, posterior.f).first, atol=1e-9)
    with pytest.raises(InvalidInput, match="gradient=False"):
        Laplace()(K, y, likelihood).posterior.cavity()
