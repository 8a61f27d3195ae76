"""LAPACK and BLAS for compiled code.

numba does not offer the routines used here (`dpotrf`, `dtrtri`, `dlauum`, `dtrmm`, `dtrsm`, `dsyrk`, `dtrsv`, `dsymv`).
SciPy exports their addresses for Cython; each is registered with LLVM under a name of ours and called as an external
function.  Unlike a ctypes pointer, a *name* can be stored in numba's disk cache: a second process need not compile.

Matrices are C-contiguous float64.  LAPACK reads them column by column, so the lower triangle of a C array is LAPACK's
"U" triangle.  Every routine here works on the **lower triangle** of the C array, where each row is contiguous, and
neither reads nor writes the other one unless it says so.  Where factorisations are most of the work they are made in
the **upper triangle**, LAPACK's "L", whose `dpotrf` takes 0.78 of the time at n = 80 to 300 (OpenBLAS 0.3); names say
`upper`.
"""

import math
from typing import Any

import llvmlite.binding
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.runtime.typing import Array


def _external(library: str, routine: str, n_args: int) -> Any:
    """Register a routine of SciPy's BLAS or LAPACK and return it, callable from compiled code."""
    name = f"hmcgp_{routine}"
    llvmlite.binding.add_symbol(name, get_cython_function_address(f"scipy.linalg.cython_{library}", routine))
    return types.ExternalFunction(name, types.void(*[types.voidptr] * n_args))


_dpotrf = _external("lapack", "dpotrf", 5)
_dtrtri = _external("lapack", "dtrtri", 6)
_dlauum = _external("lapack", "dlauum", 5)
_dtrmm = _external("blas", "dtrmm", 11)
_dtrsm = _external("blas", "dtrsm", 11)
_dsyrk = _external("blas", "dsyrk", 10)
_dtrsv = _external("blas", "dtrsv", 8)
_dsymv = _external("blas", "dsymv", 10)


@intrinsic  # type: ignore[untyped-decorator]
def _ref(typingctx: Any, value: Any) -> Any:
    """Address of a stack copy of a scalar: Fortran takes every argument by reference."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        slot = cgutils.alloca_once_value(builder, args[0])
        return builder.bitcast(slot, cgutils.voidptr_t)

    return types.voidptr(value), codegen


_UPPER, _LOWER = np.uint8(ord("U")), np.uint8(ord("L"))  # the lower triangle of a C array, and the upper one
_LEFT, _RIGHT = np.uint8(ord("L")), np.uint8(ord("R"))
_PLAIN, _TRANSPOSED = np.uint8(ord("N")), np.uint8(ord("T"))
_ONE = np.int32(1)


@compiled
def cholesky_inplace(A: Array) -> bool:
    """Overwrite the lower triangle of A by L with L L' = A; False if A is not positive definite."""
    n = np.int32(A.shape[0])
    info = np.zeros(1, dtype=np.int32)
    _dpotrf(_ref(_UPPER), _ref(n), A.ctypes, _ref(n), info.ctypes)
    return info[0] == 0


@compiled_inside
def cholesky_upper_inplace(A: Array) -> bool:
    """Overwrite the upper triangle of A by L' with L L' = A; False if A is not positive definite."""
    n = np.int32(A.shape[0])
    info = np.zeros(1, dtype=np.int32)
    _dpotrf(_ref(_LOWER), _ref(n), A.ctypes, _ref(n), info.ctypes)
    return info[0] == 0


@compiled
def inverse_from_cholesky_inplace(L: Array) -> None:
    """Overwrite the lower triangle, holding L, by that of (L L')^-1.

    L^-1 and then L^-T L^-1, as `dpotri`, but 1.6 times as fast at n = 200: OpenBLAS's `dtrtri` runs at a quarter of
    the speed of its matrix products until n is several hundred.
    """
    n = np.int32(L.shape[0])
    info = np.zeros(1, dtype=np.int32)
    inverse_triangle_inplace(L)
    _dlauum(_ref(_UPPER), _ref(n), L.ctypes, _ref(n), info.ctypes)


