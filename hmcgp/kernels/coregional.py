"""Covariance between several outputs: functions of the same inputs that share structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.kernels.algebra import On, Product, Sum, Wrapped
from hmcgp.kernels.base import InducingPullback, Kernel, Pullback, Value, parameter, sum_if_shared, value_of
from hmcgp.parameters.declaration import REAL
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Coregional(Kernel):
    """B_ab for inputs a and b that number the outputs 0, 1, …, k - 1; B = LL', L lower triangular with L_aa > 0.

    Times a kernel C of the other columns, cov(f_a(x), f_b(x')) = B_ab C(x, x'): every output is a mixture of k
    independent functions.  The diagonal of L is positive, so that each B has one L, and no two signs say the same.  B
    carries the variances: fix that of C to 1.  B_aa is a sum of a + 1 squares: under the default priors an output has a
    somewhat larger prior variance the later it comes.

    Parameters
    ----------
    n_outputs : int
        k.
    scale : float, sequence of float or prior, optional
        The diagonal of L.
    mixing : float, sequence of float or prior, optional
        The elements of L below the diagonal, row by row: L_10, L_20, L_21, …
    outputs : sequence of str, optional
        Names of the outputs, for the names of the parameters.  Default: their numbers.
    """

    n_outputs: int
    scale: Value = parameter("scale", per_basis=True)
    mixing: Value = parameter("mixing", per_basis=True, support=REAL)
    outputs: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.n_outputs, bool) or not isinstance(self.n_outputs, int) or self.n_outputs < 2:
            raise InvalidInput(f"'n_outputs' of Coregional must be a whole number >= 2; got {self.n_outputs!r}.")
        if self.outputs is not None:
            object.__setattr__(self, "outputs", tuple(map(str, self.outputs)))
            if len(set(self.outputs)) != self.n_outputs:
                raise InvalidInput(f"Coregional needs {self.n_outputs} different names; got {self.outputs}.")

    def _components(self, f: Any, inputs: Sequence[str]) -> tuple[str, ...] | None:
        names = self.outputs or tuple(map(str, range(self.n_outputs)))
        if f.name == "scale":
            return names
        return tuple(f"{names[a]},{names[b]}" for a, b in zip(*self._below(), strict=True))

    def _below(self) -> tuple[Any, Any]:
        return np.tril_indices(self.n_outputs, -1)

    def _factor(self) -> Array:
        L = np.diag(np.broadcast_to(np.asarray(value_of(self, "scale"), dtype=float), self.n_outputs))
        L[self._below()] = value_of(self, "mixing")
        return L

    def covariance(self) -> Array:
        """B, of shape (k, k)."""
        L = self._factor()
        return L @ L.T

    def _outputs(self, X: Array) -> Any:
        if X.ndim != 2 or X.shape[1] != 1:
            raise InvalidInput(f"Coregional sees one column, the number of the output; got {X.shape}. Use on([...]).")
        a = X[:, 0].astype(int)
        if (a != X[:, 0]).any() or a.min(initial=0) < 0 or a.max(initial=0) >= self.n_outputs:
            raise InvalidInput(f"the outputs of Coregional are numbered 0 to {self.n_outputs - 1}; got {set(X[:, 0])}.")
        return a

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        a, L = self._outputs(X), self._factor()
        B = L @ L.T

        def pullback(G: Array) -> Array:
            member = np.eye(self.n_outputs)[a]  # (n, k)
            return self._pull_factor(2.0 * (member.T @ G @ member) @ L)  # ∂(LL')/∂L, for a symmetric dB

        return B[np.ix_(a, a)], pullback

    def _pull_factor(self, dL: Array) -> Array:
        scale, mixing = sum_if_shared(self.scale, np.diag(dL)), sum_if_shared(self.mixing, dL[self._below()])
        return np.concatenate([scale, mixing])

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        a, b, L = self._outputs(X), self._outputs(Z), self._factor()
        B = L @ L.T

        def pullback(G: Array, g: Array) -> Array:
            left, right = np.eye(self.n_outputs)[a], np.eye(self.n_outputs)[b]
            dB = left.T @ G @ right + np.diag(g @ left)
            return self._pull_factor((dB + dB.T) @ L)

        return B[np.ix_(a, b)], np.diag(B)[a], pullback

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        a = self._outputs(X)
        return self.covariance()[np.ix_(a, a if X2 is None else self._outputs(X2))]

    def diag(self, X: Array) -> Array:
        return np.diag(self.covariance())[self._outputs(X)]


def coregionalised(kernel: Kernel, n_inputs: int, outputs: Sequence[str]) -> Kernel:
    """C(x, x') B_ab for inputs x with the number of the output behind them.

    B carries the variances, so those of C that are left to their default priors are fixed to 1: of the first term in a
    sum, to which the others are then relative, and of every factor in a product.  What the user has given stays.
    """
    B = Coregional(len(outputs), outputs=tuple(outputs))
    return Product(On(_unit_variance(kernel), tuple(range(n_inputs))), On(B, (n_inputs,)))


def _unit_variance(kernel: Kernel) -> Kernel:
    if isinstance(kernel, Sum):
        return Sum(_unit_variance(kernel.left), kernel.right)
    if isinstance(kernel, Product):
        return Product(_unit_variance(kernel.left), _unit_variance(kernel.right))
    changes: dict[str, Any] = {
        f.name: 1.0
        for f in kernel._own_fields()
        if f.metadata["role"] == "variance" and getattr(kernel, f.name) is None and not f.metadata["per_input"]
    }
    if isinstance(kernel, Wrapped):
        changes["kernel"] = _unit_variance(kernel.kernel)
    return replace(kernel, **changes)
