"""Data, kernel, likelihood and evidence become one log density of unconstrained hyperparameters.

    u ── transforms ──► θ, φ ── kernel ──► K ── evidence ──► log Z,  G = ∂ log Z/∂K,  ∂ log Z/∂φ

    log p(u | y) = log Z(θ(u), φ(u)) + log p(θ, φ) + log|d(θ, φ)/du| + const.
    ∂/∂u         = ([pullback(G), ∂ log Z/∂φ] + ∂ log p/∂(θ, φ)) d(θ, φ)/du + ∂ log|d(θ, φ)/du|/∂u

with θ the parameters of the kernel and φ those of the likelihood, if it has any.

This is the only place where numerical trouble is caught: a covariance that cannot be factorised, or a solver that does
not converge, gives -inf with a zero gradient, and is counted by whoever asked.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils import check_array

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import EP, TAP, Evidence, EvidenceProvider, UpperBound
from hmcgp.evidence.ep.em_surrogate import ExpectedLogDensity
from hmcgp.kernels import Kernel, Parameter, SquaredExponential, contract
from hmcgp.kernels.per_class import PerClass
from hmcgp.likelihoods import Classes, Likelihood
from hmcgp.model.compatibility import resolve
from hmcgp.numerics.density import NOT_CONVERGED, NOT_POSITIVE_DEFINITE, Evaluation, Expectation
from hmcgp.priors.joint import HyperPrior, Theta, with_prior
from hmcgp.runtime.checks import refuse_class
from hmcgp.runtime.fingerprint import table_identity
from hmcgp.runtime.interrupts import defer_interrupts, deferred_interrupts
from hmcgp.runtime.memory import WorkSpace
from hmcgp.runtime.typing import Array

__all__ = ["Model", "Theta"]

_U_LIMIT = 700.0  # exp(±u) leaves the range of float64 beyond


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
        the functions of all, with equal hyperparameters; a list has one for each (what `GPClassifier` defaults to).
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

    Attributes
    ----------
    names : list of str
        One per free hyperparameter, in the order of every vector theta and u.
    parameters : list of Parameter
        The free parameters of the kernel, then of the likelihood, with their priors.
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
    ) -> None:
        if input_names is None:
            input_names = [str(c) for c in X.columns] if hasattr(X, "columns") else None
        self.likelihood, self.evidence = resolve(likelihood, evidence)
        if weights is not None:
            if self.likelihood.weights is not None:
                raise InvalidInput("'likelihood' has weights of its own: give 'weights' once.")
            self.likelihood = self.likelihood.weighted(weights)
        self.X, self.y = _check_data(X, y, self.likelihood)
        self.likelihood = self.likelihood.for_rows(self.X)
        self.input_names = _check_names(input_names, self.X.shape[1])
        kernel = self._check_kernel(SquaredExponential(ard=True) if kernel is None else kernel)
        self.kernel = kernel.with_positions(self.input_names)
        targets = self.likelihood.targets
        of_kernel = [with_prior(p, targets) for p in kernel.parameters(self.input_names)]
        taken = {p.name for p in of_kernel}
        of_likelihood = [
            with_prior(p._replace(name=f"likelihood.{p.name}") if p.name in taken else p, targets)
            for p in self.likelihood.parameters(self.input_names)
        ]
        everything = of_kernel + of_likelihood
        self.parameters: list[Parameter] = [p for p in everything if p.is_free]
        if not self.parameters:
            raise InvalidInput(
                "every parameter of 'kernel' and 'likelihood' is a fixed number; give at least one a prior (or leave "
                "it out)."
            )
        self._prior = HyperPrior(self.parameters)
        self._free = np.concatenate([np.full(p.size, p.is_free) for p in everything])  # (p,) mask of all derivatives
        places = iter(self._prior.slices)
        self._of_kernel = [(p, next(places) if p.is_free else None) for p in of_kernel]
        self._of_likelihood = [(p, next(places) if p.is_free else None) for p in of_likelihood]
        self._n_kernel = sum(p.size for p in of_kernel)
        self._foreign = contract.is_foreign(self.kernel)  # has a class that this package has not tested
        if self._foreign:
            rng = np.random.default_rng(0)
            contract.check_kernel(lambda: self.kernel_at(self._prior.sample(rng)), self.X)

    def _check_kernel(self, kernel: Any) -> Kernel:
        if isinstance(kernel, list | tuple):
            kernel = PerClass(tuple(kernel))
        refuse_class("kernel", kernel)
        if not isinstance(kernel, Kernel):
            origin = "" if isinstance(kernel, str) else f" of {type(kernel).__module__}"
            raise InvalidInput(
                f"'kernel' must be a kernel of hmcgp.kernels, such as SquaredExponential(); got {kernel!r}{origin}."
            )
        if isinstance(kernel, PerClass):
            if not isinstance(self.likelihood, Classes):
                raise InvalidInput(f"{type(self.likelihood).__name__} has one latent function: give one kernel.")
            if len(kernel.kernels) != self.likelihood.count(self.y):
                raise InvalidInput(
                    f"'kernel' lists {len(kernel.kernels)} kernels for {self.likelihood.count(self.y)} classes: give "
                    "one for each, or one that all share."
                )
        return kernel

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; arrays that come back read-only (a memory map) are copied, or all would be compiled again."""
        self.__dict__.update(state)
        self.X, self.y = np.require(self.X, requirements="W"), np.require(self.y, requirements="W")

    def with_evidence(self, evidence: str | EvidenceProvider) -> Self:
        """The same data, kernel, likelihood and priors, with the latent function integrated out in another way.

        Parameters
        ----------
        evidence : str or EvidenceProvider
        """
        other = copy.copy(self)
        _, other.evidence = resolve(self.likelihood, evidence)
        return other

    def with_rows(self, X: Array, y: Array, likelihood: Likelihood | None = None) -> Model:
        """The same model with more rows, scaled as its own.

        Parameters
        ----------
        X : ndarray of shape (m, d)
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
        """The same model, of data that are known by more than the numbers it was given.

        Parameters
        ----------
        identity : mapping of str to object
            What `identity` shall return: an estimator describes the table before it was scaled and encoded.
        """
        other = copy.copy(self)
        other._identity = dict(identity)
        return other

    def identity(self) -> dict[str, Any]:
        """Digests of inputs, targets and weights as given, and the names of the inputs, for checkpoints."""
        if self._identity is not None:
            return self._identity
        known = {"weights": self.likelihood.weights, "noise variances": getattr(self.likelihood, "known", None)}
        return table_identity({"X": self.X, "y": self.y, **known}, {"list of columns": self.input_names})

    @property
    def names(self) -> list[str]:
        """One readable name per free hyperparameter."""
        return list(self._prior.names)

    @property
    def n_dim(self) -> int:
        """Number of free hyperparameters."""
        return self._prior.n_dim

    @property
    def work_space(self) -> WorkSpace:
        """Memory that an evaluation with its gradient takes, at least: n x n arrays."""
        n, n_latents = len(self.X), self.likelihood.count(self.y)
        matrices: int = self.evidence.matrices(n_latents) if hasattr(self.evidence, "matrices") else 2
        if isinstance(self.kernel, PerClass):
            matrices += 2 * n_latents  # a covariance and a cotangent for each
        what = f"{matrices} matrices of {n:,} x {n:,} numbers"

        def instead(nbytes: int) -> str:
            rows = int((nbytes / (8 * matrices)) ** 0.5)
            return f"take a random sample of at most {rows:,} rows (sampler='map' needs no less memory)"

        return WorkSpace(8 * matrices * n * n, what, instead)

    def __repr__(self) -> str:
        n, d = self.X.shape
        return (
            f"Model(n={n}, inputs={d}, likelihood={self.likelihood}, evidence={self.evidence}, "
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
        """A draw from the prior, in unconstrained coordinates: an over-dispersed start."""
        return self._prior.unconstrain(self._prior.sample(rng))

    # -- densities ---------------------------------------------------------------------------------------------------

    def kernel_at(self, theta: Array) -> Kernel:
        """The kernel with every parameter a number.

        Parameters
        ----------
        theta : ndarray of shape (n_dim,)
            Free parameters, in the order of `names`.
        """
        return self.kernel.with_values(_values(self._of_kernel, theta))

    def likelihood_at(self, theta: Array) -> Likelihood:
        """The likelihood with every parameter a number (see `kernel_at`)."""
        return (
            self.likelihood.with_values(_values(self._of_likelihood, theta)) if self._of_likelihood else self.likelihood
        )

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
        K, pullback = contract.covariance_and_pullback(kernel, self.X)
        evidence = self.evidence(self._covariance(K), self.y, self.likelihood_at(theta), start)
        assert evidence.dK is not None
        grad = contract.derivatives(kernel, pullback(evidence.dK), self._n_kernel)
        if self._of_likelihood:
            grad = np.concatenate([grad, evidence.dlik])
        return evidence, grad[self._free]

    def posterior(self, theta: Theta, start: Array | None = None) -> tuple[Kernel, Evidence]:
        """The kernel with values and the latent posterior at theta, ready to predict."""
        with deferred_interrupts():
            theta = self.theta_vector(theta)
            kernel = self.kernel_at(theta)
            K = self._covariance(contract.checked_covariance(kernel, kernel(self.X), len(self.X)))
            return kernel, self.evidence(K, self.y, self.likelihood_at(theta), start, gradient=False)

    def _covariance(self, K: Array) -> Array:
        """Refuse a matrix that no provider should see; finite numbers come out of some of them all the same."""
        if self._foreign and contract.has_negative_variance(K):
            raise NotPositiveDefinite("the kernel gives a negative variance at these hyperparameters.")
        return K

    def log_prior(self, u: Array) -> tuple[float, Array]:
        """Log prior density of u (Jacobian included) and its gradient."""
        return self._prior.logpdf_unconstrained(u)

    @defer_interrupts
    def evaluate(self, u: Array, carry: object = None) -> Evaluation:
        """Log posterior density of u and its gradient, with what the solver needed.

        Parameters
        ----------
        u : ndarray of shape (n_dim,)
        carry : object, optional
            `Evaluation.carry` of a nearby evaluation: its solution and the one before, from which the solver starts.

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
        return self._evaluate(u, carry)[0]

    def _evaluate(self, u: Array, carry: object) -> tuple[Evaluation, Evidence | None]:
        if not np.abs(u).max() <= _U_LIMIT:  # NaN fails too
            return self._failed(u, carry, NOT_POSITIVE_DEFINITE)
        with np.errstate(all="ignore"):
            try:
                evidence, dtheta = self._log_evidence(self._prior.constrain(u), _extrapolated(carry))
            except NotPositiveDefinite:
                return self._failed(u, carry, NOT_POSITIVE_DEFINITE)
            except NotConverged:
                return self._failed(u, carry, NOT_CONVERGED)
            log_prior, grad = self._prior.logpdf_unconstrained(u)
            self._prior.add_pulled_back(grad, dtheta, u)
        value = evidence.log_z + log_prior
        if not (math.isfinite(value) and np.isfinite(grad).all()):
            return self._failed(u, carry, NOT_POSITIVE_DEFINITE)
        start = evidence.posterior.start
        modes = (start, carry[0]) if isinstance(carry, tuple) else (start,)
        return Evaluation(value, grad, modes, evidence.n_iter, evidence.residual), evidence

    @defer_interrupts
    def expectation(self, u: Array, carry: object = None) -> Expectation:
        """E-step of EM-EP: what `evaluate` returns, and this model with q(f) held fixed (`evidence.ep.em_surrogate`).

        Raises
        ------
        InvalidInput
            Unless the evidence is "ep" or "tap".
        """
        if not isinstance(self.evidence, EP | TAP):
            raise InvalidInput(
                f"EM-EP takes its expectations from 'ep' or 'tap', not from {type(self.evidence).__name__}: for labels "
                "use model.with_evidence('ep'), or method='lbfgs', which fits every evidence but 'upper'."
            )
        evaluation, evidence = self._evaluate(u, carry)
        if evidence is None:
            return Expectation(evaluation, None)
        surrogate, theta = copy.copy(self), self._prior.constrain(u)
        with np.errstate(all="ignore"):
            K, likelihood = contract.covariance(self.kernel_at(theta), self.X), self.likelihood_at(theta)
            try:
                surrogate.evidence = ExpectedLogDensity.given(K, self.y, likelihood, evidence)
            except NotPositiveDefinite:
                return Expectation(*self._failed(u, carry, NOT_POSITIVE_DEFINITE))
        return Expectation(evaluation, surrogate)

    def logdensity_and_grad(self, u: Array) -> tuple[float, Array]:
        """Log posterior density of u and its gradient: finite, or -inf with a zero gradient."""
        u = np.asarray(u, dtype=float)
        if u.shape != (self.n_dim,):
            raise InvalidInput(
                f"'u' must have shape ({self.n_dim},), one value for each of {self.names}; got {u.shape}."
            )
        evaluation = self.evaluate(u)
        return evaluation.logdensity, evaluation.grad

    @staticmethod
    def _failed(u: Array, carry: object, failure: int) -> tuple[Evaluation, None]:
        return Evaluation(-np.inf, np.zeros_like(u), carry, 0, np.inf, failure), None