@compiled_inside
def add_gram(scale: float, Y: Array, out: Array, kept: float = 1.0) -> None:
    """Add scale Y'Y, for Y of shape (k, n), to the lower triangle of out, after multiplying that by `kept`."""
    k, n = np.int32(Y.shape[0]), np.int32(Y.shape[1])
    _dsyrk(
        _ref(_UPPER), _ref(_PLAIN), _ref(n), _ref(k), _ref(scale), Y.ctypes, _ref(n), _ref(kept), out.ctypes, _ref(n)
    )  # fmt: skip


@compiled_inside
def signed_cholesky_inplace(A: Array, n_positive: int) -> bool:
    """Overwrite the lower triangle of A by M with M Σ M' = A, Σ = diag(+1, …, +1, -1, …, -1); False if there is none.

    With p = n_positive, A = [P N'; N Q]: P must be positive definite, and so must X X' - Q, where X = N L_P^-T.  Costs
    what a Cholesky factorisation does.
    """
    n, p = A.shape[0], n_positive
    order, rows, columns = np.int32(n), np.int32(n - p), np.int32(p)
    info = np.zeros(1, dtype=np.int32)
    if p > 0:
        _dpotrf(_ref(_UPPER), _ref(columns), A.ctypes, _ref(order), info.ctypes)
    if p == n or info[0] != 0:
        return info[0] == 0
    flat = A.reshape(-1)
    X, Q = flat[p * n :], flat[p * n + p :]
    for i in range(p, n):
        for j in range(p, i + 1):
            A[i, j] = -A[i, j]
    if p > 0:  # LAPACK sees the transpose: X' = L_P^-1 N'
        _dtrsm(
            _ref(_LEFT), _ref(_UPPER), _ref(_TRANSPOSED), _ref(_PLAIN), _ref(columns), _ref(rows),
            _ref(1.0), A.ctypes, _ref(order), X.ctypes, _ref(order),
        )  # fmt: skip
        _dsyrk(
            _ref(_UPPER), _ref(_TRANSPOSED), _ref(rows), _ref(columns),
            _ref(1.0), X.ctypes, _ref(order), _ref(1.0), Q.ctypes, _ref(order),
        )  # fmt: skip
    _dpotrf(_ref(_UPPER), _ref(rows), Q.ctypes, _ref(order), info.ctypes)
    return info[0] == 0


@compiled_inside
def inverse_from_signed_cholesky_inplace(M: Array, n_positive: int) -> None:
    """Overwrite the lower triangle, holding M, by that of (M Σ M')^-1 = M^-T Σ M^-1."""
    n, p = M.shape[0], n_positive
    order, info = np.int32(n), np.zeros(1, dtype=np.int32)
    inverse_triangle_inplace(M)
    negative = np.zeros((n - p, n))  # the last rows of M^-1
    for i in range(p, n):
        for j in range(i + 1):
            negative[i - p, j] = M[i, j]
    _dlauum(_ref(_UPPER), _ref(order), M.ctypes, _ref(order), info.ctypes)
    if p < n:  # the sum over all rows, less twice those that count with a minus
        add_gram(-2.0, negative, M)


_SMALL_TRIANGLE = 28


