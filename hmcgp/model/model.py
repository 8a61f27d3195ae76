"""Posterior log density of unconstrained hyperparameters, from data, kernel, likelihood and evidence.

    u ── transforms ──► θ, φ ── kernel ──► K ── evidence ──► log Z,  G = ∂ log Z/∂K,  ∂ log Z/∂φ

    log p(u | y) = log Z(θ(u), φ(u)) + log p(θ, φ) + log|d(θ, φ)/du| + const.
    ∂/∂u         = ([pullback(G), ∂ log Z/∂φ] + ∂ log p/∂(θ, φ)) d(θ, φ)/du + ∂ log|d(θ, φ)/du|/∂u

with θ the parameters of the kernel and φ those of the likelihood, if it has any.  A covariance that cannot be
factorised, or a solver that does not converge, gives -inf with a zero gradient; no other module catches these errors.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import Evidence, EvidenceProvider, UpperBound
from hmcgp.evidence.ep.em_surrogate import ExpectedLogDensity
from hmcgp.kernels import Kernel, Parameter, contract
from hmcgp.likelihoods import LabelNoise, Likelihood
from hmcgp.model.arguments import check_custom_kernel, check_data, check_input_names, check_kernel, weight_rows
from hmcgp.model.compatibility import check_expectation, resolve
from hmcgp.model.covariance import check_inducing, check_structure, prior_covariance, prior_with_pullback
from hmcgp.model.hyperparameters import Hyperparameters
from hmcgp.model.memory import work_space
from hmcgp.model.warm_start import FEW, MOST, carry_on, start_at
from hmcgp.numerics.density import NOT_CONVERGED, NOT_POSITIVE_DEFINITE, Evaluation, Expectation, failed_evaluation
from hmcgp.priors.joint import Theta
from hmcgp.runtime.fingerprint import table_identity
from hmcgp.runtime.interrupts import defer_interrupts, deferred_interrupts
from hmcgp.runtime.memory import WorkSpace, keep_work_space
from hmcgp.runtime.typing import Array

__all__ = ["Model", "Theta"]

_U_LIMIT = 700.0  # exp(±u) leaves the range of float64 beyond
_FAILURES = {NotPositiveDefinite: NOT_POSITIVE_DEFINITE, NotConverged: NOT_CONVERGED}


class Model:
    """Posterior density of the hyperparameters of a Gaussian-process model.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Inputs; a DataFrame's column names name the parameters.
    y : array-like of shape (n,)
        Labels -1 and +1; for several classes, their codes 0, 1, 2, …; for a Gaussian likelihood, numbers, of which the
        default priors expect mean 0 and variance 1.  Numbers may have k columns, of shape (n, k): independent functions
        with the same hyperparameters.
    kernel : Kernel, or list of Kernel, optional
        Default: `SquaredExponential(ard=True)` with its default priors.  For several classes, one kernel is shared by
        the functions of all, with equal hyperparameters; a list has one for each.
    likelihood : str or Likelihood, default="logistic"
    evidence : str or EvidenceProvider, optional
        Default: the first that fits the likelihood of "exact" (numbers), "laplace" (logistic, probit, softmax) and
        "ep" (label noise, multinomial probit).
        "upper" gives brackets and predictions, but no density to sample or maximise: `evaluate` refuses.
    input_names : sequence of str, optional
        Names of the inputs where X is not a DataFrame; x0, x1, … by default.
    weights : array-like of shape (n,), optional
        Positive numbers that multiply the log likelihoods of the rows: a row of weight 2 is that row twice.  They are
        not normalised.
    inducing : array-like of shape (m, d), optional
        Inducing inputs, through which the rows see each other (`evidence.LowRank`): O(nm²) operations and O(nm) memory.
    """

    _identity: dict[str, Any] | None = None

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        kernel: Kernel | Sequence[Kernel] | None = None,
        likelihood: str | Likelihood = "logistic",
        evidence: str | EvidenceProvider | None = None,
        input_names: Sequence[str] | None = None,
        weights: Any = None,
        inducing: Any = None,
    ) -> None:
        chosen, self.evidence = resolve(likelihood, evidence)
        weighted = weight_rows(chosen, weights)
        self.X, self.y = check_data(X, y, weighted)
        self.likelihood = weighted.for_rows(self.X)
        self.input_names = check_input_names(input_names, X, self.X.shape[1])
        checked = check_kernel(kernel, self.likelihood, self.y)
        self.kernel = checked.with_positions(self.input_names)
        self.inducing = check_inducing(inducing, self.X, self.likelihood, self.evidence)
        self._hyper = Hyperparameters(checked, self.likelihood, self.input_names)
        self._prior = self._hyper.prior
        self._foreign = contract.is_foreign(self.kernel)  # has a class that this package has not tested
        if self._foreign:
            check_custom_kernel(self.kernel, self._hyper, self.X)
        keep_work_space(self.work_space)

    @property
    def parameters(self) -> list[Parameter]:
        """Free parameters of the kernel, then of the likelihood, with their priors."""
        return self._hyper.free

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; arrays that come back read-only (a memory map) are copied, or all would be compiled again."""
        self.__dict__.update(state)
        self.X, self.y = np.require(self.X, requirements="W"), np.require(self.y, requirements="W")
        keep_work_space(self.work_space)  # of this process

    def with_evidence(self, evidence: str | EvidenceProvider) -> Self:
        """Model with the latent function integrated out in another way."""
        other = copy.copy(self)
        _, other.evidence = resolve(self.likelihood, evidence)
        check_structure(self.inducing, self.likelihood, other.evidence)
        return other

    def with_rows(self, X: Array, y: Array, likelihood: Likelihood | None = None) -> Model:
        """Model with more rows.

        Parameters
        ----------
        X : ndarray of shape (m, d)
            New inputs, scaled as the model's.
        y : ndarray of shape (m,)
        likelihood : Likelihood, optional
            One of the same parameters, that knows about all rows; default: the model's own.
        """
        other = copy.copy(self)
        other.X, other.y = np.vstack([self.X, X]), np.concatenate([self.y, y])
        other.likelihood = (likelihood or self.likelihood).for_rows(other.X)
        other._identity = None
        return other

    def with_identity(self, identity: Mapping[str, Any]) -> Self:
        """Model that reports a given `identity`: an estimator's is of the table before it was scaled and encoded."""
        other = copy.copy(self)
        other._identity = dict(identity)
        return other

    def identity(self) -> dict[str, Any]:
        """Digests of inputs, targets and weights as given, and the names of the inputs, for checkpoints."""
        if self._identity is not None:
            return self._identity
        known = {"weights": self.likelihood.weights, "noise variances": getattr(self.likelihood, "known", None)}
        low_rank = {} if self.inducing is None else {"inducing inputs": self.inducing}
        return table_identity({"X": self.X, "y": self.y, **known, **low_rank}, {"list of columns": self.input_names})

    @property
    def names(self) -> list[str]:
        """One name per free hyperparameter, in the order of every vector theta and u."""
        return list(self._prior.names)

    @property
    def n_dim(self) -> int:
        """Number of free hyperparameters."""
        return self._prior.n_dim

    @property
    def work_space(self) -> WorkSpace:
        """Memory that an evaluation with its gradient takes, at least: n x n arrays."""
        return work_space(self.X, self.inducing, self.likelihood.count(self.y), self.kernel, self.evidence)

    @property
    def support(self) -> Array:
        """Inputs whose covariances with a new one predict there: the inducing inputs, or those of all rows."""
        return self.X if self.inducing is None else self.inducing

    def __repr__(self) -> str:
        n, d = self.X.shape
        inducing = "" if self.inducing is None else f"inducing={len(self.inducing)}, "
        return (
            f"Model(n={n}, inputs={d}, {inducing}likelihood={self.likelihood}, evidence={self.evidence}, "
            f"parameters={', '.join(self.names)})"
        )

    # -- coordinates -------------------------------------------------------------------------------------------------

    def constrain(self, u: Array) -> Array:
        """Natural parameters at u, of shape (n_dim,)."""
        return self._prior.constrain(u)

    def unconstrain(self, theta: Theta) -> Array:
        """Unconstrained coordinates of natural parameters.

        Parameters
        ----------
        theta : ndarray of shape (n_dim,) or dict
            In the order of `names`, or by name (`length_scale` may be an array, or one number for all inputs).
        """
        return self._prior.unconstrain(self.theta_vector(theta))

    def theta_vector(self, theta: Theta) -> Array:
        """Natural parameters as a vector in the order of `names`, checked against the supports of their priors."""
        return self._prior.theta_vector(theta)

    def initial(self, rng: np.random.Generator) -> Array:
        """Draw from the prior, in unconstrained coordinates: an over-dispersed start."""
        return self._prior.unconstrain(self._prior.sample(rng))

    # -- densities ---------------------------------------------------------------------------------------------------

    def kernel_at(self, theta: Array) -> Kernel:
        """Kernel with values for all its parameters.

        Parameters
        ----------
        theta : ndarray of shape (n_dim,)
            Free parameters, in the order of `names`.
        """
        return self._hyper.kernel_at(self.kernel, theta)

    def likelihood_at(self, theta: Array) -> Likelihood:
        """Likelihood with values for all its parameters (see `kernel_at`)."""
        return self._hyper.likelihood_at(self.likelihood, theta)

    @defer_interrupts
    def log_evidence(self, theta: Theta, start: Array | None = None) -> tuple[float, Array]:
        """Log evidence and its gradient with respect to theta; raises where `evaluate` would give -inf.

        Parameters
        ----------
        theta : ndarray of shape (n_dim,) or dict
        start : ndarray, optional
            `posterior.start` at nearby hyperparameters.

        Returns
        -------
        log_z : float
        grad : ndarray of shape (n_dim,)
        """
        evidence, grad = self._log_evidence(self.theta_vector(theta), start)
        return evidence.log_z, grad

    def _log_evidence(self, theta: Array, start: Array | None) -> tuple[Evidence, Array]:
        kernel = self.kernel_at(theta)
        K, pullback = prior_with_pullback(kernel, self.X, self.inducing, self._foreign)
        evidence = self.evidence(K, self.y, self.likelihood_at(theta), start)
        assert evidence.dK is not None
        dkernel = contract.derivatives(kernel, pullback(evidence.dK), self._hyper.n_kernel)
        return evidence, self._hyper.gradient(dkernel, evidence.dlik)

    def posterior(self, theta: Theta, start: Array | None = None) -> tuple[Kernel, Evidence]:
        """Kernel with values and latent posterior at theta, ready to predict."""
        with deferred_interrupts():
            theta = self.theta_vector(theta)
            kernel = self.kernel_at(theta)
            return kernel, self._evidence_at(kernel, theta, start)

    def _evidence_at(self, kernel: Kernel, theta: Array, start: Array | None) -> Evidence:
        """Evidence without its gradient, of the kernel at theta."""
        K = prior_covariance(kernel, self.X, self.inducing, self._foreign)
        return self.evidence(K, self.y, self.likelihood_at(theta), start, gradient=False)

    def log_prior(self, u: Array) -> tuple[float, Array]:
        """Log prior density of u (Jacobian included) and its gradient."""
        return self._prior.logpdf_unconstrained(u)

    def evaluate(self, u: Array, carry: object = None, gradient: bool = True) -> Evaluation:
        """Log posterior density of u, its gradient, and how the solver ended.

        Parameters
        ----------
        u : ndarray of shape (n_dim,)
        carry : object, optional
            `Evaluation.carry` of a nearby evaluation: solutions there and before, from which the solver starts.
        gradient : bool, default=True
            False computes the value alone, in three quarters of the time with Laplace; the gradient is NaN then.

        Returns
        -------
        Evaluation
            With -inf, a zero gradient and a non-zero `failure` where the numbers gave out.

        Raises
        ------
        InvalidInput
            With the evidence "upper": an upper bound never falls as the prior variance grows.
        """
        if isinstance(self.evidence, UpperBound):
            raise InvalidInput(
                "the upper bound on the evidence never falls as the prior variance grows, so it cannot choose "
                "hyperparameters: sample or maximise with evidence='lower' (or 'laplace'), and bracket the evidence of "
                "the draws with GPClassifier.evidence_bounds() or hmcgp.posterior.evidence_bounds."
            )
        with deferred_interrupts(), np.errstate(all="ignore"):
            try:
                theta, start = self._theta_at(u), start_at(u, carry)
                if gradient:
                    evidence, dtheta = self._log_evidence(theta, start)
                else:
                    evidence, dtheta = self._evidence_at(self.kernel_at(theta), theta, start), None
            except (NotPositiveDefinite, NotConverged) as error:
                return failed_evaluation(u, carry, _FAILURES[type(error)])
            return self._evaluation(u, theta, carry, evidence, dtheta)

    def _theta_at(self, u: Array) -> Array:
        # the length first: reductions of small arrays cost microseconds.  NaN fails both
        if not (math.hypot(*u.tolist()) <= _U_LIMIT or np.abs(u).max(initial=0.0) <= _U_LIMIT):
            raise NotPositiveDefinite("the hyperparameters leave the range of float64.")
        return self._prior.constrain(u)

    def _evaluation(
        self, u: Array, theta: Array, carry: object, evidence: Evidence, dtheta: Array | None
    ) -> Evaluation:
        """Evaluation at u from the evidence there and its derivatives, if they were asked for."""
        log_prior, grad = self._prior.logpdf_unconstrained(u)
        value = evidence.log_z + log_prior
        if dtheta is None:
            grad = np.full_like(u, np.nan)
        else:
            self._prior.add_pulled_back(grad, dtheta, u, theta)
        if not (math.isfinite(value) and (dtheta is None or all(map(math.isfinite, grad.tolist())))):
            return failed_evaluation(u, carry, NOT_POSITIVE_DEFINITE)
        solution = evidence.posterior.start
        most = FEW if isinstance(self.likelihood, LabelNoise) else MOST
        return Evaluation(value, grad, carry_on(carry, u, solution, most), evidence.n_iter, evidence.residual)

    @defer_interrupts
    def expectation(self, u: Array, carry: object = None) -> Expectation:
        """E-step of EM-EP: the evaluation at u, and this model with q(f) held fixed (`evidence.ep.em_surrogate`).

        Raises
        ------
        InvalidInput
            Unless the evidence is "ep" or "tap".
        """
        check_expectation(self.evidence, self.likelihood, dense=self.inducing is None)
        with np.errstate(all="ignore"):
            try:
                theta = self._theta_at(u)
                evidence, dtheta = self._log_evidence(theta, start_at(u, carry))
                evaluation = self._evaluation(u, theta, carry, evidence, dtheta)
                if evaluation.failure:
                    return Expectation(evaluation, None)
                surrogate = copy.copy(self)
                K, likelihood = contract.covariance(self.kernel_at(theta), self.X), self.likelihood_at(theta)
                surrogate.evidence = ExpectedLogDensity.given(K, self.y, likelihood, evidence)
            except (NotPositiveDefinite, NotConverged) as error:
                return Expectation(failed_evaluation(u, carry, _FAILURES[type(error)]), None)
        return Expectation(evaluation, surrogate)

    def logdensity_and_grad(self, u: Array) -> tuple[float, Array]:
        """Log posterior density of u and its gradient: finite, or -inf with a zero gradient."""
        evaluation = self.evaluate(self._prior.checked("u", u))
        return evaluation.logdensity, evaluation.grad
