"""Student-t likelihood: its terms and averages, and its Laplace approximation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import logsumexp

from hmcgp.errors import InvalidInput, NotConverged
from hmcgp.evidence import Exact, Laplace
from hmcgp.evidence.low_rank import LowRank
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian, StudentT
from tests.helpers.checks import check_gradient, random_symmetric, squared_exponential
from tests.helpers.responses import grid_log_evidence, parameter_vector

WEIGHTS = np.random.default_rng(3).uniform(0.4, 2.5, 60)
LIKELIHOOD = StudentT(0.04, 4.0)
OBSERVED = Laplace(curvature="observed")
both_curvatures = pytest.mark.parametrize("laplace", [Laplace(), OBSERVED], ids=["expected", "observed"])


def contaminated(n, seed=0, share=7):
    """Inputs, numbers of which some are far off, and a covariance matrix."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    K = squared_exponential(X, 1.5, 1.2) + 0.01 * np.eye(n)
    y = np.linalg.cholesky(K) @ rng.normal(size=n) + 0.2 * rng.normal(size=n)
    y[::share] += 4.0 * rng.normal(size=len(y[::share]))
    return X, y, K


def test_terms_are_those_of_scipy_and_their_differences():
    y, f, h = np.linspace(-3.0, 4.0, 29), np.linspace(1.0, -1.0, 29), 6e-6
    np.testing.assert_allclose(LIKELIHOOD.log_prob(y, f), stats.t(4.0, f, 0.2).logpdf(y), rtol=1e-12)
    here, up, down = (LIKELIHOOD.derivatives(y, f + step) for step in (0.0, h, -h))
    assert (here.second > 0.0).any()  # not log-concave
    for order in (1, 2, 3):
        numeric = (up[order - 1] - down[order - 1]) / (2.0 * h)
        np.testing.assert_allclose(here[order], numeric, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weight", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(("noise", "nu"), [(0.04, 4.0), (1e-4, 2.1), (1.0, 80.0)])
def test_averages_over_a_gaussian(noise, nu, weight):
    likelihood = StudentT(noise, nu).weighted([weight] * 4)
    y, mean, variance = np.array([-5.0, 0.1, 0.6, 3.0]), np.zeros(4), np.array([0.01, 0.5, 4.0, 1.0])
    found = likelihood.log_weighted_average(y, mean, variance)
    log_p = StudentT(noise, nu)
    for i in range(4):
        f = np.unique(
            np.concatenate([y[i] + np.sqrt(noise) * np.sinh(np.linspace(-14, 14, 40001)), np.linspace(-25, 25, 40001)])
        )
        f = f[np.abs(f) < 12.0 * np.sqrt(variance[i])]
        values = weight * log_p.log_prob(np.full(len(f), y[i]), f) - 0.5 * f**2 / variance[i]
        expected = np.log(integrate.trapezoid(np.exp(values), f)) - 0.5 * np.log(2.0 * np.pi * variance[i])
        np.testing.assert_allclose(found[i], expected, atol=1e-5)


def test_distribution_function_and_outlying_probabilities():
    y, mean, variance = np.array([-5.0, 0.1, 0.6, 3.0]), np.zeros(4), np.array([0.01, 0.5, 4.0, 1.0])
    z = np.linspace(-10.0, 10.0, 4001)
    for i in range(4):
        f = np.sqrt(variance[i]) * z
        log_w = stats.norm.logpdf(z) + LIKELIHOOD.log_prob(np.full(len(f), y[i]), f)
        outside = np.exp(logsumexp(log_w[np.abs(y[i] - f) > 0.6]) - logsumexp(log_w)) if variance[i] > 0.1 else 1.0
        cdf = np.average(stats.t(4.0, f, 0.2).cdf(y[i]), weights=stats.norm.pdf(z))
        np.testing.assert_allclose(LIKELIHOOD.distribution(y, mean, variance)[i], cdf, atol=1e-6)
        np.testing.assert_allclose(LIKELIHOOD.outlying(y, mean, variance, 3.0)[i], outside, atol=5e-3)


def test_draws_have_the_variance():
    y = LIKELIHOOD.draw(np.random.default_rng(0), np.full(200_000, 1.0))
    np.testing.assert_allclose(np.median(y), 1.0, atol=2e-3)
    np.testing.assert_allclose(np.quantile(y, 0.9) - 1.0, 0.2 * stats.t(4.0).ppf(0.9), rtol=0.02)
    np.testing.assert_allclose(LIKELIHOOD.row_noise(1), 0.08)
    assert np.isinf(StudentT(0.1, 1.5).row_noise(1))


@both_curvatures
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [3, 12, 60])
def test_gradients_match_central_differences(n, weighted, laplace):
    _, y, K = contaminated(n, seed=n)
    likelihood = LIKELIHOOD.weighted(WEIGHTS[:n]) if weighted else LIKELIHOOD
    found, rng, h = laplace(K, y, likelihood), np.random.default_rng(1), 1e-4
    assert n < 12 or (found.posterior.observed_w < 0.0).any()
    np.testing.assert_array_equal(found.dK, found.dK.T)
    for _ in range(3):
        V = 1e-3 * random_symmetric(rng, n)
        up1, down1, up2, down2 = (laplace(K + c * h * V, y, likelihood).log_z for c in (1.0, -1.0, 2.0, -2.0))
        numeric = (8.0 * (up1 - down1) - (up2 - down2)) / (12.0 * h)
        np.testing.assert_allclose(np.sum(found.dK * V), numeric, rtol=1e-6, atol=1e-6)
    vector, at = parameter_vector(likelihood)
    check_gradient(lambda x: (laplace(K, y, at(x)).log_z, laplace(K, y, at(x)).dlik), vector, step=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_log_evidence_is_close_to_brute_force(n):
    """The error is a fifth of a nat a row at three degrees of freedom; "observed": vanishes as the prior narrows."""
    _, y, K = contaminated(n, seed=2, share=1000)
    y[0] -= y[0]
    for nu, error in ((3.0, 0.2), (30.0, 0.05)):
        likelihood = StudentT(0.3, nu)
        for laplace in (Laplace(), OBSERVED):
            assert abs(laplace(K, y, likelihood).log_z - grid_log_evidence(K, y, likelihood)) < error * n
        far, narrow = y + 3.0, 0.01 * K
        assert abs(OBSERVED(narrow, far, likelihood).log_z - grid_log_evidence(narrow, far, likelihood)) < 1e-3


def test_many_degrees_of_freedom_are_gaussian_noise():
    _, y, K = contaminated(40)
    one, two = Laplace()(K, y, StudentT(0.5, 1e7)), Exact()(K, y, Gaussian(0.5))
    np.testing.assert_allclose(one.log_z, two.log_z, rtol=1e-5)
    np.testing.assert_allclose(one.dK, two.dK, atol=1e-3)


def test_the_evidence_does_not_depend_on_the_start():
    _, y, K = contaminated(60)
    cold = Laplace()(K, y, LIKELIHOOD)
    for start in (cold.posterior.start, np.full(60, 1e3), -y):
        assert Laplace()(K, y, LIKELIHOOD, start).log_z == cold.log_z
    assert Laplace()(K, y, LIKELIHOOD, gradient=False).log_z == cold.log_z


def test_the_maximum_is_one_and_the_search_never_fails():
    """Over wide ranges of noise, tails and prior variance: K⁻¹ + W is positive definite, or NotConverged."""
    rng, failures = np.random.default_rng(0), 0
    for k in range(60):
        _, y, K = contaminated(25, seed=k, share=int(rng.integers(2, 8)))
        K *= 10.0 ** rng.uniform(-2.0, 2.0)
        likelihood = StudentT(10.0 ** rng.uniform(-5.0, 1.0), 1.0 + 10.0 ** rng.uniform(-1.0, 2.0))
        try:
            found = Laplace()(K, y, likelihood)
        except NotConverged:
            failures += 1
            continue
        f, w = found.posterior.f, found.posterior.observed_w
        np.testing.assert_allclose(likelihood.terms(y, f).g, found.posterior.alpha, rtol=1e-5, atol=1e-5)
        assert np.linalg.eigvalsh(np.linalg.inv(K) + np.diag(w)).min() > 0.0
    assert failures <= 1


def test_a_saddle_is_left():
    """Two rows that contradict each other: halfway between them Ψ has no slope and bends upwards."""
    K, y = np.array([[1.0, 1.0], [1.0, 1.0]]) + 1e-3 * np.eye(2), np.array([-1.0, 1.0])
    found = Laplace()(K, y, StudentT(1e-3, 3.0))
    assert abs(found.posterior.f[0]) > 0.9
    assert np.linalg.eigvalsh(np.linalg.inv(K) + np.diag(found.posterior.observed_w)).min() > 0.0


def test_few_factorisations_find_the_maximum():
    counts = [Laplace()(K, y, LIKELIHOOD).n_iter + 1 for _, y, K in (contaminated(80, seed=k) for k in range(10))]
    assert np.mean(counts) < 6.0  # 11 by expectation maximisation and Newton's method alone


@pytest.mark.parametrize(
    ("noise", "nu", "log_z", "gradient"),
    [
        (0.3, 5.0, -29.4374264600557, [-0.66295322, 4.76995859, -26.1603125, -23.6966122, 0.46050331]),
        (1.0, 4.0, -40.4282487419175, [-0.55910188, 3.03948213, -11.8456132, -9.97092802, 0.65017153]),
    ],
)
def test_laplace_is_that_of_gpy(noise, nu, log_z, gradient):
    """GPy 1.15.0: RBF of variance 1.5 and length scale 1.2 plus White of 0.01, StudentT, Laplace.

    Without outliers: GPy lifts negative W to 1e-6.
    """
    X, y, K = contaminated(30, share=1000)
    y[0] = 0.0
    found = OBSERVED(K, y, StudentT(noise, nu))
    assert (found.posterior.w > 0.0).all()
    smooth, distances = K - 0.01 * np.eye(30), np.sum((X[:, None] - X[None]) ** 2, axis=2)
    own = [np.sum(found.dK * dK) for dK in (smooth / 1.5, smooth * distances / 1.2**3, np.eye(30))]
    np.testing.assert_allclose(found.log_z, log_z, rtol=1e-8)
    np.testing.assert_allclose([*own, *found.dlik], gradient, rtol=1e-6)


def test_a_row_that_is_far_off_hardly_counts():
    _, y, K = contaminated(40, share=1000)
    far = y.copy()
    far[5] += 100.0
    without = np.delete(np.arange(40), 5)
    mean = Laplace()(K, far, LIKELIHOOD, gradient=False).posterior.f[without]
    rest = Laplace()(np.ascontiguousarray(K[np.ix_(without, without)]), y[without], LIKELIHOOD, gradient=False)
    np.testing.assert_allclose(mean, rest.posterior.f, atol=0.02)


def test_cavities_and_predictions():
    _, y, K = contaminated(40)
    posterior = Laplace()(K, y, LIKELIHOOD, gradient=False).posterior
    mean, variance = posterior.predict(K, np.diag(K).copy())
    np.testing.assert_allclose(mean, posterior.f, atol=1e-9)
    np.testing.assert_allclose(variance, posterior.variances, atol=1e-9)
    keep = np.delete(np.arange(40), 8)
    rest = Laplace()(np.ascontiguousarray(K[np.ix_(keep, keep)]), y[keep], LIKELIHOOD, gradient=False).posterior
    expected = rest.predict(K[keep][:, [8]], K[8, [8]])
    np.testing.assert_allclose([part[8] for part in posterior.cavity()], np.ravel(expected), atol=0.05)
    with pytest.raises(InvalidInput, match="computed with its gradient"):
        Laplace()(K, y, LIKELIHOOD).posterior.predict(K, np.diag(K))


@both_curvatures
def test_low_rank_agrees_with_its_dense_matrix(laplace):
    X, y, _ = contaminated(60)
    K, k, _ = SquaredExponential(1.5, 1.2).inducing_vjp(np.vstack([X[:8], X]), X[:8])
    C = LowRank.of(K, k)
    low, dense = laplace(C, y, LIKELIHOOD), laplace(C.dense(), y, LIKELIHOOD)
    np.testing.assert_allclose(low.log_z, dense.log_z, rtol=1e-9)
    np.testing.assert_allclose(low.dlik, dense.dlik, rtol=1e-6)
    for part, other in zip(low.posterior.cavity(), dense.posterior.cavity(), strict=True):
        np.testing.assert_allclose(part, other, atol=1e-7)


def test_one_factorisation_is_not_enough():
    _, y, K = contaminated(20)
    with pytest.raises(NotConverged, match=r"decrement .* after 1 factorisation"):
        Laplace(max_iter=1)(K, y, LIKELIHOOD)


def test_one_output_only():
    with pytest.raises(InvalidInput, match="StudentT explains one output; 'y' has 2 columns"):
        LIKELIHOOD.check_targets(np.zeros((4, 2)))
    with pytest.raises(InvalidInput, match="'degrees_of_freedom' of StudentT must be positive"):
        StudentT(0.1, 0.0)
    with pytest.raises(InvalidInput, match="no closed form"):
        LIKELIHOOD.pull_back(np.ones(3))


def test_terms_broadcast():
    """One target and many latent values, of any shape."""
    likelihood, f = StudentT(0.5, 3.0), np.linspace(-3.0, 3.0, 50)
    one = likelihood.log_prob(np.zeros(1), f)
    np.testing.assert_allclose(one, likelihood.log_prob(np.zeros(50), f), rtol=1e-15)
    np.testing.assert_array_equal(likelihood.derivatives(0.0, f.reshape(5, 10)).log_prob, one.reshape(5, 10))


def test_null_vectors_of_the_covariance_do_not_lead_astray():
    """Copied rows and a huge outlier: along null vectors of K nothing but rounding would hold α back."""
    y = np.full(32, 0.03)
    y[30] = 1e6
    groups = np.arange(32) % 3
    K = 25.0 * np.where(groups[:, None] == groups, 1.0, 0.8)
    found = [Laplace()(factor * K, y, StudentT(1.4e-3, 3.0)) for factor in np.linspace(0.999, 1.001, 21)]
    assert np.ptp([one.log_z for one in found]) < 0.1
    assert max(one.n_iter for one in found) < 12


def test_the_posterior_is_never_wider_than_the_prior():
    """Observed curvature: K⁻¹ + W nearly singular made standard deviations a thousand times those of the prior."""
    ratios = {Laplace(): 0.0, OBSERVED: 0.0}
    for k in range(40):
        _, y, K = contaminated(25, seed=k, share=3)
        for laplace, largest in ratios.items():
            posterior = laplace(K, y, StudentT(0.02 * (1.0 + k % 5), 2.3), gradient=False).posterior
            ratios[laplace] = max(largest, float(np.max(posterior.variances / np.diag(K))))
    assert ratios[Laplace()] < 1.0 < ratios[OBSERVED]


def mixture_moments(K, y, likelihood, k_new, n_samples=60_000):
    """Log evidence, and mean and variance of a new latent value, from scales drawn from the gamma mixture."""
    (noise, nu), n = likelihood.values(), len(y)
    scales = noise / np.random.default_rng(0).gamma(0.5 * nu, 2.0 / nu, size=(n_samples, n))
    C = K + scales[:, :, None] * np.eye(n)
    targets = np.broadcast_to(np.column_stack([y, k_new]), (n_samples, n, 2))
    solved = np.linalg.solve(C, targets)
    log_w = -0.5 * (solved[:, :, 0] @ y + np.linalg.slogdet(C)[1] + n * np.log(2.0 * np.pi))
    share, mean, variance = np.exp(log_w - logsumexp(log_w)), solved[:, :, 0] @ k_new, solved[:, :, 1] @ k_new
    centre = share @ mean
    return logsumexp(log_w) - np.log(n_samples), centre, K[0, 0] - share @ variance + share @ (mean - centre) ** 2


def test_expected_curvature_is_at_least_as_close_to_brute_force():
    """Tables with and without outliers: log evidence, and predictive standard deviations."""
    errors = []
    for k in range(16):
        rng = np.random.default_rng(k)
        x = np.sort(rng.uniform(-2.0, 2.0, 6))
        K = 2.0 * np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-6 * np.eye(6)
        y = np.linalg.cholesky(K) @ rng.normal(size=6) + 0.3 * rng.standard_t(3.0, size=6)
        y[k % 6] += 3.0 * (k % 2)
        k_new, likelihood = 2.0 * np.exp(-0.5 * (x - 0.3) ** 2), StudentT(0.09, 3.0)
        log_z, _, variance = mixture_moments(K, y, likelihood, k_new)
        for laplace in (Laplace(), OBSERVED):
            found = laplace(K, y, likelihood, gradient=False)
            _, own = found.posterior.predict(k_new[:, None], np.array([2.0]))
            errors.append([found.log_z - log_z, 0.5 * np.log(own[0] / variance)])
    expected, observed = (np.sqrt(np.mean(np.square(errors[first::2]), axis=0)) for first in (0, 1))
    assert expected[0] < 0.9 * observed[0]
    assert expected[1] < 1.02 * observed[1]
    assert (expected < [0.5, 0.3]).all()


@both_curvatures
def test_leaving_rows_out_is_a_refit(laplace):
    """Variances of the cavity were negative for some rows where other rows are outliers: log densities were NaN."""
    rng, likelihood, n_improper = np.random.default_rng(0), StudentT(0.0202, 2.32), 0
    for k in range(6):
        X = rng.normal(size=(30, 2)) / [0.74, 1.87]
        K = 0.79 * np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=2)) + 1e-8 * np.eye(30)
        y = np.linalg.cholesky(K) @ rng.normal(size=30) + np.sqrt(0.0202) * rng.normal(size=30)
        y[k] += 3.0
        posterior = laplace(K, y, likelihood, gradient=False).posterior
        observed = np.diagonal(np.linalg.inv(np.linalg.inv(K) + np.diag(posterior.observed_w)))
        n_improper += int(np.sum(observed * posterior.observed_w > 1.0))
        found, expected = likelihood.log_average(y, *posterior.cavity()), np.empty(30)
        for i in range(30):
            rest = np.delete(np.arange(30), i)
            part = laplace(np.ascontiguousarray(K[np.ix_(rest, rest)]), y[rest], likelihood, gradient=False).posterior
            mean, variance = part.predict(K[rest][:, [i]], K[i, [i]])
            f = mean + np.sqrt(variance) * np.linspace(-12.0, 12.0, 20_001)
            density = np.exp(likelihood.log_prob(np.full(len(f), y[i]), f)) * stats.norm.pdf(f, mean, np.sqrt(variance))
            expected[i] = np.log(integrate.trapezoid(density, f))
        np.testing.assert_allclose(found, expected, atol=0.15 if laplace is not OBSERVED else 0.5)
    assert n_improper > 0


def test_curvature_is_checked():
    with pytest.raises(InvalidInput, match="'curvature' of Laplace must be 'expected' or 'observed'; got 'fisher'"):
        Laplace(curvature="fisher")
