"""Test of a user's kernel: that it is a covariance, its methods agree, and its derivatives are right."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.kernels.base import Kernel, Parameter
from hmcgp.parameters.declaration import POSITIVE, REAL
from hmcgp.runtime.typing import Array


class GradientCheck(NamedTuple):
    """Derivatives of a kernel by its pullback and by central differences, one entry per number of the parameters."""

    names: list[str]
    values: Array  # where the kernel was evaluated
    pullback: Array  # Σ_ij G_ij ∂K_ij/∂θ as the kernel gives it
    numeric: Array  # by central differences


def check_gradient(
    kernel: Kernel, X: Any, *, input_names: Sequence[str] | None = None, rtol: float = 1e-5, seed: int = 0
) -> GradientCheck:
    """Check a kernel and its derivatives at the rows of X.

    Its matrix must be symmetric and positive semidefinite; `vjp(X)[0]`, `kernel(X)`, `kernel(X, X2)` and `diag(X)` must
    agree; its pullback, that of `inducing_vjp`, and `input_vjp` if it has one, must match central differences for
    random adjoints.

    Parameters
    ----------
    kernel : Kernel
        Parameters that are numbers are taken as they are, those left open at random values.
    X : array-like of shape (n, d)
        Some rows, 2 to 50 of them.  Where a kernel has kinks, rows should not sit on them.
    input_names : sequence of str, optional
        Names of the inputs, if the kernel refers to columns by name; x0, x1, … by default.
    rtol : float, default=1e-5
        Tolerance, relative to the largest derivative.
    seed : int, default=0
        Of the random values and of G.

    Returns
    -------
    GradientCheck
        The derivatives compared, if all checks pass.

    Raises
    ------
    InvalidInput
        If a check fails: what differs, and by how much.
    """
    X = np.asarray(X, dtype=float)
    if X.ndim != 2 or len(X) < 2:
        raise InvalidInput(f"'X' must have shape (n, d) with at least 2 rows; got {X.shape}.")
    inputs = list(input_names) if input_names is not None else [f"x{k}" for k in range(X.shape[1])]
    rng = np.random.default_rng(seed)
    parameters, kernel = kernel.parameters(inputs), kernel.with_positions(inputs)
    values = [_some_value(p, rng) for p in parameters]
    valued = kernel.with_values(values)
    _check_matrices(valued, X)
    V = rng.normal(size=(len(X), len(X)))
    G = V + V.T
    found = _check_pullback(kernel, parameters, values, X, G, rtol)
    _check_inducing(kernel, parameters, values, X, G, rtol)
    if valued.has_input_vjp:
        numeric = _differences(lambda x: float(np.sum(G * valued(x.reshape(X.shape)))), X.ravel())
        entries = [f"X[{i}, {name}]" for i in range(len(X)) for name in inputs]
        _compare(valued, "its input_vjp", entries, valued.input_vjp(X, G).ravel(), numeric, rtol)
    return found


def _check_pullback(
    kernel: Kernel, parameters: list[Parameter], values: list[Array | float], X: Array, G: Array, rtol: float
) -> GradientCheck:
    valued = kernel.with_values(values)
    theta, names = _flat(values), [name for p in parameters for name in p.flat_names]
    grad = np.asarray(valued.vjp(X)[1](G), dtype=float)
    if grad.shape != theta.shape:
        _fail(valued, f"its pullback must give {len(theta)} derivatives, for {names}; it gives the shape {grad.shape}")
    numeric = _differences(lambda t: float(np.sum(G * kernel.with_values(_split(parameters, t))(X))), theta)
    ours = np.where(_given(parameters) & np.isnan(grad), numeric, grad)
    _compare(valued, "its pullback", names, ours, numeric, rtol)
    return GradientCheck(names, theta, grad, numeric)


def _check_inducing(
    kernel: Kernel, parameters: list[Parameter], values: list[Array | float], X: Array, G: Array, rtol: float
) -> None:
    """Check `inducing_vjp`, with half of the rows as inducing inputs."""
    m = (len(X) + 1) // 2
    Z, weights, own = X[:m] + 0.0, np.triu(G)[:, :m], G[:, 0]  # adjoints without symmetry
    valued = kernel.with_values(values)
    K, k, pullback = valued.inducing_vjp(X, Z)
    for what, other, expected in (
        ("inducing_vjp(X, Z)[0] must equal kernel(X, Z)", K, valued(X, Z)),
        ("inducing_vjp(X, Z)[1] must equal diag(X)", k, valued.diag(X)),
    ):
        if np.shape(other) != expected.shape or not np.allclose(other, expected, rtol=1e-10, atol=1e-12):
            _fail(valued, f"{what}; their shapes are {np.shape(other)} and {expected.shape}")
    grad = np.asarray(pullback(weights, own), dtype=float)
    theta, names = _flat(values), [name for p in parameters for name in p.flat_names]
    if grad.shape != theta.shape:
        _fail(valued, f"the pullback of inducing_vjp must give {len(theta)} derivatives; it gives {grad.shape}")

    def product(t: Array) -> float:
        moved = kernel.with_values(_split(parameters, t))
        return float(np.sum(weights * moved(X, Z)) + own @ moved.diag(X))

    numeric = _differences(product, theta)
    ours = np.where(_given(parameters) & np.isnan(grad), numeric, grad)
    _compare(valued, "the pullback of its inducing_vjp", names, ours, numeric, rtol)


def _flat(values: list[Array | float]) -> Array:
    return np.concatenate([np.atleast_1d(np.asarray(v, dtype=float)) for v in [*values, np.empty(0)]])


def _given(parameters: list[Parameter]) -> Any:
    """True for numbers given beforehand: they need have no derivative, and a pullback says so with NaN."""
    return np.repeat([not p.is_free for p in parameters], [p.size for p in parameters]).astype(bool)


def _check_matrices(kernel: Kernel, X: Array) -> None:
    K, half = kernel.vjp(X)[0], len(X) // 2
    scale, block = float(np.max(np.abs(K))), K[:half, half:]
    _check_equal(kernel, "vjp(X)[0] must be symmetric", K, K.T, scale)
    _check_equal(kernel, "kernel(X) must equal vjp(X)[0]", kernel(X), K, scale)
    _check_equal(kernel, "diag(X) must be the diagonal of vjp(X)[0]", kernel.diag(X), np.diag(K), scale)
    what = "kernel(X, X2) must be a block of vjp([X, X2])[0]"
    _check_equal(kernel, what, kernel(X[:half], X[half:]), block, scale)
    _check_equal(kernel, "add_to(A, X, None) must add kernel(X) to A", _added(kernel, X, None), K, scale)
    what = "add_to(A, X, X2) must add kernel(X, X2) to A"
    _check_equal(kernel, what, _added(kernel, X[:half], X[half:]), block, scale)
    what = "add_vjp(A, X, c, out) must write A + c + kernel(X) into out"
    _check_equal(kernel, what, _written(kernel, X, scale), K, scale)
    lowest = float(np.linalg.eigvalsh(K)[0])
    if lowest < -1e-9 * scale * len(X):
        _fail(kernel, f"its matrix must be positive semidefinite; its smallest eigenvalue is {lowest:.3g}")


def _check_equal(kernel: Kernel, what: str, found: Array, expected: Array, scale: float) -> None:
    if np.shape(found) != expected.shape:
        _fail(kernel, f"{what}; their shapes are {np.shape(found)} and {expected.shape}")
    difference = np.abs(found - expected)
    if not np.all(difference <= 1e-10 * scale):  # NaN fails too
        _fail(kernel, f"{what}; they differ by up to {np.max(difference):.3g}, where K is up to {scale:.3g}")


def _added(kernel: Kernel, X: Array, X2: Array | None) -> Array:
    """What `add_to` adds to a matrix of zeros."""
    A = np.zeros((len(X), len(X if X2 is None else X2)))
    kernel.add_to(A, X, X2)
    return A


def _written(kernel: Kernel, X: Array, c: float) -> Array:
    """What `add_vjp` adds to 2c on the diagonal and the constant c, all of the size of the kernel."""
    A, out = 2.0 * c * np.eye(len(X)), np.full((len(X), len(X)), 3.0)  # which is not read
    kernel.add_vjp(A, X, c, out)
    return out - A - c


def _some_value(p: Parameter, rng: np.random.Generator) -> Array | float:
    """Fixed value of a parameter, or an ordinary one inside the support of a free parameter."""
    if not p.is_free:
        return np.asarray(p.value, dtype=float) if p.labels is not None else float(p.value)
    z = rng.uniform(-0.5, 0.5, size=p.size)
    if p.support == POSITIVE:
        z = np.exp(z)
    elif p.support != REAL:
        lower, upper = p.support
        z = lower + (z + 1.0) / 2.0 * (upper - lower) if math.isfinite(upper - lower) else lower + np.exp(z)
    return z if p.labels is not None else float(z[0])


def _split(parameters: list[Parameter], theta: Array) -> list[Array | float]:
    parts = np.split(theta, np.cumsum([p.size for p in parameters])[:-1]) if parameters else []
    return [part if p.labels is not None else float(part[0]) for p, part in zip(parameters, parts, strict=True)]


def _differences(fun: Callable[[Array], float], x: Array) -> Array:
    """Central differences with relative steps of eps^(1/3)."""
    slopes = np.empty(len(x))
    for i in range(len(x)):
        step = np.zeros(len(x))
        step[i] = 6e-6 * max(abs(x[i]), 1e-2)
        slopes[i] = (fun(x + step) - fun(x - step)) / (2.0 * step[i])
    return slopes


def _compare(kernel: Kernel, what: str, names: list[str], ours: Array, numeric: Array, rtol: float) -> None:
    tolerance = rtol * float(np.max(np.abs(numeric), initial=1e-3))
    bad = [i for i in range(len(names)) if not abs(ours[i] - numeric[i]) <= tolerance]  # NaN fails too
    if bad:
        lines = ", ".join(f"{names[i]}: {ours[i]:.6g} for {numeric[i]:.6g}" for i in bad[:5])
        _fail(kernel, f"{what} does not match central differences ({lines}{', …' if len(bad) > 5 else ''})")


def _fail(kernel: Kernel, message: str) -> NoReturn:
    raise InvalidInput(f"{type(kernel).__name__}: {message}.")
