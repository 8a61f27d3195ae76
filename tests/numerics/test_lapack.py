import numpy as np
import pytest

from hmcgp.numerics import lapack
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.exponential import exp_nonpositive

cholesky_solve_inplace = compiled(lapack.cholesky_solve_inplace)
signed_cholesky_inplace = compiled(lapack.signed_cholesky_inplace)
inverse_from_signed_cholesky_inplace = compiled(lapack.inverse_from_signed_cholesky_inplace)


@pytest.fixture(params=[1, 3, 28, 29, 64, 65, 111, 150, 227])
def spd(request):
    rng = np.random.default_rng(request.param)
    A = rng.normal(size=(request.param, request.param + 5))
    return A @ A.T / request.param + np.eye(request.param)


def junk_above(A):
    """The same lower triangle under a NaN upper one: proves that the latter is not read."""
    B = A.copy()
    B[np.triu_indices(len(A), 1)] = np.nan
    return B


def test_cholesky_reads_and_writes_the_lower_triangle_only(spd):
    L = junk_above(spd)
    assert lapack.cholesky_inplace(L)
    np.testing.assert_allclose(np.tril(L), np.linalg.cholesky(spd), rtol=1e-12, atol=1e-13)
    assert np.isnan(L[np.triu_indices(len(spd), 1)]).all()


def test_cholesky_reports_an_indefinite_matrix(spd):
    assert not lapack.cholesky_inplace(spd - 2.0 * np.trace(spd) * np.eye(len(spd)))


def test_inverse(spd):
    A = junk_above(spd)
    lapack.cholesky_inplace(A)
    lapack.inverse_from_cholesky_inplace(A)
    lapack.mirror_lower(A)
    np.testing.assert_allclose(A @ spd, np.eye(len(spd)), atol=1e-11)


def test_solve_and_product(spd):
    x = np.linspace(-1.0, 1.0, len(spd))
    L, out = junk_above(spd), np.empty(len(spd))
    lapack.symmetric_times(L, x, out)
    np.testing.assert_allclose(out, spd @ x, rtol=1e-12, atol=1e-12)
    lapack.cholesky_inplace(L)
    cholesky_solve_inplace(L, out)
    np.testing.assert_allclose(out, x, atol=1e-12)


def test_upper_triangles(spd):
    """Factor, solution and product in the upper triangle, over a NaN lower one, and mirrored."""
    x, out = np.linspace(-1.0, 2.0, len(spd)), np.empty(len(spd))
    U = junk_above(spd).T.copy()
    compiled(lapack.symmetric_upper_times)(U, x, out)
    np.testing.assert_allclose(out, spd @ x, rtol=1e-12, atol=1e-12)
    assert compiled(lapack.cholesky_upper_inplace)(U)
    np.testing.assert_allclose(np.triu(U), np.linalg.cholesky(spd).T, rtol=1e-12, atol=1e-13)
    assert np.isnan(U[np.tril_indices(len(spd), -1)]).all()
    compiled(lapack.cholesky_upper_solve_inplace)(U, out)
    np.testing.assert_allclose(out, x, rtol=1e-10, atol=1e-11)
    compiled(lapack.mirror_upper)(U)
    np.testing.assert_array_equal(U, U.T)


def test_triangular_solves_of_many_columns_and_the_gram_matrix(spd):
    L = junk_above(np.linalg.cholesky(spd))
    B = np.random.default_rng(0).normal(size=(len(spd), 7))
    for transposed in (False, True):
        X = B.copy()
        lapack.triangular_solve_inplace(L, X, transposed)
        np.testing.assert_allclose((np.tril(L).T if transposed else np.tril(L)) @ X, B, atol=1e-11)
    G = lapack.gram(B)
    np.testing.assert_allclose(G, np.tril(B.T @ B), atol=1e-12)


def test_exp_is_good_to_two_units_in_the_last_place():
    x = -np.concatenate([[0.0, 1e-320, 1e-17, 689.9], np.random.default_rng(0).gamma(1.0, 20.0, size=10_000)])
    out = np.empty_like(x)
    exp_nonpositive(x, out, 3.0)
    np.testing.assert_allclose(out, 3.0 * np.exp(x), rtol=2 * np.finfo(float).eps)


def test_exp_flushes_the_far_tail_to_zero_and_keeps_nan():
    x, out = np.array([-691.0, -1e300, -np.inf, np.nan]), np.empty(4)
    exp_nonpositive(x, out, 1.0)
    assert out[:3].tolist() == [0.0, 0.0, 0.0]
    assert np.isnan(out[3])


@pytest.mark.parametrize(("n", "n_negative"), [(1, 1), (7, 0), (7, 3), (90, 11), (90, 90), (150, 1)])
def test_signed_cholesky(n, n_negative):
    rng = np.random.default_rng(n + n_negative)
    B = rng.normal(size=(n, n))
    sign = np.where(np.arange(n) < n - n_negative, 1.0, -1.0)
    root = np.where(sign > 0.0, 1.0, 0.2)
    K = B @ B.T / n
    A = np.diag(sign) + root[:, None] * K * root
    M = junk_above(A)
    assert signed_cholesky_inplace(M, n - n_negative)
    assert np.isnan(M[np.triu_indices(n, 1)]).all()
    L = np.tril(M)
    np.testing.assert_allclose(L * sign @ L.T, A, atol=1e-12)
    np.testing.assert_allclose(lapack.log_determinant(M), np.linalg.slogdet(A)[1], atol=1e-11)
    inverse_from_signed_cholesky_inplace(M, n - n_negative)
    lapack.mirror_lower(M)
    np.testing.assert_allclose(M @ A, np.eye(n), atol=1e-10)


def test_signed_cholesky_reports_that_there_is_none():
    assert not signed_cholesky_inplace(np.array([[-1.0, 0.0], [0.0, -1.0]]), 1)
    assert not signed_cholesky_inplace(np.array([[1.0, 0.0], [0.0, 1.0]]), 1)
