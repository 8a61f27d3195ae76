"""The process of a surrogate: it passes through values and gradients, and chains run on it."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp.samplers.integrators import init
from hmcgp.samplers.surrogate.draws import SurrogateDensity, draw_chain
from hmcgp.samplers.surrogate.gaussian_process import Whitening, covariance, fit
from hmcgp.samplers.surrogate.points import Points, fitted
from tests.helpers.densities import Gaussian, Skew


def evaluations(density, n, seed=0):
    """Values and gradients at starting points of chains."""
    rng = np.random.default_rng(seed)
    u = np.array([density.initial(rng) for _ in range(n)])
    found = [density.evaluate(x) for x in u]
    values = np.array([e.logdensity for e in found])
    return Points(u, values, np.array([e.grad for e in found]))


def test_covariances_of_gradients_are_derivatives_of_the_covariance_of_values():
    X, h = np.random.default_rng(0).normal(size=(3, 2)), 1e-4
    K = covariance(X, np.array([True, False, True]))  # rows: value, 2 slopes; value; value, 2 slopes
    e = h * np.eye(2)

    def k(a, b):
        return 1.0 / (1.0 + 0.5 * np.sum((a - b) ** 2))

    for a in range(2):
        assert K[5 + a, 0] == pytest.approx((k(X[2] + e[a], X[0]) - k(X[2] - e[a], X[0])) / (2.0 * h), abs=1e-8)
        assert K[4, 1 + a] == pytest.approx((k(X[2], X[0] + e[a]) - k(X[2], X[0] - e[a])) / (2.0 * h), abs=1e-8)
        assert K[5 + a, 3] == pytest.approx((k(X[2] + e[a], X[1]) - k(X[2] - e[a], X[1])) / (2.0 * h), abs=1e-8)
        for b in range(2):
            corners = sum(s * t * k(X[2] + s * e[a], X[0] + t * e[b]) for s in (1, -1) for t in (1, -1))
            assert K[5 + a, 1 + b] == pytest.approx(corners / (4.0 * h * h), abs=1e-6)


@pytest.fixture(scope="module")
def surrogate():
    points = evaluations(Skew(3), 60)
    points.grad[::4] = np.nan  # values alone
    mean, cov = points.u.mean(axis=0), np.cov(points.u.T)
    return fit(Whitening(mean, np.linalg.cholesky(cov)), *points, length=2.0, nugget=1e-6), points


def test_surrogate_passes_through_values_and_gradients(surrogate):
    process, points = surrogate
    np.testing.assert_allclose(process.values(points.u), points.logdensity, atol=0.02)  # the nugget
    L = process.whitening.factor
    for z, grad in zip(process.whitening.whiten(points.u), points.grad, strict=True):
        if np.isfinite(grad).all():
            np.testing.assert_allclose(process.predict(z)[1], L.T @ grad, atol=0.1)


def test_surrogate_is_the_mean_of_the_process(surrogate):
    """A plain twin: c - 1/2 z'z + k(z)' K^-1 (observations - mean), with c by generalised least squares."""
    process, points = surrogate
    z, length = process.whitening.whiten(points.u), process.length
    known = np.isfinite(points.grad[:, 0])
    K = covariance(z / length, known)
    K = np.tril(K) + np.tril(K, -1).T + 1e-6 * np.eye(len(K))
    rest, ones = [], []
    for x, value, grad in zip(z, points.logdensity, points.grad, strict=True):
        slopes = [] if np.isnan(grad[0]) else list(length * (process.whitening.factor.T @ grad + x))
        rest += [value + 0.5 * x @ x, *slopes]
        ones += [1.0, *(0.0 for _ in slopes)]
    a, b = np.linalg.solve(K, np.array(rest)), np.linalg.solve(K, np.array(ones))
    c = (np.array(ones) @ a) / (np.array(ones) @ b)
    new = np.array([0.3, -0.8, 1.1])
    joint = covariance(np.vstack([z, new]) / length, np.append(known, False))
    assert process.predict(new)[0] == pytest.approx(c - 0.5 * new @ new + joint[-1, :-1] @ (a - c * b), rel=1e-6)


def test_gradient_of_the_surrogate(surrogate):
    density = SurrogateDensity(surrogate[0], temperature=1.3)
    rng = np.random.default_rng(5)
    for z in rng.normal(size=(5, 3)):
        grad = density.evaluate(z).grad
        for i, e in enumerate(1e-4 * np.eye(3)):
            numeric = (density.evaluate(z + e).logdensity - density.evaluate(z - e).logdensity) / 2e-4
            assert grad[i] == pytest.approx(numeric, rel=1e-5, abs=1e-6)


def test_far_from_all_points_the_surrogate_is_nearly_gaussian(surrogate):
    process, _ = surrogate
    z = np.array([4e4, 0.0, -3e4])
    assert process.predict(z)[0] == pytest.approx(process.constant - 0.5 * z @ z, rel=1e-6)
    np.testing.assert_allclose(process.predict(z)[1], -z, rtol=1e-6, atol=1e-2)


def test_points_are_spread():
    """Copies are left out, and so is what lies deep below the highest."""
    density = Gaussian(np.zeros(2), np.eye(2))
    points = evaluations(density, 40)
    twice = Points(*(np.concatenate([part, part]) for part in points))
    chosen = twice.spread(Whitening(np.zeros(2), np.eye(2)), 20)
    assert len(np.unique(chosen.u, axis=0)) == len(chosen) == 20
    assert chosen.logdensity[0] == points.logdensity.max()
    deep = Points(points.u, np.where(np.arange(40) < 5, 0.0, -100.0), points.grad)
    assert len(deep.spread(Whitening(np.zeros(2), np.eye(2)), 20)) == 5


def test_prediction_of_new_points():
    """Held-out error far below that of the Gaussian alone."""
    density = Skew(4)
    points, new = evaluations(density, 120), evaluations(density, 50, seed=9)
    whitening = Whitening(points.u.mean(axis=0), np.linalg.cholesky(np.cov(points.u.T)))
    z = whitening.whiten(new.u)
    left = new.logdensity - fitted(points, whitening, 120).values(new.u)
    gaussian = new.logdensity + 0.5 * np.sum(z**2, axis=1)
    assert np.std(left) < 0.5 * np.std(gaussian)


def test_chains_on_the_surrogate_stop_with_the_work(surrogate):
    process, points = surrogate
    stream = np.random.default_rng(0).bit_generator.state
    drawn = draw_chain(process, 1.2, stream, points.u[0], 10)
    assert drawn.u.shape == (10, 3)
    density = SurrogateDensity(process, 1.2)
    z = process.whitening.whiten(drawn.u[-1:])[0]
    assert init(density, z).logdensity == pytest.approx(drawn.stats["lp"][-1], rel=1e-9)
