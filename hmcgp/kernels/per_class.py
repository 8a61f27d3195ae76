"""One covariance function per class, for likelihoods with one latent function per class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.kernels.base import InducingPullback, Kernel, Parameter, Pullback
from hmcgp.parameters.units import Units
from hmcgp.runtime.checks import refuse_class
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class PerClass(Kernel):
    """Independent functions, one for each class: K, of shape (C, n, n), stacks their covariance matrices.

    `Model` and `GPClassifier` make one of a list of kernels, and the latter by default.  Nothing else can be made
    of it: combine the kernels themselves.

    Parameters
    ----------
    kernels : tuple of Kernel
        In the order of the classes.
    names : tuple of str, optional
        Of the classes; they stand before the names of the parameters.  Default: class0, class1, …
    """

    kernels: tuple[Kernel, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kernels = _checked(tuple(self.kernels))
        names = tuple(self.names) or tuple(f"class{c}" for c in range(len(kernels)))
        if len(names) != len(kernels) or len(set(names)) < len(names):
            raise InvalidInput(f"{len(kernels)} kernels need as many different names of classes; got {list(names)}.")
        object.__setattr__(self, "kernels", kernels)
        object.__setattr__(self, "names", names)

    def children(self) -> dict[str, Kernel]:
        """Kernel of each class, by its name."""
        return dict(zip(self.names, self.kernels, strict=True))

    def parameters(self, inputs: Sequence[str]) -> list[Parameter]:
        """All parameters, class by class, with the name of the class before each."""
        return [
            p._replace(name=f"{name}.{p.name}", of_class=name)
            for name, kernel in self.children().items()
            for p in kernel.parameters(inputs)
        ]

    def with_positions(self, inputs: Sequence[str]) -> Kernel:
        return self._with({"kernels": tuple(k.with_positions(inputs) for k in self.kernels)})

    def in_standard_units(self, units: Units) -> Kernel:
        return self._with({"kernels": tuple(k.in_standard_units(units) for k in self.kernels), "standardized": True})

    def _take_values(self, remaining: list[Any]) -> Self:
        return self._with({"kernels": tuple(k._take_values(remaining) for k in self.kernels)})

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        """Covariance matrices, of shape (C, n, n), and pullback of adjoints of that shape (see `Kernel.vjp`)."""
        matrices, pullbacks = zip(*(k.vjp(X) for k in self.kernels), strict=True)

        def pullback(G: Array) -> Array:
            return np.concatenate([pull(G_c) for pull, G_c in zip(pullbacks, G, strict=True)])

        return np.stack(matrices), pullback

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        """Covariances (C, n, m), variances (C, n) and pullback, with the classes first (see `Kernel.inducing_vjp`)."""
        found = [k.inducing_vjp(X, Z) for k in self.kernels]

        def pullback(G: Array, g: Array) -> Array:
            return np.concatenate([part[2](G_c, g_c) for part, G_c, g_c in zip(found, G, g, strict=True)])

        return np.stack([part[0] for part in found]), np.stack([part[1] for part in found]), pullback

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        """Covariances of each class between the rows of X and those of X2, of shape (C, n, m)."""
        return np.stack([k(X, X2) for k in self.kernels])

    def diag(self, X: Array) -> Array:
        """Prior variances of each class at each row of X, of shape (C, n)."""
        return np.stack([k.diag(X) for k in self.kernels])


def _checked(kernels: tuple[Any, ...]) -> tuple[Kernel, ...]:
    for kernel in kernels:
        refuse_class("kernel", kernel)
    bad = [k for k in kernels if not isinstance(k, Kernel) or isinstance(k, PerClass)]
    if bad or len(kernels) < 2:
        raise InvalidInput(f"kernels of classes must be two or more hmcgp kernels; got {bad or list(kernels)}.")
    return kernels
