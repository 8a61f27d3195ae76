"""Weights of rows in the evidence: copies of rows, brute force, derivatives, and what goes on from there."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

from hmcgp import Model, find_map
from hmcgp.errors import ApproximationWarning, InvalidInput
from hmcgp.evidence import EP, Exact, Iterative, Laplace, LowerBound, NaiveMeanField, SoftmaxLaplace, UpperBound
from hmcgp.evidence.ep.double_loop import solve as double_loop
from hmcgp.evidence.ep.em_surrogate import ExpectedLogDensity
from hmcgp.evidence.status import CONVERGED
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian, LabelNoise, Logistic, Probit, Softmax, VaryingNoise
from hmcgp.posterior.leave_one_out import combine, loo
from hmcgp.priors import LogNormal
from tests.helpers import reference
from tests.helpers.checks import check_gradient, classification_problem, random_symmetric
from tests.helpers.evidence_contract import IDS, PAIRS, SMOOTH, STEP, soft

N = 15
ALL = [
    *zip(PAIRS, IDS, strict=True),
    ((Exact(), Gaussian(0.5, known=np.linspace(0.1, 1.0, N))), "known"),
    ((Exact(), VaryingNoise(0.5, weight=0.3)), "varying"),
    ((Iterative(rank=1000, tol=1e-12), Gaussian(0.5)), "iterative"),  # of full rank, log|C| is exact
    ((SoftmaxLaplace(), Softmax()), "softmax"),
]
every_pair = pytest.mark.parametrize(("provider", "likelihood"), [p for p, _ in ALL], ids=[name for _, name in ALL])


def problem(likelihood, n=N):
    """Inputs, targets and a covariance that suit the likelihood."""
    X, y, K = classification_problem(n, 2, seed=3)
    if likelihood.targets == "classes":
        y = np.arange(n) % 3.0
    if likelihood.targets == "numbers":
        y = X[:, 0] - X[:, 1] ** 2
    return X, y, soft(K, likelihood) + 0.1 * np.eye(n)


def slack(provider):
    """How much less is asked of an estimate: even a low-rank model of full rank has its jitter."""
    return 1e3 if isinstance(provider, Iterative) else 1.0


def given(likelihood, X, weights=None, rows=None):
    """The likelihood of these rows."""
    rows = np.arange(len(X)) if rows is None else rows
    if isinstance(likelihood, Gaussian) and likelihood.known is not None:
        likelihood = replace(likelihood, known=np.array(likelihood.known)[rows])
    return likelihood.weighted(weights).for_rows(X[rows])


@every_pair
def test_a_weight_of_two_is_the_row_twice(provider, likelihood):
    X, y, K = problem(likelihood)
    weights = np.random.default_rng(0).integers(1, 4, N)
    rows = np.repeat(np.arange(N), weights)
    copies = np.zeros((N, len(rows)))
    copies[rows, np.arange(len(rows))] = 1.0
    K_rows = np.ascontiguousarray(K[np.ix_(rows, rows)])
    once, often = given(likelihood, X, weights), given(likelihood, X, None, rows)
    one, two = provider(K, y, once), provider(K_rows, y[rows], often)
    np.testing.assert_allclose(one.log_z, two.log_z, rtol=1e-10 * slack(provider))
    np.testing.assert_allclose(one.dK, copies @ two.dK @ copies.T, atol=1e-8 * slack(provider))
    np.testing.assert_allclose(one.dlik, two.dlik, rtol=1e-8 * slack(provider))
    K_new = np.random.default_rng(1).normal(size=(4, N)) @ K  # any covariance with f
    one, two = provider(K, y, once, gradient=False), provider(K_rows, y[rows], often, gradient=False)
    for a, b in zip(
        one.posterior.predict(K_new.T, np.full(4, 1e3)),
        two.posterior.predict(K_new.T[rows], np.full(4, 1e3)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


@every_pair
def test_weights_of_one_change_nothing(provider, likelihood):
    X, y, K = problem(likelihood)
    one, two = provider(K, y, given(likelihood, X, np.ones(N))), provider(K, y, given(likelihood, X))
    assert one.log_z == two.log_z
    np.testing.assert_array_equal(one.dK, two.dK)
    np.testing.assert_array_equal(one.dlik, two.dlik)


@every_pair
def test_a_vanishing_weight_is_no_row(provider, likelihood):
    X, y, K = problem(likelihood)
    rows = np.flatnonzero(np.arange(N) % 4 != 1)
    weights = np.where(np.arange(N) % 4 != 1, 1.3, 1e-9)
    one = provider(K, y, given(likelihood, X, weights))
    K_rows = np.ascontiguousarray(K[np.ix_(rows, rows)])
    two = provider(K_rows, y[rows], given(likelihood, X, np.full(len(rows), 1.3), rows))
    np.testing.assert_allclose(one.log_z, two.log_z, rtol=1e-7)
    np.testing.assert_allclose(one.dK[np.ix_(rows, rows)], two.dK, atol=1e-8 * max(100.0, slack(provider)))


@every_pair
def test_derivatives_with_weights_that_are_no_whole_numbers(provider, likelihood):
    X, y, K = problem(likelihood)
    rng = np.random.default_rng(2)
    weighted = given(likelihood, X, rng.uniform(0.1, 2.5, N))
    evidence = provider(K, y, weighted)
    np.testing.assert_array_equal(evidence.dK, evidence.dK.T)
    for _ in range(3):
        V, h = random_symmetric(rng, N), 1e-5
        up1, down1, up2, down2 = (provider(K + c * h * V, y, weighted).log_z for c in (1.0, -1.0, 2.0, -2.0))
        numeric = (8.0 * (up1 - down1) - (up2 - down2)) / (12.0 * h)
        np.testing.assert_allclose(np.sum(evidence.dK * V), numeric, rtol=2e-7, atol=1e-7)
    free = weighted.parameters(["x0", "x1"])

    def log_z(theta):
        found = provider(K, y, weighted.with_values(list(theta)))
        return found.log_z, found.dlik

    if free:
        check_gradient(log_z, np.array([p.value for p in free]))


@every_pair
def test_a_warm_start_leads_to_the_same_place(provider, likelihood):
    X, y, K = problem(likelihood)
    weighted = given(likelihood, X, np.random.default_rng(5).uniform(0.1, 2.5, N))
    cold = provider(K, y, weighted)
    warm = provider(K, y, weighted, 1.01 * cold.posterior.start)
    np.testing.assert_allclose(warm.log_z, cold.log_z, rtol=1e-10)
    np.testing.assert_allclose(warm.dK, cold.dK, atol=1e-8)


WEIGHTS = np.array([0.3, 1.0, 1.6])


@pytest.mark.parametrize("likelihood", [Logistic(), Probit(), SMOOTH])
def test_brute_force(likelihood):
    """EP is within 0.5 % here, the bounds enclose, and Laplace's is as far off as without weights."""
    _, y, K = classification_problem(3, 2, seed=1)
    exact = reference.brute_force_log_z(
        K, y, lambda y, F: WEIGHTS * likelihood.log_prob(y.ravel(), F.ravel()).reshape(F.shape)
    )
    weighted = likelihood.weighted(WEIGHTS)
    np.testing.assert_allclose(EP()(K, y, weighted).log_z, exact, rtol=5e-3)
    if isinstance(likelihood, Logistic):
        assert LowerBound()(K, y, weighted).log_z < exact < UpperBound()(K, y, weighted).log_z
    if not isinstance(likelihood, LabelNoise):
        np.testing.assert_allclose(Laplace()(K, y, weighted).log_z, exact, rtol=5e-2)