def _values(parameters: list[tuple[Parameter, slice | None]], theta: Array) -> list[Array | float]:
    """Values for `with_values`: the fixed value of each parameter, or its part of theta."""
    values: list[Array | float] = []
    for p, place in parameters:
        if place is None:
            values.append(p.value)
        else:
            part = theta[place]
            values.append(part if p.labels is not None else float(part[0]))
    return values


def _extrapolated(carry: object) -> Array | None:
    """Where the next solution should lie: the last two, continued in a straight line.

    Along a trajectory this is ten times closer than the last one alone; where the direction has just changed, at worst
    twice as far.
    """
    if not isinstance(carry, tuple):
        return None
    return np.asarray(carry[0] if len(carry) == 1 else 2.0 * carry[0] - carry[1])


def _check_names(names: Sequence[str] | None, n_inputs: int) -> list[str]:
    if names is None:
        return [f"x{i}" for i in range(n_inputs)]
    if len(names) != n_inputs or len(set(names)) != n_inputs:
        raise InvalidInput(f"the inputs need {n_inputs} different names; got {list(names)}.")
    return list(names)


def _check_data(X: Any, y: Any, likelihood: Likelihood) -> tuple[Array, Array]:
    # copies: the compiled code wants writable arrays, and what the caller does to his later is not our concern
    if not _is_validated(X):
        X = check_array(X, dtype=np.float64, input_name="X")
    X = np.array(X, order="C")
    y = np.array(y, dtype=float, order="C")
    if y.shape != X.shape[:1] and not (likelihood.targets == "numbers" and y.ndim == 2 and len(y) == len(X)):
        raise InvalidInput(f"'y' must have one value per row of 'X'; got {y.shape} for {X.shape[0]} rows.")
    likelihood.check_targets(y)
    return X, y


def _is_validated(X: Any) -> bool:
    """Whether scikit-learn would leave an array of inputs as it is, as that of an estimator's table."""
    return type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.size > 0 and bool(np.isfinite(X).all())