@compiled
def inverse_triangle_inplace(L: Array) -> None:
    """Overwrite the lower triangle by L^-1: small diagonal blocks first, then merged two by two.

    [A 0; C D]^-1 = [A^-1 0; -D^-1 C A^-1  D^-1], as two triangular products.
    """
    n = L.shape[0]
    order = np.int32(n)
    info = np.zeros(1, dtype=np.int32)
    flat = L.reshape(-1)
    width = n
    while width > _SMALL_TRIANGLE:
        width = (width + 1) // 2
    for start in range(0, n, width):
        size = np.int32(min(width, n - start))
        corner = flat[start * n + start :]
        _dtrtri(_ref(_UPPER), _ref(_PLAIN), _ref(size), corner.ctypes, _ref(order), info.ctypes)
    while width < n:
        for start in range(0, n - width, 2 * width):
            below = start + width
            rows, columns = np.int32(min(width, n - below)), np.int32(width)  # of C
            A, C, D = flat[start * n + start :], flat[below * n + start :], flat[below * n + below :]
            # LAPACK sees the transpose: C' <- -A'^-1 C', then C' <- C' D'^-1
            _dtrmm(
                _ref(_LEFT), _ref(_UPPER), _ref(_PLAIN), _ref(_PLAIN), _ref(columns), _ref(rows),
                _ref(-1.0), A.ctypes, _ref(order), C.ctypes, _ref(order),
            )  # fmt: skip
            _dtrmm(
                _ref(_RIGHT), _ref(_UPPER), _ref(_PLAIN), _ref(_PLAIN), _ref(columns), _ref(rows),
                _ref(1.0), D.ctypes, _ref(order), C.ctypes, _ref(order),
            )  # fmt: skip
        width *= 2


@compiled_inside
def cholesky_solve_inplace(L: Array, x: Array) -> None:
    """Overwrite the vector x by (L L')^-1 x.

    Two `dtrsv` are 2.5 to 5 times faster than one `dpotrs` for a single right-hand side.
    """
    n = np.int32(L.shape[0])
    _dtrsv(_ref(_UPPER), _ref(_TRANSPOSED), _ref(_PLAIN), _ref(n), L.ctypes, _ref(n), x.ctypes, _ref(_ONE))
    _dtrsv(_ref(_UPPER), _ref(_PLAIN), _ref(_PLAIN), _ref(n), L.ctypes, _ref(n), x.ctypes, _ref(_ONE))


@compiled_inside
def signed_cholesky_solve_inplace(M: Array, n_positive: int, x: Array) -> None:
    """Overwrite the vector x by (M Σ M')^-1 x (see `signed_cholesky_inplace`)."""
    n = np.int32(M.shape[0])
    _dtrsv(_ref(_UPPER), _ref(_TRANSPOSED), _ref(_PLAIN), _ref(n), M.ctypes, _ref(n), x.ctypes, _ref(_ONE))
    for i in range(n_positive, x.shape[0]):
        x[i] = -x[i]
    _dtrsv(_ref(_UPPER), _ref(_PLAIN), _ref(_PLAIN), _ref(n), M.ctypes, _ref(n), x.ctypes, _ref(_ONE))


@compiled_inside
def forward_upper_inplace(U: Array, x: Array) -> None:
    """Overwrite the vector x by L^-1 x, for L' in the upper triangle."""
    n = np.int32(U.shape[0])
    _dtrsv(_ref(_LOWER), _ref(_PLAIN), _ref(_PLAIN), _ref(n), U.ctypes, _ref(n), x.ctypes, _ref(_ONE))


@compiled_inside
def backward_upper_inplace(U: Array, x: Array) -> None:
    """Overwrite the vector x by L^-T x, for L' in the upper triangle."""
    n = np.int32(U.shape[0])
    _dtrsv(_ref(_LOWER), _ref(_TRANSPOSED), _ref(_PLAIN), _ref(n), U.ctypes, _ref(n), x.ctypes, _ref(_ONE))


@compiled_inside
def cholesky_upper_solve_inplace(U: Array, x: Array) -> None:
    """Overwrite the vector x by (L L')^-1 x, for L' in the upper triangle."""
    forward_upper_inplace(U, x)
    backward_upper_inplace(U, x)


