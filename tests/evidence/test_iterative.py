"""The iterative solver of exact regression: against Cholesky, its bounds, its gradient, and where it must give up."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp import Model, find_map, sample
from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import Exact, Iterative
from hmcgp.evidence.iterative.conjugate_gradients import conjugate_gradients
from hmcgp.evidence.iterative.preconditioner import precondition
from hmcgp.kernels import Linear, Matern, SquaredExponential
from hmcgp.likelihoods import Gaussian, VaryingNoise
from hmcgp.posterior import leave_one_out
from hmcgp.posterior.predict import latent_moments, observed_jointly
from hmcgp.samplers import HMC
from tests.helpers import evidence_contract as contract
from tests.helpers.checks import check_gradient, squared_exponential

N = 150
ITERATIVE = Iterative(rank=40, probes=8, tol=1e-9)


def problem(n=N, d=2, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, -1] + np.sqrt(noise) * rng.normal(size=n)


def uneven(n):
    """Noise that differs by a factor of 30 between rows."""
    return Gaussian(0.0, known=tuple(0.3 * np.exp(-np.linspace(0.0, 3.4, n))))


@pytest.mark.parametrize("likelihood", [Gaussian(0.1), uneven(N)], ids=["even", "uneven"])
def test_everything_that_is_not_random_agrees_with_cholesky(likelihood):
    X, y = problem()
    K = squared_exponential(X, 2.0, 0.8)
    ev, ref = (p(K, y, likelihood, gradient=False) for p in (ITERATIVE, Exact()))
    np.testing.assert_allclose(ev.posterior.alpha, ref.posterior.alpha, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ev.posterior.f, ref.posterior.f, atol=1e-8)
    X_new = np.random.default_rng(1).normal(size=(7, 2))
    both = squared_exponential(np.vstack([X, X_new]), 2.0, 0.8)
    K_cross, K_new = both[:N, N:], both[N:, N:]
    for ours, theirs in zip(
        ev.posterior.predict(K_cross, np.diag(K_new)), ref.posterior.predict(K_cross, np.diag(K_new)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    mean, covariance = ev.posterior.predict_jointly(K_cross, K_new)
    np.testing.assert_allclose(mean, ref.posterior.predict_jointly(K_cross, K_new)[0], atol=1e-9)
    np.testing.assert_allclose(covariance, ref.posterior.predict_jointly(K_cross, K_new)[1], atol=1e-9)
    np.testing.assert_array_equal(covariance, covariance.T)


@pytest.mark.parametrize("likelihood", [Gaussian(0.1), uneven(N)], ids=["even", "uneven"])
def test_the_estimates_average_to_the_evidence_and_its_gradient(likelihood):
    """Over 40 seeds, within four standard errors; a wrong sign or factor anywhere is hundreds of them away."""
    X, y = problem()
    model = Model(X, y, kernel=SquaredExponential(ard=True), likelihood=likelihood)
    theta = np.array([2.0, 0.8, 1.2] + ([0.1] if likelihood.known is None else []))
    model = model if likelihood.known else Model(X, y, kernel=SquaredExponential(ard=True), likelihood="gaussian")

    def both(provider):
        log_z, grad = model.with_evidence(provider).log_evidence(theta)
        return np.concatenate([[log_z], grad])

    found = np.array([both(Iterative(probes=4, rank=20, seed=s)) for s in range(40)])
    error = (found.mean(axis=0) - both(Exact())) / (found.std(axis=0) / np.sqrt(len(found)))
    assert (np.abs(error) < 4.0).all(), error


def test_a_model_of_full_rank_leaves_nothing_to_chance():
    X, y = problem()
    K = squared_exponential(X, 2.0, 0.8)
    ev, ref = Iterative(rank=N, probes=2)(K, y, Gaussian(0.1)), Exact()(K, y, Gaussian(0.1))
    np.testing.assert_allclose(ev.log_z, ref.log_z, atol=1e-4)  # the jitter at the pivots
    np.testing.assert_allclose(ev.dlik, ref.dlik, rtol=1e-4)
    assert ev.n_iter <= 4


@pytest.mark.parametrize("rank", [1, 12, 60])
def test_the_low_rank_model_against_dense_matrices(rank):
    X, _ = problem(60)
    K, noise = squared_exponential(X, 2.0, 0.8), uneven(60).row_noise(60)
    P = precondition(K, noise, np.arange(rank))
    dense = P.W.T @ P.W + np.diag(noise)
    V = np.random.default_rng(0).normal(size=(3, 60))
    np.testing.assert_allclose(P.solve(V) @ dense, V, atol=1e-10)
    np.testing.assert_allclose(P.log_determinant(), np.linalg.slogdet(dense)[1], rtol=1e-10)
    np.testing.assert_allclose(P.inverse_diagonal(), np.diag(np.linalg.inv(dense)), rtol=1e-9)
    np.testing.assert_allclose(P.factor_solve() @ dense, P.W, atol=1e-10)
    np.testing.assert_allclose((P.W.T @ P.W)[:rank], K[:rank], atol=1e-4)  # the jitter
    assert np.linalg.eigvalsh(K + np.diag(noise) - dense).min() > -1e-12  # so that the eigenvalues of P⁻¹C are >= 1


@pytest.mark.parametrize("max_products", [1, 3, 6, 10])
@pytest.mark.parametrize("likelihood", [Gaussian(0.1), uneven(N)], ids=["even", "uneven"])
def test_bounds_bracket_the_quadratic_form(max_products, likelihood):
    """However early the iteration is stopped; and they close in on it."""
    X, y = problem()
    K, noise = squared_exponential(X, 2.0, 0.8), likelihood.row_noise(N)
    P = precondition(K, noise, np.arange(0, N, 10))
    tol = 1.0
    while True:  # the loosest tolerance that takes as many products
        solved = conjugate_gradients(K, P, y[None], tol, 100)
        if len(solved.steps) >= max_products:
            break
        tol *= 0.7
    lower = float(solved.X[0] @ (y + solved.residuals[0]))
    exact = y @ np.linalg.solve(K + np.diag(noise), y)
    np.testing.assert_allclose(solved.residuals[0], y - K @ solved.X[0] - noise * solved.X[0], atol=1e-12)
    assert lower <= exact <= lower + solved.width[0]
    assert solved.width[0] <= tol**2 * solved.scale[0]
    # Skilling's upper bound as it is written, with C = A + λI and λ the least noise, is the looser one
    x, lam = solved.X[0], noise.min()
    A = K + np.diag(noise - lam)
    written = (0.5 * y @ y - (x @ A @ y - 0.5 * x @ A @ (A @ x + lam * x))) / lam
    assert 0.5 * (lower + solved.width[0]) <= written * (1.0 + 1e-12)


def test_the_bracket_of_an_evidence_is_narrow():
    X, y = problem()
    K = squared_exponential(X, 2.0, 0.8)
    low, high = ITERATIVE(K, y, Gaussian(0.1)).posterior.bracket
    exact = 0.5 * y @ np.linalg.solve(K + 0.1 * np.eye(N), y)
    assert low - 1e-12 <= exact <= high + 1e-12
    assert high - low < 1e-15 * N


@pytest.mark.parametrize(
    ("kernel", "likelihood"),
    [
        (SquaredExponential(ard=True), Gaussian()),
        (Matern(nu=2.5) + Linear(), Gaussian()),
        (SquaredExponential(), Gaussian(known=uneven(N).known)),
        (SquaredExponential(), VaryingNoise()),
    ],
    ids=["ard", "sum", "known", "varying"],
)
@pytest.mark.parametrize("rank", [1, 40, 150])
def test_the_gradient_is_that_of_the_value(kernel, likelihood, rank):
    """Few probes: an estimate far from log|C|, and still one smooth function."""
    X, y = problem()
    provider = Iterative(rank=rank, probes=2, tol=1e-9)
    model = Model(X, y, kernel=kernel, likelihood=likelihood, evidence=provider)
    u = 0.3 * np.random.default_rng(rank).normal(size=model.n_dim)
    check_gradient(model.logdensity_and_grad, u, rtol=2e-6, atol=2e-5)


def test_the_gradient_is_as_consistent_as_the_residual_is_small():
    X, y = problem()
    u, errors = np.array([0.3, -0.2, -1.5]), []
    for tol in (1e-2, 1e-4, 1e-6):
        provider = Iterative(rank=20, probes=4, tol=tol)
        model = Model(X, y, kernel=SquaredExponential(), likelihood="gaussian", evidence=provider)
        h = np.array([0.0, 1e-3, 0.0])
        numeric = (model.logdensity_and_grad(u + h)[0] - model.logdensity_and_grad(u - h)[0]) / 2e-3
        errors.append(abs(model.logdensity_and_grad(u)[1][1] - numeric))
    assert errors[0] > 10.0 * errors[1]
    assert errors[2] < 1e-3


def test_calls_repeat_to_the_last_bit_and_seeds_differ():
    X, y = problem()
    K = squared_exponential(X, 2.0, 0.8)
    one, two = (ITERATIVE(K, y, Gaussian(0.1), start) for start in (None, np.full(N, 3.0)))
    assert one.log_z == two.log_z
    np.testing.assert_array_equal(one.dK, two.dK)
    assert Iterative(seed=1)(K, y, Gaussian(0.1)).log_z != Iterative()(K, y, Gaussian(0.1)).log_z


# the preconditioner takes rows in their order, which must not matter to other providers
APPLIES = [check for check in contract.CHECKS if check is not contract.order_of_the_data_does_not_matter]


@pytest.mark.parametrize("check", APPLIES, ids=lambda check: check.__name__)
def test_contract(check):
    check(Iterative(tol=1e-10, rank=10), Gaussian(1.0))


@pytest.mark.parametrize("n", [3, 12, 40])
def test_contract_of_derivatives(n):
    contract.dK_matches_central_differences(Iterative(tol=1e-11, rank=4), Gaussian(1.0), n)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_contract_of_starts(scale):
    contract.cold_and_warm_starts_agree(Iterative(tol=1e-9), Gaussian(1.0), scale)
    contract.an_absurd_start_is_survived(Iterative(tol=1e-9), Gaussian(1.0), 1e3)


def test_one_row_and_targets_of_zero():
    one = ITERATIVE(np.array([[2.0]]), np.array([1.0]), Gaussian(0.5))
    np.testing.assert_allclose(one.log_z, Exact()(np.array([[2.0]]), np.array([1.0]), Gaussian(0.5)).log_z, rtol=1e-12)
    X, _ = problem(30)
    zero = ITERATIVE(squared_exponential(X, 1.0, 1.0), np.zeros(30), Gaussian(0.5))
    assert (zero.posterior.f == 0.0).all()
    assert np.isfinite(zero.dK).all()


def test_too_few_products_are_explained():
    X, y = problem()
    K = squared_exponential(X, 2.0, 0.3)
    message = r"residual .* > tol 1\.0e-04 after 2 products with K .* rank 5\); increase 'rank' or 'max_products'"
    with pytest.raises(NotConverged, match=message):
        Iterative(rank=5, max_products=2)(K, y, Gaussian(1e-3))


def test_matrices_that_are_no_covariances_are_refused():
    X, y = problem(30)
    K = squared_exponential(X, 1.0, 1.0)
    with pytest.raises(NotPositiveDefinite, match="needs noise in every row"):
        ITERATIVE(K, y, Gaussian(0.0, known=(0.0,) + 29 * (0.1,)))
    with pytest.raises(NotPositiveDefinite, match="negative eigenvalue"):
        Iterative(rank=1)(K - 5.0 * np.eye(30)[::-1], y, Gaussian(0.1))
    for bad in (np.nan, np.inf):
        broken = K.copy()
        broken[3, 7] = broken[7, 3] = bad
        with pytest.raises(NotPositiveDefinite), np.errstate(all="ignore"):
            ITERATIVE(broken, y, Gaussian(0.1))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"tol": 0.0}, "'tol' of Iterative must lie between 0 and 1"),
        ({"tol": "small"}, "'tol' of Iterative must lie between 0 and 1"),
        ({"probes": 0}, "'probes' of Iterative must be an integer >= 1; got 0"),
        ({"probes": None}, "'probes' of Iterative must be an integer >= 1; got None"),
        ({"rank": 0}, "'rank' of Iterative must be an integer >= 1; got 0"),
        ({"rank": 2.5}, "'rank' of Iterative must be an integer >= 1"),
        ({"seed": -1}, "'seed' of Iterative must be an integer >= 0"),
        ({"max_products": 0}, "'max_products' of Iterative must be an integer >= 1"),
    ],
)
def test_settings_are_checked(setting, message):
    with pytest.raises(InvalidInput, match=message):
        Iterative(**setting)


def test_predictions_through_a_model_and_what_is_not_offered():
    X, y = problem()
    model = Model(X, y, kernel=SquaredExponential(), likelihood="gaussian")
    iterative = model.with_evidence(Iterative(tol=1e-8))
    draws, X_new = np.array([[1.0, 1.0, 0.1], [2.0, 0.7, 0.3]]), X[:5] + 0.1
    np.testing.assert_allclose(latent_moments(iterative, draws, X_new), latent_moments(model, draws, X_new), atol=1e-9)
    for ours, theirs in zip(
        observed_jointly(iterative, draws, X_new), observed_jointly(model, draws, X_new), strict=True
    ):
        np.testing.assert_allclose(ours[1], theirs[1], atol=1e-9)
    with pytest.raises(InvalidInput, match=r"cannot leave rows out.*with_evidence\('exact'\)"):
        leave_one_out.loo(iterative, draws)
    with pytest.raises(InvalidInput, match="gradient=False"):
        ITERATIVE(squared_exponential(X, 1.0, 1.0), y, Gaussian(0.1)).posterior.predict(X, X[:, 0])


def test_settings_are_shown_where_they_are_used():
    assert repr(Exact()) == "Exact(variational=False)"
    assert repr(Iterative(probes=5)) == ("Iterative(probes=5, rank=None, seed=0, tol=0.0001, max_products=200)")


class FreshProbes(Iterative):
    """What must not be done: other random vectors in every call."""

    def __call__(self, K, y, likelihood, start=None, *, gradient=True):
        seed = int(np.abs(K[0]).sum() * 1e9) % 2**32
        other = Iterative(probes=self.probes, rank=self.rank, seed=seed)
        return other(K, y, likelihood, start, gradient=gradient)


@pytest.mark.slow
def test_hmc_runs_as_with_cholesky():
    """Same start, step size, metric and random numbers: same energy errors, same posterior within its accuracy."""
    X, y = problem(400, 2, noise=0.1)
    model = Model(X, y, kernel=SquaredExponential(ard=True), likelihood="gaussian")
    start = find_map(model, start=model.unconstrain([1.0, 0.8, 2.0, 0.1]), n_restarts=1, random_state=0).position

    scale = np.array([0.4, 0.11, 0.21, 0.06])  # of the posterior, roughly

    def run(provider, draws, step_size):
        hmc = HMC(step_size=step_size, n_steps=round(1.6 / step_size), jitter=0.0, metric=scale**2)
        density = model.with_evidence(provider)
        trace = sample(density, hmc, draws=draws, tune=0, chains=1, random_state=1, start=start, progressbar=False)
        return trace.unconstrained[0], np.sqrt(np.mean(trace.stats["energy_error"] ** 2))

    (exact, error), (ours, our_error) = (run(p, 300, 0.4) for p in (Exact(), Iterative(rank=50)))
    np.testing.assert_allclose(our_error, error, rtol=0.2)
    assert (np.abs(ours.mean(axis=0) - exact.mean(axis=0)) < 0.35 * exact.std(axis=0)).all()
    np.testing.assert_allclose(ours.std(axis=0), exact.std(axis=0), rtol=0.3)

    # with short steps the error of a smooth density vanishes as their square; not so that of one that is not
    small, our_small, fresh = (run(p, 8, 0.1)[1] for p in (Exact(), Iterative(rank=50), FreshProbes(rank=50)))
    np.testing.assert_allclose(our_small, small, rtol=0.2)
    assert fresh > 10.0 * small
