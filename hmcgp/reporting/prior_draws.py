"""Functions of one input drawn from the prior of a kernel, for pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from hmcgp.parameters import Parameter
from hmcgp.priors.joint import HyperPrior, with_prior
from hmcgp.runtime.typing import Array


def functions_of_kernel(rng: np.random.Generator, kernel: Any, x: Array, n: int, targets: str) -> Array:
    """Functions at x, or behind "labels" their logistic probabilities, each under hyperparameters of its own: (n, m).

    Parameters
    ----------
    rng : Generator
    kernel : Kernel
        Parameters that it leaves open have their default priors.
    x : ndarray of shape (m,)
        Of one standardised input.
    n : int
    targets : {"labels", "numbers"}
        Behind the function; decides the default priors.
    """
    parameters = [with_prior(p, targets) for p in kernel.parameters(["x"])]
    free = HyperPrior([p for p in parameters if p.is_free])
    placed, out = kernel.with_positions(["x"]), np.empty((n, len(x)))
    for f in out:
        valued = placed.with_values(_values(parameters, free, free.sample(rng)))
        root, vectors = np.linalg.eigh(valued(x[:, None]))
        f[:] = vectors @ (np.sqrt(np.maximum(root, 0.0)) * rng.standard_normal(len(x)))
    return expit(out) if targets == "labels" else out


def _values(parameters: Sequence[Parameter], free: HyperPrior, theta: Array) -> list[Any]:
    """Values of all parameters, fixed and drawn, in their order."""
    places = iter(free.slices)
    values = [theta[next(places)] if p.is_free else p.value for p in parameters]
    return [v if p.labels is not None else float(np.ravel(v)[0]) for p, v in zip(parameters, values, strict=True)]
