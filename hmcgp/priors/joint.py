"""Joint prior of all free hyperparameters, in natural and in unconstrained coordinates.

    theta   natural parameters, one per name, each inside the support of its prior
    u       unconstrained coordinates on the whole line, theta = T(u)

    log p(u) = Σ_k log p_k(T(u_k)) + log |dT/du_k|

One vector holds every free parameter of the kernel, then of the likelihood, in the order of `names`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import block_diag

from hmcgp.errors import InvalidInput
from hmcgp.numerics.constants import LOG_2PI
from hmcgp.parameters import Parameter
from hmcgp.parameters.declaration import POSITIVE, interval
from hmcgp.parameters.transforms import Divided, Log, Transform
from hmcgp.priors import Prior, default_prior
from hmcgp.runtime.typing import Array

Theta: TypeAlias = Array | Mapping[str, float | Array]


class HyperPrior:
    """Independent priors of free parameters, each of which has its prior for a value (see `with_prior`).

    There may be none: then every vector is empty, and the log density of the only one is 0.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = list(parameters)
        self.names = [name for p in self.parameters for name in p.flat_names]
        self.n_dim = len(self.names)
        stops = np.cumsum([p.size for p in self.parameters]).tolist()
        self.slices = [slice(stop - p.size, stop) for p, stop in zip(self.parameters, stops, strict=True)]
        self._priors: list[Prior] = [p.value for p in self.parameters]
        self._support = self._per_value([q.support for q in self._priors])
        self._transforms = _runs(self._priors, self.slices)
        self._exponential = all(getattr(t, "transform", t) == Log() for t, _ in self._transforms)  # or a multiple
        laws = [q.normal for q in self._priors]
        self._normal = None if None in laws else self._per_value(laws)  # mean, sd
        if self._normal is not None:
            self._log_norm = -float(np.sum(np.log(self._normal[1]))) - 0.5 * self.n_dim * LOG_2PI
        else:
            self._correlated = _joint_law([q.normal_law(p.size) for q, p in zip(self._priors, parameters, strict=True)])

    def _per_value(self, pairs: Sequence[Any]) -> Array:
        """Pairs of numbers, or of arrays, for each parameter as rows of one number per value, of shape (2, n_dim)."""
        parts = [np.broadcast_to(np.array(q).T, (p.size, 2)) for q, p in zip(pairs, self.parameters, strict=True)]
        return np.concatenate([np.empty((0, 2)), *parts]).T

    def constrain(self, u: Array) -> Array:
        """Natural parameters at u, of shape (n_dim,)."""
        if len(u) != self.n_dim:
            self.checked("u", u)
        if len(self._transforms) == 1:
            return self._transforms[0][0].constrain(u)
        return np.concatenate([u[:0], *(t.constrain(u[s]) for t, s in self._transforms)])

    def unconstrain(self, theta: Array) -> Array:
        """Unconstrained coordinates of natural parameters, of shape (n_dim,)."""
        return np.concatenate([theta[:0], *(t.unconstrain(theta[s]) for t, s in self._transforms)])

    def theta_vector(self, theta: Theta) -> Array:
        """Natural parameters as a vector in the order of `names`, checked against the supports of their priors."""
        vector = self.checked("theta", self._from_names(theta) if isinstance(theta, Mapping) else theta)
        inside = (vector > self._support[0]) & (vector < self._support[1])  # False for NaN
        if not inside.all():
            bad = [f"{name} = {value:g}" for name, value, ok in zip(self.names, vector, inside, strict=True) if not ok]
            raise InvalidInput(
                f"'theta' lies outside the support of its prior: {', '.join(bad)}. "
                "It holds natural parameters, not their logarithms."
            )
        return vector

    def checked(self, argument: str, vector: Any) -> Array:
        """Vector as floats, refused unless it has one value per name."""
        vector = np.asarray(vector, dtype=float)
        if vector.shape != (self.n_dim,):
            raise InvalidInput(
                f"'{argument}' must have shape ({self.n_dim},), one value for each of {self.names}; got {vector.shape}."
            )
        return np.asarray(vector)

    def _from_names(self, theta: Mapping[str, float | Array]) -> Array:
        known = {p.name for p in self.parameters} | set(self.names)
        unknown = [key for key in theta if key not in known]
        if unknown:
            raise InvalidInput(f"'theta' names {unknown}, which are not free parameters; those are {self.names}.")
        vector = np.full(self.n_dim, np.nan)
        for p, s in zip(self.parameters, self.slices, strict=True):
            if p.name in theta:
                vector[s] = _of_size(p, np.asarray(theta[p.name], dtype=float))
        for i, name in enumerate(self.names):  # of one component each, such as length_scale[FL]
            if name in theta:
                vector[i] = float(np.asarray(theta[name]).item())
        missing = np.array(self.names)[np.isnan(vector)].tolist()
        if missing:
            raise InvalidInput(f"'theta' gives no value for {missing}.")
        return vector

    def sample(self, rng: np.random.Generator) -> Array:
        """Draw natural parameters, of shape (n_dim,)."""
        draws = [np.asarray(q.sample(rng, p.size)) for q, p in zip(self._priors, self.parameters, strict=True)]
        return np.concatenate([np.empty(0), *draws])

    def logpdf_unconstrained(self, u: Array) -> tuple[float, Array]:
        """Log density of u (Jacobian included) and its gradient."""
        if self._normal is not None:  # the usual case, at a fifth of the price
            mean, sd = self._normal
            z = (u - mean) / sd
            return self._log_norm - 0.5 * float(z.dot(z)), -z / sd
        if self._correlated is not None:
            mean, precision, log_norm = self._correlated
            z = u - mean
            slope = -precision.dot(z)
            return log_norm + 0.5 * float(z.dot(slope)), slope
        total, grad = 0.0, np.empty_like(u)
        for prior, s in zip(self._priors, self.slices, strict=True):
            values, grad[s] = prior.logpdf_unconstrained(u[s])
            total += float(values.sum())
        return total, grad

    def add_pulled_back(self, grad: Array, dtheta: Array, u: Array, theta: Array) -> None:
        """Add dtheta dT/du, a gradient in natural parameters taken to u, to `grad` in place; theta is T(u)."""
        if self._exponential:  # dT/du = T, the usual case
            grad += dtheta * theta
            return
        for t, s in self._transforms:
            grad[s] += dtheta[s] * t.dconstrain(u[s])


