"""Free parameters of a kernel and a likelihood as one vector theta."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from hmcgp.kernels import Kernel, Parameter
from hmcgp.likelihoods import Likelihood
from hmcgp.priors.joint import HyperPrior, with_prior
from hmcgp.runtime.typing import Array

_Values: TypeAlias = list[Array | float]


class Hyperparameters:
    """Parameters of a kernel, then of a likelihood, with the place of each free one in theta."""

    def __init__(self, kernel: Kernel, likelihood: Likelihood, inputs: Sequence[str]) -> None:
        of_kernel = kernel.parameters(inputs)
        of_likelihood = _apart_from(of_kernel, likelihood.parameters(inputs))
        everything = [with_prior(p, likelihood.targets) for p in (*of_kernel, *of_likelihood)]
        self.free: list[Parameter] = [p for p in everything if p.is_free]  # in the order of theta, each with its prior
        self.prior = HyperPrior(self.free)
        self.n_kernel = sum(p.size for p in of_kernel)  # values of the kernel's parameters, fixed ones included
        self.n_likelihood = sum(p.size for p in of_likelihood)
        self.names_of_kernel = [name for p in everything[: len(of_kernel)] if p.is_free for name in p.flat_names]
        slices = iter(self.prior.slices)
        placed = [(p, next(slices) if p.is_free else None) for p in everything]
        self._of_kernel, self._of_likelihood = placed[: len(of_kernel)], placed[len(of_kernel) :]
        self._is_free = np.repeat([p.is_free for p in everything], [p.size for p in everything])  # of all derivatives

    def kernel_at(self, kernel: Kernel, theta: Array) -> Kernel:
        """Kernel with its parameters at theta."""
        return kernel.with_values(_values(self._of_kernel, theta))

    def likelihood_at(self, likelihood: Likelihood, theta: Array) -> Likelihood:
        """Likelihood with its parameters at theta."""
        return likelihood.with_values(_values(self._of_likelihood, theta)) if self._of_likelihood else likelihood

    def gradient(self, dkernel: Array, dlik: Array) -> Array:
        """Derivatives in theta, given those in all parameters of the kernel and of the likelihood."""
        return (np.concatenate([dkernel, dlik]) if self._of_likelihood else dkernel)[self._is_free]


def _apart_from(taken: Sequence[Parameter], parameters: Sequence[Parameter]) -> list[Parameter]:
    """Parameters of the likelihood, `likelihood.` before a name that the kernel has too."""
    names = {p.name for p in taken}
    return [p._replace(name=f"likelihood.{p.name}") if p.name in names else p for p in parameters]


def _values(parameters: list[tuple[Parameter, slice | None]], theta: Array) -> _Values:
    """Values for `with_values`: the fixed value of each parameter, or its part of theta."""
    values: _Values = []
    for p, place in parameters:
        if place is None:
            values.append(p.value)
        else:
            values.append(theta[place] if p.labels is not None else float(theta[place][0]))
    return values