@pytest.mark.parametrize(
    ("provider", "likelihood"),
    [
        (provider, likelihood)
        for provider in (EP(), EP(sweeps="sequential"), NaiveMeanField())
        for likelihood in (Logistic(), Probit(), SMOOTH, STEP)
        if isinstance(likelihood, provider.supports)
    ],
)
def test_one_row_of_small_weight_is_integrated_exactly(provider, likelihood):
    weight, variance = 0.35, 4.0

    def integrand(f):
        return np.exp(weight * likelihood.log_prob(np.ones(1), np.array([f]))[0] - 0.5 * f * f / variance)

    exact = np.log(quad(integrand, -20.0, 0.0)[0] + quad(integrand, 0.0, 20.0)[0])
    exact -= 0.5 * np.log(2.0 * np.pi * variance)
    found = provider(np.array([[variance]]), np.ones(1), likelihood.weighted([weight]))
    np.testing.assert_allclose(found.log_z, exact, rtol=1e-9)


@pytest.mark.parametrize("likelihood", [SMOOTH, STEP])
def test_the_double_loop_knows_weights(likelihood):
    _, y, K = problem(likelihood)
    weights = np.random.default_rng(4).uniform(0.2, 3.0, N)
    sweeps = EP()(K, y, likelihood.weighted(weights))
    status, _, _, log_z, dflip, _, G = double_loop(K, y, weights, *likelihood.site(), y, False, 1e-10, 600, True)
    assert status == CONVERGED
    np.testing.assert_allclose(log_z, sweeps.log_z, rtol=1e-11)
    np.testing.assert_allclose(dflip, sweeps.dlik[0], rtol=1e-7)
    np.testing.assert_allclose(G, sweeps.dK, atol=1e-8)