def with_prior(p: Parameter, targets: str) -> Parameter:
    """Parameter with its default prior for the kind of targets where none was given, and fixed values as an array.

    InvalidInput if its value is neither number nor prior, or the prior reaches beyond the support of the parameter.
    """
    if p.value is None:
        return p._replace(value=default_prior(p.role, p.n_inputs, targets))
    if not p.is_free:
        return p._replace(value=np.asarray(p.value, dtype=float) if p.labels else float(p.value))
    if not isinstance(p.value, Prior):
        raise InvalidInput(
            f"'{p.name}' must be a number, which fixes it, or a prior, under which it is inferred; got {p.value!r}. "
            "See hmcgp.priors."
        )
    (lower, upper), (least, most) = p.support, map(float, (np.min(p.value.support[0]), np.max(p.value.support[1])))
    if not lower <= least < most <= upper:
        if p.support == POSITIVE:
            raise InvalidInput(
                f"'{p.name}' is positive, but its prior {p.value!r} is not: use LogNormal, Gamma, InverseGamma, "
                "HalfNormal or HalfCauchy."
            )
        raise InvalidInput(
            f"'{p.name}' must be {interval(p.support)}, but its prior {p.value!r} reaches from {least:g} to {most:g}: "
            f"use Beta(alpha, beta, upper={upper:g})."
        )
    return p


def _joint_law(laws: Sequence[tuple[Array, Array] | None]) -> tuple[Array, Array, float] | None:
    """Mean, precision matrix and log normalisation of all values of u; None unless all are normal."""
    normal = [law for law in laws if law is not None]
    if len(normal) < len(laws):
        return None
    mean, precision = np.concatenate([law[0] for law in normal]), block_diag(*(law[1] for law in normal))
    return mean, precision, 0.5 * float(np.linalg.slogdet(precision)[1]) - 0.5 * len(mean) * LOG_2PI


def _of_size(p: Parameter, value: Array) -> Array:
    if value.shape not in {(), (p.size,)}:
        raise InvalidInput(f"'theta' gives {p.name} the shape {value.shape}; it takes one number or {p.size}.")
    return value


def _runs(priors: list[Prior], slices: list[slice]) -> list[tuple[Transform, slice]]:
    """Transforms with the coordinates they act on, neighbours of one kind taken together: one call for all, mostly."""

    def kind(pair: tuple[Prior, slice]) -> Any:
        transform = pair[0].transform
        return (transform, pair[1].start if isinstance(transform, Divided) else None)  # by units of its own

    groups = [[*group] for _, group in groupby(zip(priors, slices, strict=True), key=kind)]
    return [(group[0][0].transform, slice(group[0][1].start, group[-1][1].stop)) for group in groups]
