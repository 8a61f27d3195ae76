"""The contract between models and samplers: a log density with its gradient.

A `LogDensity` maps an unconstrained position u to log p(u) and its gradient.  Values that make its next evaluation
faster (for a Gaussian-process classifier, the last latent mode) travel in `carry`: samplers hand it from one
evaluation to the next and never look inside.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hmcgp.runtime.typing import Array

NO_FAILURE = 0
NOT_POSITIVE_DEFINITE = 1
NOT_CONVERGED = 2


class Evaluation(NamedTuple):
    """Log density and gradient at a position, with statistics of the solver that computed them."""

    logdensity: float  # finite or -inf, never NaN
    grad: Array  # (n_dim,), zero where the log density is -inf; undefined where only the value was asked for
    carry: object = None  # opaque warm start for the next evaluation
    solver_iterations: int = 0
    solver_residual: float = 0.0
    failure: int = NO_FAILURE  # or NOT_POSITIVE_DEFINITE, NOT_CONVERGED


def failed_evaluation(u: Array, carry: object, failure: int) -> Evaluation:
    """Evaluation at a position where the solver failed: -inf with a zero gradient, which samplers reject and count."""
    return Evaluation(-np.inf, np.zeros_like(u), carry, 0, np.inf, failure)


class LogDensity(Protocol):
    """A differentiable log density on R^n_dim.

    It may have a `work_space` (`hmcgp.runtime.memory.WorkSpace`): runs that need more memory than is free are then
    refused before they start.
    """

    @property
    def n_dim(self) -> int:
        """Number of unconstrained coordinates."""

    @property
    def names(self) -> list[str]:
        """One readable name per natural parameter."""

    def evaluate(self, u: Array, carry: object = None, gradient: bool = True) -> Evaluation:
        """Log density and gradient at u; numerical failures give -inf, never an exception.

        With `gradient=False` only the value is used, and what the gradient costs may be saved.
        """

    def constrain(self, u: Array) -> Array:
        """Natural parameters at u, of shape (n_dim,)."""

    def initial(self, rng: np.random.Generator) -> Array:
        """An over-dispersed starting point, of shape (n_dim,)."""


@runtime_checkable
class IdentifiedDensity(LogDensity, Protocol):
    """A log density that identifies its data, so that a checkpoint of other data is refused."""

    def identity(self) -> dict[str, Any]:
        """Digests and names of the data (`hmcgp.runtime.fingerprint`), JSON-compatible."""


class Expectation(NamedTuple):
    """Result of an E-step: the evaluation at u, and the function that the M-step maximises."""

    evaluation: Evaluation
    surrogate: LogDensity | None  # equal to the log density at u in value and gradient; None: the E-step failed


@runtime_checkable
class ExpectationDensity(LogDensity, Protocol):
    """A log density with the E-step of an EM algorithm."""

    def expectation(self, u: Array, carry: object = None) -> Expectation:
        """Evaluate at u as `evaluate` does, and build the surrogate there."""
