"""Covariances of low rank plus a diagonal: the algebra against dense matrices, and evidence against dense providers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import (
    EP,
    TAP,
    Exact,
    Iterative,
    Laplace,
    LowerBound,
    MultinomialEP,
    NaiveMeanField,
    UpperBound,
)
from hmcgp.evidence.low_rank import LowRank, structure
from hmcgp.kernels import Linear, Matern, SquaredExponential, White
from hmcgp.likelihoods import (
    Gaussian,
    LabelNoise,
    Logistic,
    MultinomialProbit,
    OutputNoise,
    Probit,
    VaryingNoise,
)
from tests.helpers.checks import check_gradient

N, M = 45, 7
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 2))
Z = RNG.normal(size=(M, 2))
LABELS = np.where(np.sin(2.0 * X[:, 0]) + 0.5 * RNG.normal(size=N) > 0.0, 1.0, -1.0)
NUMBERS = np.sin(2.0 * X[:, 0]) + 0.3 * RNG.normal(size=N)
CLASSES = np.digitize(NUMBERS, [-0.5, 0.4]).astype(float)
WEIGHTS = RNG.uniform(0.4, 2.5, size=N)
THETA = np.array([2.0, 0.9, 1.6])

PAIRS = {
    "laplace-logistic": (Laplace(), Logistic(), LABELS),
    "laplace-probit": (Laplace(), Probit(), LABELS),
    "laplace-weights": (Laplace(), Logistic().weighted(WEIGHTS), LABELS),
    "ep-logistic": (EP(), Logistic(), LABELS),
    "ep-probit": (EP(), Probit(), LABELS),
    "ep-weights": (EP(), Probit().weighted(WEIGHTS), LABELS),
    "ep-flips": (EP(), LabelNoise(0.1, link="probit"), LABELS),
    "lower": (LowerBound(), Logistic(), LABELS),
    "lower-weights": (LowerBound(), Logistic().weighted(WEIGHTS), LABELS),
    "exact": (Exact(), Gaussian(0.1), NUMBERS),
    "exact-columns": (Exact(), Gaussian(0.1), np.stack([NUMBERS, LABELS], axis=1)),
    "exact-weights": (Exact(), Gaussian(0.1).weighted(WEIGHTS), NUMBERS),
    "exact-varying": (Exact(), VaryingNoise(0.1, [0.3, -0.2]).for_rows(X), NUMBERS),
}
pairs = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)


def low_rank(theta, inputs=X, inducing=Z):
    kernel = SquaredExponential(theta[0], theta[1:])
    K, k, pullback = kernel.inducing_vjp(np.vstack([inducing, inputs]), inducing)
    return LowRank.of(K, k), lambda adjoint: pullback(adjoint.covariances, adjoint.variances)


def test_the_covariance_is_that_of_fitc():
    kernel = SquaredExponential(THETA[0], THETA[1:]) + White(0.3)
    K, k, _ = kernel.inducing_vjp(np.vstack([Z, X]), Z)
    Q = K[M:] @ np.linalg.solve(kernel(Z, Z) + structure.JITTER * THETA[0] * np.eye(M), K[M:].T)
    expected = Q + np.diag(kernel.diag(X) - np.diag(Q))
    C = LowRank.of(K, k)
    np.testing.assert_allclose(C.dense(), expected, atol=1e-12)
    np.testing.assert_allclose(C.times(NUMBERS), expected @ NUMBERS, atol=1e-12)
    assert C.shape == (N, N)
    assert C.rank == M


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["positive", "of either sign"])
def test_algebra_with_sites_against_matrices(sign):
    C, _ = low_rank(THETA)
    w = RNG.gamma(1.0, size=N)
    w[::5] *= 0.05 * sign
    w[3] = 0.0
    dense, sites = C.dense(), C.conditioned(w)
    B = np.eye(N) + w[:, None] * dense
    S, R = dense @ np.linalg.inv(B), np.linalg.inv(B) * w
    np.testing.assert_allclose(sites.log_det, np.linalg.slogdet(B)[1], rtol=1e-12)
    x, Cx = sites.respond(NUMBERS)
    np.testing.assert_allclose(x, np.linalg.solve(B, NUMBERS), atol=1e-12)
    np.testing.assert_allclose(Cx, S @ NUMBERS, atol=1e-12)
    np.testing.assert_allclose(sites.variances(), np.diag(S), rtol=1e-11)
    solved = sites.solved_rows()
    np.testing.assert_allclose(solved.variances, np.diag(S), rtol=1e-11)
    a, b = RNG.normal(size=(2, N, 3))
    G = 0.5 * (a @ b.T + b @ a.T) - 0.5 * 1.7 * R
    np.testing.assert_allclose(sites.pull_back_diagonal(a, b, solved, 1.7), np.diag(G), atol=1e-11)


def test_the_cotangent_is_that_of_the_kernel_matrices():
    """⟨G, C⟩ for a fixed G, by way of V, d and the factor of K_mm, its jitter included."""
    w = RNG.gamma(1.0, size=N)
    x, z = RNG.normal(size=(2, N, 2))

    def fun(theta):
        C, pull = low_rank(theta)
        sites = C.conditioned(w)
        value = np.einsum("nk,nk->", x, np.stack([C.times(c) for c in z.T], axis=1)) - 0.5 * 1.3 * sites.log_det
        return value, pull(sites.pull_back(x, z, sites.solved_rows(), 1.3))

    check_gradient(fun, THETA)


def test_the_jitter_is_part_of_the_gradient(monkeypatch):
    monkeypatch.setattr(structure, "JITTER", 0.1)

    def fun(theta):
        C, pull = low_rank(theta)
        found = Laplace()(C, LABELS, Logistic())
        return found.log_z, pull(found.dK)

    check_gradient(fun, THETA)


@pairs
def test_log_evidence_is_that_of_the_dense_matrix(pair):
    provider, likelihood, y = pair
    C, _ = low_rank(THETA)
    found, dense = provider(C, y, likelihood), provider(C.dense(), y, likelihood)
    assert abs(found.log_z - dense.log_z) < 1e-10 * abs(dense.log_z)
    np.testing.assert_allclose(found.dK.variances[M:], np.diag(dense.dK), atol=1e-8)
    np.testing.assert_allclose(found.dlik, dense.dlik, rtol=1e-9)
    value = provider(C, y, likelihood, gradient=False)
    assert value.dK is None
    assert abs(value.log_z - found.log_z) < 1e-12 * abs(found.log_z)


@pairs
def test_gradient_matches_central_differences(pair):
    provider, likelihood, y = pair

    def fun(theta):
        C, pull = low_rank(theta)
        found = provider(C, y, likelihood)
        return found.log_z, pull(found.dK)

    check_gradient(fun, THETA)


@pairs
def test_leaving_rows_out_is_as_with_the_dense_matrix(pair):
    provider, likelihood, y = pair
    C, _ = low_rank(THETA)
    found = provider(C, y, likelihood, gradient=False).posterior.cavity()
    dense = provider(C.dense(), y, likelihood, gradient=False).posterior.cavity()
    for ours, theirs in zip(found, dense, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


@pairs
def test_predictions_are_those_of_the_joint_covariance_with_new_rows(pair):
    """A new row joins with the covariances v*'V' of the low-rank prior, and its own variance."""
    provider, likelihood, y = pair
    C, _ = low_rank(THETA)
    kernel = SquaredExponential(THETA[0], THETA[1:])
    new = RNG.normal(size=(4, 2))
    cross = np.linalg.solve(C.L, kernel(Z, new))  # v*
    mean, variance = provider(C, y, likelihood, gradient=False).posterior.predict(kernel(Z, new), kernel.diag(new))
    dense = provider(C.dense(), y, likelihood, gradient=False).posterior.predict(C.V @ cross, kernel.diag(new))
    np.testing.assert_allclose(mean, dense[0], atol=1e-8)
    np.testing.assert_allclose(variance, dense[1], atol=1e-8)
    jointly = provider(C, y, likelihood, gradient=False).posterior.predict_jointly(kernel(Z, new), kernel(new))
    np.testing.assert_allclose(jointly[0], mean, atol=1e-12)
    np.testing.assert_allclose(np.diag(jointly[1]), variance, atol=1e-12)
    products = provider(C, y, likelihood, gradient=False).posterior.products()
    for ours, theirs in zip(products.predict_rows(kernel(new, Z), kernel.diag(new)), (mean, variance), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pairs
def test_warm_and_cold_starts_agree(pair):
    provider, likelihood, y = pair
    C, _ = low_rank(THETA)
    near = provider(low_rank(1.05 * THETA)[0], y, likelihood).posterior.start
    for start in (near, near * 50.0, np.full_like(near, np.nan)):
        found = provider(C, y, likelihood, start)
        assert abs(found.log_z - provider(C, y, likelihood).log_z) < 1e-9 * abs(found.log_z)
    assert provider(C, y, likelihood, near).n_iter <= provider(C, y, likelihood).n_iter


@pytest.mark.parametrize("variance", [1e-8, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("pair", [PAIRS["laplace-logistic"], PAIRS["ep-probit"]], ids=["laplace", "ep"])
def test_narrow_and_wide_priors(pair, variance):
    provider, likelihood, y = pair
    C, _ = low_rank(THETA * [variance, 1.0, 1.0])
    dense = provider(C.dense(), y, likelihood).log_z
    assert abs(provider(C, y, likelihood).log_z - dense) < 1e-7 * abs(dense)


@pytest.mark.parametrize("provider", [Laplace(max_iter=1), EP(max_iter=1)], ids=["laplace", "ep"])
def test_one_iteration_is_not_enough(provider):
    with pytest.raises(NotConverged, match="after 1 factorisations"):
        provider(low_rank(THETA)[0], LABELS, Logistic())


@pytest.mark.parametrize(
    "kernel", [SquaredExponential(1.5, 0.9), Matern(variance=1.5, length_scale=0.9, nu=1.5), Linear(0.4)], ids=str
)
def test_inducing_inputs_at_all_rows_give_the_dense_evidence(kernel):
    K, k, _ = kernel.inducing_vjp(np.vstack([X, X]), X)
    found = Laplace()(LowRank.of(K, k), LABELS, Logistic()).log_z
    assert abs(found - Laplace()(kernel(X), LABELS, Logistic()).log_z) < 1e-4


@pytest.mark.parametrize(
    ("provider", "likelihood", "y"),
    [
        (TAP(), Probit(), LABELS),
        (NaiveMeanField(), Probit(), LABELS),
        (MultinomialEP(), MultinomialProbit(), CLASSES),
        (Iterative(), Gaussian(0.1), NUMBERS),
    ],
    ids=lambda value: type(value).__name__,
)
def test_providers_of_dense_matrices_say_so(provider, likelihood, y):
    with pytest.raises(InvalidInput, match=f"{type(provider).__name__} knows dense covariances only.*inducing=None"):
        provider(low_rank(THETA)[0], y, likelihood)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e6])
def test_covariances_that_are_none_are_refused(bad):
    K, k, _ = SquaredExponential(1.0, 1.0).inducing_vjp(np.vstack([Z, X]), Z)
    K[M + 3, 2] = bad
    with pytest.raises(NotPositiveDefinite):
        LowRank.of(K, k)


def test_rounding_that_eats_the_answer_is_refused():
    with pytest.raises(NotConverged, match="rounding"):
        Laplace()(low_rank(THETA * [1e15, 1.0, 1.0])[0], LABELS, Logistic())
    with pytest.raises(NotPositiveDefinite, match="rounding eats log Z"):
        Exact()(replace(low_rank(THETA)[0], d=np.zeros(N)), NUMBERS, Gaussian(1e-17))


def test_outputs_with_noise_of_their_own():
    likelihood = OutputNoise(("a", "b"), noise=[0.1, 0.3])
    rows = np.column_stack([X, np.arange(N) % 2])
    C, _ = low_rank(THETA)
    found, dense = (Exact()(K, NUMBERS, likelihood.for_rows(rows)) for K in (C, C.dense()))
    np.testing.assert_allclose(found.dlik, dense.dlik, rtol=1e-9)


# -- flipped labels and bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", [0.5, 30.0])
def test_flipped_labels_and_their_rate(variance):
    """Sites of contradicted labels are negative; the derivative in the rate is that of the dense solution."""
    y = LABELS.copy()
    y[::9] *= -1.0
    C, _ = low_rank(THETA * [variance, 1.0, 1.0])
    found, dense = (EP()(K, y, LabelNoise(0.05, link="probit")) for K in (C, C.dense()))
    assert (found.posterior.w < 0.0).any() or variance < 1.0
    kernel = SquaredExponential(THETA[0] * variance, THETA[1:])
    by_products = found.posterior.products().predict_rows(kernel(X[:4], Z), kernel.diag(X[:4]))
    np.testing.assert_allclose(by_products, found.posterior.predict(kernel(Z, X[:4]), kernel.diag(X[:4])), atol=1e-7)
    assert abs(found.log_z - dense.log_z) < 1e-8
    np.testing.assert_allclose(found.dlik, dense.dlik, rtol=1e-6)


def test_flipped_labels_behind_a_step_are_refused():
    with pytest.raises(InvalidInput, match=r"LabelNoise behind a step.*link='probit'"):
        EP()(low_rank(THETA)[0], LABELS, LabelNoise(0.1, link="step"))


def test_bounds_bracket_the_evidence_and_touch_that_of_dense_matrices():
    C, _ = low_rank(THETA)
    lower, ep, upper = (provider(C, LABELS, Logistic()) for provider in (LowerBound(), EP(), UpperBound()))
    assert lower.log_z < ep.log_z < upper.log_z
    dense = UpperBound()(C.dense(), LABELS, Logistic())
    assert abs(upper.log_z - dense.log_z) < 1e-10 * abs(dense.log_z)
    np.testing.assert_allclose(upper.dK.variances[M:], np.diag(dense.dK), atol=1e-10)
    np.testing.assert_allclose(upper.posterior.start, dense.posterior.start, atol=1e-8)
    kernel = SquaredExponential(THETA[0], THETA[1:])
    mean, variance = upper.posterior.predict(kernel(Z, X[:3]), kernel.diag(X[:3]))
    np.testing.assert_allclose(variance, kernel.diag(X[:3]), rtol=1e-12)  # the prior, moved
    np.testing.assert_allclose(mean, np.linalg.solve(C.L, kernel(Z, X[:3])).T @ (C.V.T @ dense.posterior.b), atol=1e-8)


def test_gradient_of_the_upper_bound():
    def fun(theta):
        C, pull = low_rank(theta)
        found = UpperBound()(C, LABELS, Logistic())
        return found.log_z, pull(found.dK)

    check_gradient(fun, THETA)


# -- Titsias' bound --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", [Gaussian(0.1), Gaussian(0.1).weighted(WEIGHTS)], ids=["plain", "weights"])
def test_titsias_bound_is_below_the_dense_evidence_and_rises_to_it(likelihood):
    kernel, provider = SquaredExponential(THETA[0], THETA[1:]), Exact(variational=True)
    dense = Exact()(kernel(X), NUMBERS, likelihood).log_z
    bounds = [provider(low_rank(THETA, inducing=X[:m])[0], NUMBERS, likelihood).log_z for m in (5, 15, 30, N)]
    assert all(np.diff(bounds) > 0.0)
    assert bounds[-1] <= dense
    assert dense - bounds[-1] < 1e-3
    C, _ = low_rank(THETA)  # against its definition
    noise = 0.1 / likelihood.row_weights(N)
    Q = C.V @ C.V.T + np.diag(noise)
    expected = -0.5 * NUMBERS @ np.linalg.solve(Q, NUMBERS) - 0.5 * np.linalg.slogdet(Q)[1] - 0.5 * (C.d / noise).sum()
    weights = likelihood.row_weights(N)
    expected += -0.5 * (weights @ np.log(np.full(N, 2.0 * np.pi * 0.1))) + 0.5 * np.log(noise).sum()
    np.testing.assert_allclose(provider(C, NUMBERS, likelihood).log_z, expected, rtol=1e-10)


def test_gradient_of_titsias_bound():
    def fun(theta):
        C, pull = low_rank(theta[:3])
        found = Exact(variational=True)(C, np.stack([NUMBERS, LABELS], axis=1), Gaussian(theta[3]))
        return found.log_z, np.concatenate([pull(found.dK), found.dlik])

    check_gradient(fun, np.append(THETA, 0.2))
    with pytest.raises(InvalidInput, match="'variational' of Exact must be True or False"):
        Exact(variational="yes")