@pytest.mark.parametrize(
    ("provider", "likelihood"),
    [(p, lik) for p, lik in PAIRS if not isinstance(p, UpperBound | LowerBound | Exact)],  # none, or tested below
)
def test_a_cavity_leaves_all_of_a_row_out(provider, likelihood):
    """1/v = 1/S_ii - w of all copies, v⁻¹μ = m/S_ii - η of all copies, by the posterior of the copies."""
    _, y, K = problem(likelihood)
    weights = np.where(np.arange(N) == 4, 3, 1)
    rows = np.repeat(np.arange(N), weights)
    mean, variance = provider(K, y, likelihood.weighted(weights), gradient=False).posterior.cavity()
    posterior = provider(np.ascontiguousarray(K[np.ix_(rows, rows)]), y[rows], likelihood, gradient=False).posterior
    m, S = posterior.predict(K[rows][:, [4]], K[[4], [4]])
    w = posterior.root_w**2 if isinstance(provider, Laplace) else posterior.w
    v = 1.0 / (1.0 / S - w[rows == 4].sum())
    np.testing.assert_allclose(variance[4], v[0], rtol=1e-7)
    np.testing.assert_allclose(mean[4], (m - v * posterior.alpha[rows == 4].sum())[0], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("likelihood", [Gaussian(0.5), VaryingNoise(0.5, weight=0.3)])
def test_leaving_a_weighted_number_out_is_fitting_without_it(likelihood):
    X, y, K = problem(likelihood)
    weights = np.random.default_rng(4).uniform(0.2, 3.0, N)
    mean, variance = Exact()(K, y, given(likelihood, X, weights), gradient=False).posterior.cavity()
    rest = np.arange(N) != 4
    without = Exact()(
        np.ascontiguousarray(K[np.ix_(rest, rest)]), y[rest], given(likelihood, X, weights[rest], rest), gradient=False
    ).posterior
    m, v = without.predict(K[rest][:, [4]], K[[4], [4]])
    np.testing.assert_allclose([mean[4], variance[4]], [m[0], v[0]], rtol=1e-9)
    joint_m, joint_v = without.predict_jointly(K[rest][:, [4]], K[[4]][:, [4]])
    np.testing.assert_allclose([joint_m[0], joint_v[0, 0]], [m[0], v[0]], rtol=1e-9)


def test_several_classes_leave_all_of_a_row_out():
    """Laplace's leave-one-out is to first order: exact in the limit of a row that says little."""
    _, y, K = problem(Softmax())
    for weight, tol in ((1e-3, 1e-5), (1e-2, 1e-3)):
        weights = np.where(np.arange(N) == 4, weight, 1.4)
        mean, covariance = SoftmaxLaplace()(K, y, Softmax(weights=weights), gradient=False).posterior.cavity()
        rest = np.arange(N) != 4
        less = np.ascontiguousarray(K[np.ix_(rest, rest)])
        m, C = SoftmaxLaplace()(less, y[rest], Softmax(weights=weights[rest]), gradient=False).posterior.predict(
            K[rest][:, [4]], K[[4], [4]]
        )
        np.testing.assert_allclose(mean[4], m[0], atol=tol)
        np.testing.assert_allclose(covariance[4], C[0], atol=tol)


@pytest.mark.parametrize("likelihood", [Logistic(), Probit(), SMOOTH, STEP, Gaussian(0.5), Softmax()])
def test_what_a_weighted_row_adds_to_the_evidence(likelihood):
    """Integer powers of independent averages, and for one class of two the logistic function of a difference."""
    weights, mean, variance = np.array([0.3, 1.0, 5.0, 2.5]), np.array([0.3, -4.0, 2.0, -1.0]), np.full(4, 3.0)
    weighted, y = likelihood.weighted(weights), np.array([1.0, 1.0, -1.0, -1.0])
    if isinstance(likelihood, Softmax):
        binary = Logistic(weights=weights).log_weighted_average(y, mean, variance)
        both = np.column_stack([np.zeros(4), mean]), variance[:, None, None] * np.array([[0.0, 0.0], [0.0, 1.0]])
        np.testing.assert_allclose(weighted.log_weighted_average((y + 1.0) / 2.0, *both), binary, atol=2e-3)
        return

    def log_integral(i):
        def integrand(f):
            log_p = likelihood.log_prob(y[[i]], np.array([f]))[0]
            return np.exp(weights[i] * log_p - 0.5 * (f - mean[i]) ** 2 / variance[i])

        total = quad(integrand, -25.0, 0.0, epsabs=0.0)[0] + quad(integrand, 0.0, 25.0, epsabs=0.0)[0]
        return np.log(total) - 0.5 * np.log(2.0 * np.pi * variance[i])

    found = weighted.log_weighted_average(y, mean, variance)
    np.testing.assert_allclose(found, [log_integral(i) for i in range(4)], rtol=1e-7)
    np.testing.assert_allclose(found[1], likelihood.log_average(y, mean, variance)[1], rtol=1e-7)
    np.testing.assert_allclose(
        likelihood.log_weighted_average(y, mean, variance), likelihood.log_average(y, mean, variance), rtol=1e-14
    )


def test_draws_forget_all_of_a_weighted_row():
    """The weights of the draws take the posterior of all rows to that without one, exactly for numbers."""
    X, y, _ = problem(Gaussian())
    weights = np.where(np.arange(N) == 4, 3.0, 1.0)
    rest = np.arange(N) != 4
    settings: dict[str, Any] = {"kernel": SquaredExponential(length_scale=1.0), "likelihood": Gaussian(0.3)}
    full = Model(X, y, weights=weights, **settings)
    less = Model(X[rest], y[rest], **settings)
    draws = np.exp(np.random.default_rng(0).normal(size=(30, 1)))
    ratio = [less.log_evidence(theta)[0] - full.log_evidence(theta)[0] for theta in draws]
    cavities = [full.posterior(theta)[1].posterior.cavity() for theta in draws]
    added = np.array([full.likelihood.log_weighted_average(full.y, *c) for c in cavities])
    np.testing.assert_allclose(-added[:, 4], ratio, rtol=1e-8)
    log_p = np.array([full.likelihood.log_average(full.y, *c) for c in cavities])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)  # 30 draws
        np.testing.assert_allclose(loo(full, draws).pointwise, combine(log_p, added).pointwise, rtol=1e-9)


