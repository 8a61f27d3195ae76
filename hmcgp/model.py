"""Data, kernel, likelihood and evidence become one log density of unconstrained hyperparameters.

    u ── transforms ──► θ ── kernel ──► K ── evidence ──► log Z,  G = ∂ log Z/∂K

    log p(u | y) = log Z(θ(u)) + log p(θ(u)) + log|dθ/du| + const.
    ∂/∂u         = (pullback(G) + ∂ log p/∂θ) dθ/du + ∂ log|dθ/du|/∂u

This is the only place where numerical trouble is caught: a covariance that cannot be factorised, or a solver that does
not converge, gives -inf with a zero gradient, and is counted by whoever asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import check_array

from hmcgp._typing import Array
from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import Evidence, EvidenceProvider, Laplace
from hmcgp.kernels import Kernel, Parameter, SquaredExponential
from hmcgp.likelihoods import Likelihood, Logistic, Probit
from hmcgp.priors import Prior, default_prior
from hmcgp.target import NOT_CONVERGED, NOT_POSITIVE_DEFINITE, Evaluation
from hmcgp.transforms import Transform

Theta: TypeAlias = Array | Mapping[str, float | Array]

LIKELIHOODS: dict[str, type[Likelihood]] = {"logistic": Logistic, "probit": Probit}
PROVIDERS: dict[str, type[Any]] = {"laplace": Laplace}

_U_LIMIT = 700.0  # exp(±u) leaves the range of float64 beyond


def _named(argument: str, value: Any, known: Mapping[str, type[Any]]) -> Any:
    """An instance from a name or an instance."""
    if isinstance(value, str):
        if value not in known:
            raise InvalidInput(f"'{argument}' must be one of {sorted(known)} or an instance; got {value!r}.")
        return known[value]()
    return value


def resolve(likelihood: str | Likelihood, evidence: str | EvidenceProvider) -> tuple[Likelihood, EvidenceProvider]:
    """Instances of a likelihood and an evidence provider that fit each other.

    Raises
    ------
    InvalidInput
        For an unknown name, or a pair that does not fit, with the list of those that do.
    """
    lik: Any = _named("likelihood", likelihood, LIKELIHOODS)
    provider: Any = _named("evidence", evidence, PROVIDERS)
    if not isinstance(lik, Likelihood):
        raise InvalidInput(f"'likelihood' must be one of {sorted(LIKELIHOODS)} or a Likelihood; got {lik!r}.")
    if not hasattr(provider, "supports") or isinstance(provider, type):
        raise InvalidInput(f"'evidence' must be one of {sorted(PROVIDERS)} or an evidence provider; got {provider!r}.")
    if not isinstance(lik, provider.supports):
        pairs = "; ".join(f"{p.__name__}: {', '.join(c.__name__ for c in p.supports)}" for p in PROVIDERS.values())
        raise InvalidInput(f"{type(provider).__name__} cannot integrate {type(lik).__name__}. Pairs that fit: {pairs}.")
    return lik, provider


class Model:
    """Posterior density of the hyperparameters of a Gaussian-process classifier.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Inputs; a DataFrame's column names name the parameters.
    y : array-like of shape (n,)
        Labels -1 and +1.
    kernel : Kernel, optional
        Default: `SquaredExponential(ard=True)` with its default priors.
    likelihood : str or Likelihood, default="logistic"
    evidence : str or EvidenceProvider, default="laplace"
    input_names : sequence of str, optional
        Names of the inputs where X is not a DataFrame; x0, x1, … by default.

    Attributes
    ----------
    names : list of str
        One per free hyperparameter, in the order of every vector theta and u.
    parameters : list of Parameter
        The free parameters of the kernel, with their priors.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        kernel: Kernel | None = None,
        likelihood: str | Likelihood = "logistic",
        evidence: str | EvidenceProvider = "laplace",
        input_names: Sequence[str] | None = None,
    ) -> None:
        if input_names is None:
            input_names = [str(c) for c in X.columns] if hasattr(X, "columns") else None
        self.X, self.y = _check_data(X, y)
        self.input_names = _check_names(input_names, self.X.shape[1])
        self.likelihood, self.evidence = resolve(likelihood, evidence)
        kernel = SquaredExponential(ard=True) if kernel is None else kernel
        if not isinstance(kernel, Kernel):
            raise InvalidInput(f"'kernel' must be a hmcgp kernel; got {type(kernel).__name__}. See hmcgp.kernels.")
        self.kernel = kernel.located(self.input_names)
        self._all = [_with_prior(p) for p in kernel.parameters(self.input_names)]
        self.parameters: list[Parameter] = [p for p in self._all if p.is_free]
        if not self.parameters:
            raise InvalidInput(
                "every parameter of 'kernel' is a fixed number; give at least one a prior (or leave it out)."
            )
        stops = np.cumsum([p.size for p in self.parameters])
        self._slices = [slice(int(stop) - p.size, int(stop)) for p, stop in zip(self.parameters, stops, strict=True)]
        self._priors: list[Prior] = [p.value for p in self.parameters]
        sizes = [p.size for p in self.parameters]
        self._support = np.repeat([q.support for q in self._priors], sizes, axis=0).T  # (2, n_dim)
        self._transforms = _runs([prior.transform for prior in self._priors], self._slices)
        self._free = np.concatenate([np.full(p.size, p.is_free) for p in self._all])  # (p,) mask of pullback's output

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; arrays that come back read-only (a memory map) are copied, or all would be compiled again."""
        self.__dict__.update(state)
        self.X, self.y = np.require(self.X, requirements="W"), np.require(self.y, requirements="W")

    @property
    def names(self) -> list[str]:
        """One readable name per free hyperparameter."""
        return [name for p in self.parameters for name in p.flat_names]

    @property
    def n_dim(self) -> int:
        """Number of free hyperparameters."""
        return self._slices[-1].stop

    def __repr__(self) -> str:
        n, d = self.X.shape
        return (
            f"Model(n={n}, inputs={d}, likelihood={self.likelihood}, evidence={self.evidence}, "
            f"parameters={', '.join(self.names)})"
        )

    # -- coordinates -------------------------------------------------------------------------------------------------

    def constrain(self, u: Array) -> Array:
        """Natural parameters at u, of shape (n_dim,)."""
        if len(u) != self.n_dim:
            raise InvalidInput(
                f"'u' must have shape ({self.n_dim},), one value for each of {self.names}; got {len(u)}."
            )
        return np.concatenate([t.constrain(u[s]) for t, s in self._transforms])

    def unconstrain(self, theta: Theta) -> Array:
        """Unconstrained coordinates of natural parameters.

        Parameters
        ----------
        theta : ndarray of shape (n_dim,) or dict
            In the order of `names`, or by name (`length_scale` may be an array, or one number for all inputs).
        """
        return self._unconstrain(self.theta_vector(theta))

    def _unconstrain(self, vector: Array) -> Array:
        return np.concatenate([t.unconstrain(vector[s]) for t, s in self._transforms])

    def theta_vector(self, theta: Theta) -> Array:
        """Natural parameters as a vector in the order of `names`, checked against the supports of their priors."""
        vector = self._from_names(theta) if isinstance(theta, Mapping) else np.asarray(theta, dtype=float)
        if vector.shape != (self.n_dim,):
            raise InvalidInput(
                f"'theta' must have shape ({self.n_dim},), one value for each of {self.names}; got {vector.shape}."
            )
        inside = (vector > self._support[0]) & (vector < self._support[1])  # False for NaN
        if not inside.all():
            bad = [f"{name} = {value:g}" for name, value, ok in zip(self.names, vector, inside, strict=True) if not ok]
            raise InvalidInput(
                f"'theta' lies outside the support of its prior: {', '.join(bad)}. "
                "It holds natural parameters, not their logarithms."
            )
        return vector

    def _from_names(self, theta: Mapping[str, float | Array]) -> Array:
        known = {p.name for p in self.parameters} | set(self.names)
        unknown = [key for key in theta if key not in known]
        if unknown:
            raise InvalidInput(f"'theta' names {unknown}, which are not free parameters; those are {self.names}.")
        vector = np.full(self.n_dim, np.nan)
        for p, s in zip(self.parameters, self._slices, strict=True):
            if p.name in theta:
                value = np.asarray(theta[p.name], dtype=float)
                if value.shape not in {(), (p.size,)}:
                    raise InvalidInput(
                        f"'theta' gives {p.name} the shape {value.shape}; it takes one number or {p.size}."
                    )
                vector[s] = value
        for i, name in enumerate(self.names):
            if name in theta:
                vector[i] = float(np.asarray(theta[name]).item())
        missing = [name for name, value in zip(self.names, vector, strict=True) if np.isnan(value)]
        if missing:
            raise InvalidInput(f"'theta' gives no value for {missing}.")
        return vector

    def initial(self, rng: np.random.Generator) -> Array:
        """A draw from the prior, in unconstrained coordinates: an over-dispersed start."""
        draws = [np.asarray(q.sample(rng, p.size)) for q, p in zip(self._priors, self.parameters, strict=True)]
        return self._unconstrain(np.concatenate(draws))

    # -- densities ---------------------------------------------------------------------------------------------------

    def bound_kernel(self, theta: Array) -> Kernel:
        """The kernel with every parameter a number.

        Parameters
        ----------
        theta : ndarray of shape (n_dim,)
            Free parameters, in the order of `names`.
        """
        values, free = [], iter(self._slices)
        for p in self._all:
            if not p.is_free:
                values.append(p.value)
            else:
                part = theta[next(free)]
                values.append(part if p.labels is not None else float(part[0]))
        return self.kernel.bind(values)

    def log_evidence(self, theta: Theta, start: Array | None = None) -> tuple[float, Array]:
        """Log evidence and its gradient with respect to theta; raises where `evaluate` would give -inf.

        Parameters
        ----------
        theta : ndarray of shape (n_dim,) or dict
        start : ndarray of shape (n,), optional
            Latent mode at nearby hyperparameters.

        Returns
        -------
        log_z : float
        grad : ndarray of shape (n_dim,)
        """
        evidence, grad = self._log_evidence(self.theta_vector(theta), start)
        return evidence.log_z, grad

    def _log_evidence(self, theta: Array, start: Array | None) -> tuple[Evidence, Array]:
        K, pullback = self.bound_kernel(theta).vjp(self.X)
        evidence = self.evidence(K, self.y, self.likelihood, start)
        assert evidence.dK is not None
        return evidence, pullback(evidence.dK)[self._free]

    def posterior(self, theta: Theta, start: Array | None = None) -> tuple[Kernel, Evidence]:
        """The bound kernel and the latent posterior at theta, ready to predict."""
        kernel = self.bound_kernel(self.theta_vector(theta))
        return kernel, self.evidence(kernel(self.X), self.y, self.likelihood, start, gradient=False)

    def log_prior(self, u: Array) -> tuple[float, Array]:
        """Log prior density of u (Jacobian included) and its gradient."""
        total, grad = 0.0, np.empty_like(u)
        for prior, s in zip(self._priors, self._slices, strict=True):
            values, grad[s] = prior.logpdf_unconstrained(u[s])
            total += float(values.sum())
        return total, grad

    def evaluate(self, u: Array, carry: object = None) -> Evaluation:
        """Log posterior density of u and its gradient, with what the solver needed.

        Parameters
        ----------
        u : ndarray of shape (n_dim,)
        carry : object, optional
            `Evaluation.carry` of a nearby evaluation: its latent mode and the one before, from which the solver starts.

        Returns
        -------
        Evaluation
            With -inf, a zero gradient and a non-zero `failure` where the numbers gave out.
        """
        if not np.abs(u).max() <= _U_LIMIT:  # NaN fails too
            return self._failed(u, carry, NOT_POSITIVE_DEFINITE)
        with np.errstate(all="ignore"):
            try:
                evidence, dtheta = self._log_evidence(self.constrain(u), _extrapolated(carry))
            except NotPositiveDefinite:
                return self._failed(u, carry, NOT_POSITIVE_DEFINITE)
            except NotConverged:
                return self._failed(u, carry, NOT_CONVERGED)
            log_prior, grad = self.log_prior(u)
            for t, s in self._transforms:
                grad[s] += dtheta[s] * t.dconstrain(u[s])
        value = evidence.log_z + log_prior
        if not (math.isfinite(value) and np.isfinite(grad).all()):
            return self._failed(u, carry, NOT_POSITIVE_DEFINITE)
        start = evidence.posterior.start
        modes = (start, carry[0]) if isinstance(carry, tuple) else (start,)
        return Evaluation(value, grad, modes, evidence.n_iter, evidence.residual)

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
    def _failed(u: Array, carry: object, failure: int) -> Evaluation:
        return Evaluation(-np.inf, np.zeros_like(u), carry, 0, np.inf, failure)


def _runs(transforms: list[Transform], slices: list[slice]) -> list[tuple[Transform, slice]]:
    """Transforms with the coordinates they act on, neighbours of one kind taken together: one call for all, mostly."""
    runs: list[tuple[Transform, slice]] = []
    for t, s in zip(transforms, slices, strict=True):
        if runs and runs[-1][0] == t:
            runs[-1] = (t, slice(runs[-1][1].start, s.stop))
        else:
            runs.append((t, s))
    return runs


def _extrapolated(carry: object) -> Array | None:
    """Where the next solution should lie: the last two modes, continued in a straight line.

    Along a trajectory this is ten times closer than the last mode alone; where the direction has just changed, at worst
    twice as far.
    """
    if not isinstance(carry, tuple):
        return None
    return np.asarray(carry[0] if len(carry) == 1 else 2.0 * carry[0] - carry[1])


def _with_prior(p: Parameter) -> Parameter:
    """The parameter with its default prior where none was given, and its fixed values as an array."""
    if p.value is None:
        return p._replace(value=default_prior(p.role, p.n_inputs))
    if not p.is_free:
        return p._replace(value=np.asarray(p.value, dtype=float) if p.labels else float(p.value))
    if not isinstance(p.value, Prior):
        raise InvalidInput(
            f"'{p.name}' must be a number (a fact) or a prior (a question); got {p.value!r}. See hmcgp.priors."
        )
    if p.value.support[0] < 0.0:
        raise InvalidInput(
            f"'{p.name}' is positive, but its prior {p.value!r} is not: use LogNormal, Gamma, InverseGamma, HalfNormal "
            "or HalfCauchy."
        )
    return p


def _check_names(names: Sequence[str] | None, n_inputs: int) -> list[str]:
    if names is None:
        return [f"x{i}" for i in range(n_inputs)]
    if len(names) != n_inputs or len(set(names)) != n_inputs:
        raise InvalidInput(f"the inputs need {n_inputs} different names; got {list(names)}.")
    return list(names)


def _check_data(X: Any, y: Any) -> tuple[Array, Array]:
    # copies: the compiled code wants writable arrays, and what the caller does to his later is not our concern
    X = check_array(X, dtype=np.float64, order="C", copy=True, input_name="X")
    y = np.array(y, dtype=float, order="C")
    if y.shape != X.shape[:1]:
        raise InvalidInput(f"'y' must have one label per row of 'X'; got {y.shape} for {X.shape[0]} rows.")
    found = np.unique(y)
    if not np.array_equal(found, [-1.0, 1.0]):
        raise InvalidInput(
            f"'y' must hold the labels -1 and +1; got {found[:5].tolist()}. "
            "Encode classes with GPClassifier, or map 0/1 by 2*y - 1."
        )
    return X, y
