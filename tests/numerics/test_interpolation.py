"""Interpolation of nearby solutions."""

import numpy as np

from hmcgp.numerics.interpolation import interpolate, remember


def solution(u):
    """A smooth function of three coordinates, with four components."""
    return np.array([np.sin(u[0]), u[1] * u[2], np.exp(0.3 * u[1]), u.sum()])


def test_known_solutions_are_found_again_and_constants_kept():
    U = np.random.default_rng(0).normal(size=(8, 3))
    S = np.array([solution(u) for u in U])
    for u, s in zip(U, S, strict=True):
        np.testing.assert_allclose(interpolate(U, S, u), s, atol=1e-4)
    np.testing.assert_allclose(interpolate(U, np.ones((8, 2)), np.array([9.0, -4.0, 0.0])), 1.0, atol=0.02)


def test_new_solutions_are_closer_than_the_last():
    """Along a straight path by extrapolation, and between scattered points, from which no direction is new."""
    rng = np.random.default_rng(1)
    step, line = np.array([0.1, -0.05, 0.1]), []
    for k in range(4):
        line.append(-k * step)
    straight = np.array(line)
    scattered = rng.normal(scale=0.5, size=(16, 3))
    for U, u in ((straight, step), *((scattered, rng.normal(scale=0.3, size=3)) for _ in range(5))):
        S = np.array([solution(v) for v in U])
        error = np.abs(interpolate(U, S, u) - solution(u)).max()
        assert error < 0.3 * np.abs(S[0] - solution(u)).max()


def test_the_oldest_solutions_are_forgotten_and_nothing_is_written_to():
    U, S = np.zeros((1, 2)), np.zeros((1, 3))
    for k in range(1, 6):
        before = U.copy()
        more = remember(U, S, np.full(2, float(k)), np.full(3, 10.0 * k), 4)
        np.testing.assert_array_equal(U, before)
        U, S = more
    np.testing.assert_array_equal(U[:, 0], [5.0, 4.0, 3.0, 2.0])
    np.testing.assert_array_equal(S[:, 2], [50.0, 40.0, 30.0, 20.0])