@pytest.mark.parametrize("likelihood", [Logistic(), Probit(), SMOOTH, STEP])
def test_what_em_ep_maximises_touches_the_evidence(likelihood):
    _, y, K = problem(likelihood)
    weighted = likelihood.weighted(np.random.default_rng(4).uniform(0.2, 3.0, N))
    evidence = EP()(K, y, weighted)
    surrogate = ExpectedLogDensity.given(K, y, weighted, evidence)
    found = surrogate(K, y, weighted)
    np.testing.assert_allclose(found.log_z, evidence.log_z, rtol=1e-12)
    np.testing.assert_allclose(found.dK, evidence.dK, atol=1e-8)
    np.testing.assert_allclose(found.dlik, evidence.dlik, rtol=1e-7)


def model(likelihood="probit", evidence="ep", **settings):
    X, y, _ = classification_problem(25, 2, seed=2)
    kernel = SquaredExponential(variance=LogNormal(0.0, 1.0), length_scale=1.0)
    return Model(X, y, kernel=kernel, likelihood=likelihood, evidence=evidence, **settings)


def test_em_ep_finds_the_maximum_of_a_weighted_posterior():
    weighted = model(weights=np.linspace(0.2, 2.0, 25))
    em, direct = (find_map(weighted, method=m, random_state=1) for m in ("em-ep", "lbfgs"))
    np.testing.assert_allclose(em.parameters, direct.parameters, rtol=1e-4)


def test_the_density_of_a_weighted_model():
    weighted = model("label_noise", weights=np.linspace(0.2, 2.0, 25))
    check_gradient(weighted.logdensity_and_grad, np.array([0.3, -1.0]), rtol=1e-5)
    assert weighted.with_evidence("tap").likelihood.weights == weighted.likelihood.weights
    np.testing.assert_allclose(
        weighted.with_evidence("tap").log_evidence([1.0, 0.1])[0], weighted.log_evidence([1.0, 0.1])[0], rtol=1e-9
    )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], "there are 2 weights for 25 rows"),
        (np.zeros(25), "a weight of 0.0 in row 0.*Leave rows of weight 0 out"),
        (np.where(np.arange(25) == 3, np.nan, 1.0), "a weight of nan in row 3"),
        (np.where(np.arange(25) == 3, -1.0, 1.0), "a weight of -1.0 in row 3"),
        (np.where(np.arange(25) == 3, np.inf, 1.0), "a weight of inf in row 3"),
        (np.ones((25, 1)), r"got the shape \(25, 1\)"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(InvalidInput, match=message):
        model(weights=weights)


def test_weights_are_given_once():
    with pytest.raises(InvalidInput, match="has weights of its own"):
        model(Probit(weights=np.ones(25)), weights=np.ones(25))


@pytest.mark.parametrize("likelihood", [Gaussian(0.0), Gaussian(0.0, known=[0.0, 1.0])])
def test_exact_targets_have_no_weight(likelihood):
    with pytest.raises(InvalidInput, match="weights need noise in every row"):
        Model(np.eye(2), [1.0, 2.0], likelihood=likelihood, evidence="exact", weights=[1.0, 2.0])


def test_likelihoods_with_weights_compare_and_hash():
    one, two = Logistic(weights=np.array([1.0, 2.0])), Logistic(weights=[1.0, 2.0])
    assert one == two != Logistic()
    assert hash(one) == hash(two)
    assert one.weighted(None) == Logistic()
