"""Checks of the arrays that kernels return, before compiled code reads them.

Two sorts of checks:

* Of every array, that it is float64 and of the right shape: compiled code trusts both, and would read beyond the end
  of a smaller array.  Other memory orders, and arrays that cannot be written to, are copied into C order.
* Once for a model with a kernel of the user's own, at hyperparameters drawn from their prior (`check_kernel`): that K
  is symmetric and positive semidefinite, the pullback gives one derivative per parameter, and neither the inputs nor
  earlier results are written to.

Both raise `InvalidInput`: the kernel breaks its contract.  Infinities and NaN do not, unless they come at every draw
from the prior: at extreme hyperparameters any kernel may overflow, and `hmcgp.model` then rejects the proposal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NoReturn

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.kernels.base import InducingPullback, Kernel, Pullback
from hmcgp.kernels.per_class import PerClass
from hmcgp.numerics.lapack import least_diagonal
from hmcgp.runtime.typing import Array

_FLOAT = np.dtype(np.float64)
_ROUNDING = 1e-8  # of the trace: an eigenvalue, variance or asymmetry that rounding may leave
_EIGEN_ROWS = 300  # whose eigenvalues are computed, and
_ROWS = 1000  # whose covariances are, to check a kernel
_DRAWS = 10  # from the prior before a kernel that gives no finite matrix is refused

_HELP = "hmcgp.kernels.check_gradient(kernel, X) tests a kernel of your own"


def covariance(kernel: Kernel, X: Array) -> Array:
    """kernel(X), of shape (n, n), or (C, n, n) for a kernel per class."""
    return checked_covariance(kernel, kernel(X), len(X))


def checked_covariance(kernel: Kernel, K: Array, n: int) -> Array:
    """Return K = kernel(X) at n inputs, once it is found to be such an array."""
    return _array(kernel, "__call__", K, _shape(kernel, n, n))


def cross_covariance(kernel: Kernel, X: Array, X2: Array) -> Array:
    """kernel(X, X2), of shape (n, m), or (C, n, m)."""
    return _array(kernel, "__call__", kernel(X, X2), _shape(kernel, len(X), len(X2)))


def variances(kernel: Kernel, X: Array) -> Array:
    """kernel.diag(X), of shape (n,), or (C, n)."""
    return _array(kernel, "diag", kernel.diag(X), _shape(kernel, len(X)))


def derivatives(kernel: Kernel, grad: Array, size: int) -> Array:
    """Derivatives from the pullback of vjp, of shape (size,): one per parameter."""
    return _array(kernel, "vjp's pullback", grad, (size,))


def checked_pair(kernel: Kernel, found: tuple[Array, Pullback], n: int) -> tuple[Array, Pullback]:
    """Return kernel.vjp(X) at n inputs, with K of shape (n, n), or (C, n, n)."""
    if type(found) is not tuple or len(found) != 2 or not callable(found[1]):
        _fail(kernel, "vjp", f"returned {_kind(found)}, where the pair (K, pullback) is needed")
    return _array(kernel, "vjp", found[0], _shape(kernel, n, n)), found[1]


def inducing_triple(kernel: Kernel, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
    """kernel.inducing_vjp(X, Z), with K of shape (n, m) and k of shape (n,), or (C, n, m) and (C, n)."""
    found = kernel.inducing_vjp(X, Z)
    if type(found) is not tuple or len(found) != 3 or not callable(found[2]):
        _fail(kernel, "inducing_vjp", f"returned {_kind(found)}, where (K, k, pullback) is needed")
    K = _array(kernel, "inducing_vjp", found[0], _shape(kernel, len(X), len(Z)))
    return K, _array(kernel, "inducing_vjp", found[1], _shape(kernel, len(X))), found[2]


def _shape(kernel: Kernel, *shape: int) -> tuple[int, ...]:
    return (len(kernel.kernels), *shape) if type(kernel) is PerClass else shape  # isinstance costs half a microsecond


def _array(kernel: Kernel, method: str, value: Array, shape: tuple[int, ...]) -> Array:
    if type(value) is np.ndarray and value.dtype == _FLOAT and value.shape == shape and value.flags.carray:
        return value
    if not isinstance(value, np.ndarray):
        _fail(kernel, method, f"returned {_kind(value)}, where an array of shape {shape} is needed")
    if value.dtype != _FLOAT:
        _fail(kernel, method, f"returned an array of {value.dtype}, where float64 is needed: end with .astype(float)")
    if value.shape != shape:
        _fail(kernel, method, f"returned an array of shape {value.shape}, where {shape} is needed")
    return np.require(value, requirements=["C", "A", "W"])


def _kind(value: object) -> str:
    return f"an object of type {type(value).__name__}"


def _fail(kernel: Kernel, method: str, message: str) -> NoReturn:
    raise InvalidInput(f"{type(kernel).__name__}.{method} {message}. ({_HELP}.)")


def has_negative_variance(K: Array) -> bool:
    """True if the diagonal of K, of shape (..., n, n), falls below 0 by more than rounding; NaN is ignored."""
    if least_diagonal(K if K.ndim == 2 else K.reshape(-1, K.shape[-1])) >= 0.0:
        return False
    variances = np.diagonal(K, axis1=-2, axis2=-1)
    return bool(variances.min() < -_ROUNDING * np.abs(variances).sum())


def is_foreign(kernel: Kernel) -> bool:
    """True if a class from outside this package is part of a kernel."""
    return _is_foreign_class(type(kernel)) or any(is_foreign(child) for child in kernel.children().values())


def custom_classes(kernel: Kernel) -> list[str]:
    """Names of the classes from outside this package in a kernel, in the order of the formula, each once."""
    own = [type(kernel).__name__] if _is_foreign_class(type(kernel)) else []
    inside = [name for child in kernel.children().values() for name in custom_classes(child)]
    return list(dict.fromkeys(own + inside))


def _is_foreign_class(kind: type) -> bool:
    return kind.__module__.partition(".")[0] != __name__.partition(".")[0]


def check_kernel(draw: Callable[[], Kernel], X: Array) -> None:
    """Check a kernel, as `draw` returns it with values from their prior, at two draws for which it is finite."""
    if len(X) > _ROWS:
        X = X[np.linspace(0, len(X) - 1, _ROWS).astype(int)]
    earlier: list[tuple[Array, Array]] = []  # K, and its copy
    for _ in range(_DRAWS):
        kernel = draw()
        watched = _watched(kernel)
        with np.errstate(all="ignore"):
            K, pullback = checked_pair(watched, watched.vjp(X), len(X))
            pullback(np.ones(K.shape))
            covariance(watched, X)
            cross_covariance(watched, X, X[:2])
            variances(watched, X)
        if any(not np.array_equal(old, copy, equal_nan=True) for old, copy in earlier):
            _fail(kernel, "vjp", "wrote into an array that it had returned before: return a new array every time")
        if np.isfinite(K).all():
            _check_covariance(kernel, K)
            earlier.append((K, K.copy()))
        if len(earlier) == 2:
            return
    if not earlier:
        _fail(kernel, "vjp", f"returned NaN or infinity at each of {_DRAWS} draws from the prior of its parameters")


def _check_covariance(kernel: Kernel, K: Array) -> None:
    """Refuse a finite K that is not symmetric, or not positive semidefinite, beyond rounding."""
    for matrix in K.reshape(-1, *K.shape[-2:]):
        scale = float(np.abs(np.diag(matrix)).sum())
        asymmetry = float(np.max(np.abs(matrix - matrix.T)))
        if asymmetry > _ROUNDING * max(scale, float(np.abs(matrix).max())):
            _fail(kernel, "vjp", f"returned a matrix that is not symmetric: K and K' differ by up to {asymmetry:.3g}")
        lowest = float(np.diag(matrix).min())
        if lowest < -_ROUNDING * scale:
            _fail(kernel, "vjp", f"returned a negative variance, {lowest:.3g}, on the diagonal of K")
        rows = np.linspace(0, len(matrix) - 1, min(len(matrix), _EIGEN_ROWS)).astype(int)
        lowest = float(np.linalg.eigvalsh(matrix[np.ix_(rows, rows)])[0])
        if lowest < -_ROUNDING * scale:
            _fail(kernel, "vjp", f"returned a matrix that is no covariance: it has a negative eigenvalue, {lowest:.3g}")


def _watched(kernel: Kernel) -> Kernel:
    """Return the kernel with every part from outside this package checked at each call, so that errors name it."""
    if isinstance(kernel, PerClass):
        return kernel._with({"kernels": tuple(_watched(k) for k in kernel.kernels)})
    copy = kernel._with({name: _watched(child) for name, child in kernel.children().items()})
    if _is_foreign_class(type(kernel)):
        object.__setattr__(copy, "__class__", _watching(type(kernel)))
    return copy


@cache
def _watching(kind: type[Kernel]) -> type[Kernel]:
    """Return a subclass of a user's kernel that checks what it takes and gives."""

    class Watching(kind):  # type: ignore[valid-type,misc]
        def vjp(self, X: Array) -> tuple[Array, Pullback]:
            given = X.copy()
            K, pullback = checked_pair(self, super().vjp(given), len(X))
            _check_unchanged(self, "vjp", X, given)
            if np.isfinite(K).all():
                _check_covariance(self, K)
            size = sum(p.size for p in self.parameters([f"x{k}" for k in range(X.shape[1])]))
            return K, lambda G: derivatives(self, pullback(G), size)

        def __call__(self, X: Array, X2: Array | None = None) -> Array:
            given, given2 = X.copy(), None if X2 is None else X2.copy()
            K = super().__call__(given, given2)
            _check_unchanged(self, "__call__", X, given)
            if X2 is not None and given2 is not None:
                _check_unchanged(self, "__call__", X2, given2)
            return _array(self, "__call__", K, (len(X), len(X if X2 is None else X2)))

        def diag(self, X: Array) -> Array:
            given = X.copy()
            k = super().diag(given)
            _check_unchanged(self, "diag", X, given)
            return _array(self, "diag", k, (len(X),))

    Watching.__name__ = Watching.__qualname__ = kind.__name__
    return Watching


def _check_unchanged(kernel: Kernel, method: str, X: Array, given: Array) -> None:
    if not np.array_equal(X, given, equal_nan=True):
        _fail(kernel, method, "changed its inputs in place: work on a copy of X")
