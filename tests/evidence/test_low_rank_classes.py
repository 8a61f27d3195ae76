"""Several classes under covariances of low rank plus a diagonal, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp.errors import NotConverged
from hmcgp.evidence import Laplace, SoftmaxLaplace
from hmcgp.evidence.low_rank import LowRank, LowRankClasses
from hmcgp.kernels import SquaredExponential
from hmcgp.kernels.per_class import PerClass
from hmcgp.likelihoods import Logistic, Softmax
from tests.helpers.checks import check_gradient

N, M = 45, 7
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 2))
Z = RNG.normal(size=(M, 2))
CLASSES = np.digitize(np.sin(2.0 * X[:, 0]) + 0.3 * RNG.normal(size=N), [-0.5, 0.4]).astype(float)
WEIGHTS = RNG.uniform(0.4, 2.5, size=N)
THETA = np.array([2.0, 0.9, 1.6])


def shared_by_classes(theta):
    kernel = SquaredExponential(theta[0], theta[1:])
    K, k, pullback = kernel.inducing_vjp(np.vstack([Z, X]), Z)
    return LowRank.of(K, k), lambda adjoint: pullback(adjoint.covariances, adjoint.variances)


def of_each_class(theta):
    kernel = PerClass(tuple(SquaredExponential(own[0], own[1:]) for own in theta.reshape(3, 3)))
    K, k, pullback = kernel.inducing_vjp(np.vstack([Z, X]), Z)
    return LowRankClasses.of(K, k), lambda adjoint: pullback(adjoint.covariances, adjoint.variances)


KINDS = {
    "shared": (shared_by_classes, THETA, Softmax()),
    "own": (of_each_class, np.concatenate([THETA, 1.3 * THETA, 0.8 * THETA]), Softmax()),
    "own-weights": (of_each_class, np.concatenate([THETA, 1.3 * THETA, 0.8 * THETA]), Softmax().weighted(WEIGHTS)),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@kinds
def test_classes_are_as_under_dense_matrices(kind):
    covariance, theta, likelihood = kind
    C, _ = covariance(theta)
    found, dense = (SoftmaxLaplace()(K, CLASSES, likelihood) for K in (C, C.dense()))
    assert abs(found.log_z - dense.log_z) < 1e-9
    np.testing.assert_allclose(found.dK.variances[..., M:], np.diagonal(dense.dK, axis1=-2, axis2=-1), atol=1e-8)
    found, dense = (SoftmaxLaplace()(K, CLASSES, likelihood, gradient=False) for K in (C, C.dense()))
    for ours, theirs in zip(found.posterior.cavity(), dense.posterior.cavity(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


@kinds
def test_gradient_of_classes_matches_central_differences(kind):
    covariance, theta, likelihood = kind

    def fun(theta):
        C, pull = covariance(theta)
        found = SoftmaxLaplace()(C, CLASSES, likelihood)
        return found.log_z, pull(found.dK)

    check_gradient(fun, theta)


@kinds
def test_predictions_of_classes(kind):
    """A new row joins with the covariances v*'V' of the low-rank prior, and its own variance."""
    covariance, theta, likelihood = kind
    C, _ = covariance(theta)
    parts = C.parts if isinstance(C, LowRankClasses) else (C,)
    kernels = [SquaredExponential(own[0], own[1:]) for own in theta.reshape(-1, 3)]
    new = RNG.normal(size=(4, 2))
    K_cross, k = np.stack([kernel(Z, new) for kernel in kernels]), np.stack([kernel.diag(new) for kernel in kernels])
    K_new = np.stack([kernel(new) for kernel in kernels])
    dense_cross = np.stack([C.V @ np.linalg.solve(C.L, cross) for C, cross in zip(parts, K_cross, strict=True)])
    if len(parts) == 1:
        K_cross, k, K_new, dense_cross = K_cross[0], k[0], K_new[0], dense_cross[0]
    found, dense = (SoftmaxLaplace()(K, CLASSES, likelihood, gradient=False).posterior for K in (C, C.dense()))
    for ours, theirs in zip(found.predict(K_cross, k), dense.predict(dense_cross, k), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    mean, joint = found.predict_jointly(K_cross, K_new)
    np.testing.assert_allclose(mean, found.predict(K_cross, k)[0], atol=1e-12)
    for ours, theirs in zip((mean, joint), dense.predict_jointly(dense_cross, K_new), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


@kinds
def test_warm_and_cold_starts_of_classes_agree(kind):
    covariance, theta, likelihood = kind
    near = SoftmaxLaplace()(covariance(1.05 * theta)[0], CLASSES, likelihood).posterior.start
    C, _ = covariance(theta)
    cold = SoftmaxLaplace()(C, CLASSES, likelihood)
    for start in (near, 50.0 * near, np.full_like(near, np.nan)):
        assert abs(SoftmaxLaplace()(C, CLASSES, likelihood, start).log_z - cold.log_z) < 1e-9


def test_two_classes_are_the_logistic_model_of_their_difference():
    C, _ = shared_by_classes(THETA)
    second = CLASSES == 1.0
    both = SoftmaxLaplace()(C, second.astype(float), Softmax()).log_z
    twice = LowRank.of(
        *(2.0 * part for part in SquaredExponential(THETA[0], THETA[1:]).inducing_vjp(np.vstack([Z, X]), Z)[:2])
    )
    assert abs(both - Laplace()(twice, np.where(second, 1.0, -1.0), Logistic()).log_z) < 1e-9


def test_classes_at_wide_priors_converge_or_say_so():
    for variance in (1e-6, 1e3, 1e6):
        C, _ = shared_by_classes(THETA * [variance, 1.0, 1.0])
        dense = SoftmaxLaplace()(C.dense(), CLASSES, Softmax()).log_z
        assert abs(SoftmaxLaplace()(C, CLASSES, Softmax()).log_z - dense) < 1e-6 * abs(dense)
    with pytest.raises(NotConverged):
        SoftmaxLaplace(max_iter=1)(shared_by_classes(THETA)[0], CLASSES, Softmax())