@compiled
def triangular_solve_inplace(L: Array, B: Array, transposed: bool) -> None:
    """Overwrite B, of shape (k, m), by L^-1 B, or by L^-T B if `transposed`."""
    rows, columns = np.int32(B.shape[1]), np.int32(B.shape[0])  # LAPACK sees B' <- B' L^-T, and L' as its "U"
    form = _TRANSPOSED if transposed else _PLAIN
    _dtrsm(
        _ref(_RIGHT), _ref(_UPPER), _ref(form), _ref(_PLAIN), _ref(rows), _ref(columns),
        _ref(1.0), L.ctypes, _ref(columns), B.ctypes, _ref(rows),
    )  # fmt: skip


@compiled_inside
def triangular_upper_solve_inplace(U: Array, B: Array, transposed: bool) -> None:
    """Overwrite B, of shape (k, m), by L^-1 B, or by L^-T B if `transposed`, for L' in the upper triangle of U."""
    rows, columns = np.int32(B.shape[1]), np.int32(B.shape[0])  # LAPACK sees B' <- B' L^-T, and L itself
    form = _PLAIN if transposed else _TRANSPOSED
    _dtrsm(
        _ref(_RIGHT), _ref(_LOWER), _ref(form), _ref(_PLAIN), _ref(rows), _ref(columns),
        _ref(1.0), U.ctypes, _ref(columns), B.ctypes, _ref(rows),
    )  # fmt: skip


@compiled
def gram(Y: Array) -> Array:
    """Lower triangle of Y'Y, over zeros, for Y of shape (k, n)."""
    out = np.zeros((Y.shape[1], Y.shape[1]))
    add_gram(1.0, Y, out, 0.0)
    return out


@compiled
def log_determinant(L: Array) -> float:
    """Log |L L'| = 2 Σ log L_ii."""
    total = 0.0
    for i in range(L.shape[0]):
        total += math.log(L[i, i])
    return 2.0 * total


@compiled
def symmetric_times(A: Array, x: Array, out: Array) -> None:
    """Write A x into out, for a symmetric A of which only the lower triangle is read."""
    n = np.int32(A.shape[0])
    _dsymv(
        _ref(_UPPER), _ref(n), _ref(1.0), A.ctypes, _ref(n), x.ctypes, _ref(_ONE), _ref(0.0), out.ctypes, _ref(_ONE)
    )  # fmt: skip


@compiled_inside
def symmetric_upper_times(A: Array, x: Array, out: Array) -> None:
    """Write A x into out, for a symmetric A of which only the upper triangle is read."""
    n = np.int32(A.shape[0])
    _dsymv(
        _ref(_LOWER), _ref(n), _ref(1.0), A.ctypes, _ref(n), x.ctypes, _ref(_ONE), _ref(0.0), out.ctypes, _ref(_ONE)
    )  # fmt: skip


_BLOCK = 64  # two 64 x 64 blocks fit into the first-level cache


@compiled
def mirror_lower(A: Array) -> None:
    """Copy the lower triangle onto the upper one, block by block so that both stay in cache."""
    n = A.shape[0]
    for i0 in range(0, n, _BLOCK):
        for j0 in range(0, i0 + 1, _BLOCK):
            for i in range(i0, min(i0 + _BLOCK, n)):
                for j in range(j0, min(j0 + _BLOCK, i)):
                    A[j, i] = A[i, j]


@compiled_inside
def mirror_upper(A: Array) -> None:
    """Copy the upper triangle onto the lower one (see `mirror_lower`)."""
    n = A.shape[0]
    for i0 in range(0, n, _BLOCK):
        for j0 in range(0, i0 + 1, _BLOCK):
            for i in range(i0, min(i0 + _BLOCK, n)):
                for j in range(j0, min(j0 + _BLOCK, i)):
                    A[i, j] = A[j, i]


@compiled
def least_diagonal(A: Array) -> float:
    """Smallest diagonal element of the square matrices that A, of shape (k n, n), stacks."""
    least = np.inf
    for i in range(A.shape[0]):
        least = min(least, A[i, i % A.shape[1]])
    return least
