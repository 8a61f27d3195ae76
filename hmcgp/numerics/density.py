"""Contract between models and samplers: a log density with its gradient.

A target maps an unconstrained position u to log p(u) and its gradient.  Whatever the target needs
to evaluate faster next time (for a Gaussian-process classifier, the last latent mode) travels in
`carry`: the sampler hands it from one evaluation to the next and never looks inside.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hmcgp.runtime.typing import Array

NO_FAILURE = 0
NOT_POSITIVE_DEFINITE = 1
NOT_CONVERGED = 2


class Evaluation(NamedTuple):
    """Log density, its gradient, and how the solver ended."""

    logdensity: float  # finite or -inf, never NaN
    grad: Array  # (n_dim,), zero where the log density is -inf
    carry: object = None  # opaque warm start for the next evaluation
    solver_iterations: int = 0
    solver_residual: float = 0.0
    failure: int = NO_FAILURE  # or NOT_POSITIVE_DEFINITE, NOT_CONVERGED


class Target(Protocol):
    """A differentiable log density on R^n_dim.

    It may have a `work_space`, of type `WorkSpace`: a target that does not fit into memory is refused at the start.
    """

    @property
    def n_dim(self) -> int:
        """Number of unconstrained coordinates."""
        ...

    @property
    def names(self) -> list[str]:
        """One readable name per natural parameter."""
        ...

    def evaluate(self, u: Array, carry: object = None) -> Evaluation:
        """Log density and gradient at u; numerical trouble gives -inf, never an exception."""
        ...

    def constrain(self, u: Array) -> Array:
        """Natural parameters at u, of shape (n_dim,)."""
        ...

    def initial(self, rng: np.random.Generator) -> Array:
        """An over-dispersed starting point, of shape (n_dim,)."""
        ...


@runtime_checkable
class IdentifiedTarget(Target, Protocol):
    """A target that tells its data from other data which may have the same density."""

    def identity(self) -> dict[str, Any]:
        """Digests and names of the data (`hmcgp.runtime.fingerprint`), JSON-compatible."""
        ...


class Expectation(NamedTuple):
    """Result of an E-step: the evaluation at u, and the surrogate that the M-step maximises."""

    evaluation: Evaluation
    surrogate: Target | None  # its log density touches that of the target at u, in value and gradient; None: failed


@runtime_checkable
class ExpectationTarget(Target, Protocol):
    """A target that offers the E-step of an EM algorithm."""

    def expectation(self, u: Array, carry: object = None) -> Expectation:
        """Evaluate as `evaluate` does, and build the surrogate there."""
        ...
