"""Predictions at new inputs: latent moments for each draw of the hyperparameters, and averages over the draws.

    p(y* = 1 | y) = (1/S) Σ_s ∫ p(y* = 1 | f*) N(f*; μ_s, σ²_s) df*,     μ_s = k*'α_s,  σ²_s = k** - k*'R_s k*

With several classes f* has a component for each, μ_s as many, and σ²_s is their covariance.

One factorisation serves all new inputs of a draw.  New inputs come in blocks, so that beside two n x n matrices a
worker holds at most BLOCK_BYTES of cross-covariances.  Draws come in groups of fixed size, within which each is solved
warm from the one before: the result does not depend on the number of workers.  Averages need memory for the new inputs
once per group, values per draw twice what they return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmcgp._interrupts import defer_interrupts
from hmcgp._parallel import resolve_n_jobs, run_tasks
from hmcgp._typing import Array
from hmcgp.errors import InvalidInput, NotConverged
from hmcgp.evidence import Evidence, Posterior
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import NoisyNumbers
from hmcgp.model import Model

_GROUP = 25  # draws that share a warm start
_JOINT_ROWS = 64  # whose covariances are computed together, for the few that are wanted
_STEPS = 20  # on the way to a draw that cannot be solved at once
BLOCK_BYTES = 32 * 2**20


def thin(draws: Array, n_max: int | None) -> Array:
    """At most n_max draws, evenly spaced.

    Parameters
    ----------
    draws : ndarray of shape (S, p)
    n_max : int or None
        None keeps all.
    """
    if n_max is None or len(draws) <= n_max:
        return draws
    return draws[np.linspace(0, len(draws) - 1, n_max).round().astype(int)]


def latent_moments(model: Model, draws: Array, X: Array, *, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Latent mean and variance at each new input for each draw.

    Parameters
    ----------
    model : Model
    draws : ndarray of shape (S, p)
        Natural hyperparameters.
    X : ndarray of shape (m, d)
        New inputs, scaled as the model's.
    n_jobs : int, optional
        Workers.

    Returns
    -------
    mean, variance : ndarrays of shape (S, m), or (S, m, C) for C classes or columns of targets
    """
    mean, variance = np.concatenate(per_group(_moments, model, draws, X, n_jobs=n_jobs), axis=1)
    return mean, variance


def mixture_moments(model: Model, draws: Array, X: Array, *, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Mean and variance of the latent function averaged over the draws, each of shape (m,), or (m, C) as above.

    The variance is that of the mixture: the mean of the variances plus the variance of the means.
    """
    first, second, within = np.sum(per_group(_sums_of_moments, model, draws, X, n_jobs=n_jobs), axis=0) / len(draws)
    return first, np.maximum(second - first**2, 0.0) + within


def observed_moments(model: Model, draws: Array, X: Array, *, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Mean and variance of a new observation, noise included: as of `latent_moments`."""
    mean, variance = latent_moments(model, draws, X, n_jobs=n_jobs)
    for s, theta in enumerate(draws):
        rows = variance[s].T  # a view: noise belongs to a row, whatever its columns
        rows += _noisy(model, theta).noise_at(X)
    return mean, variance


def observed_jointly(model: Model, draws: Array, X: Array) -> Iterator[tuple[Array, Array]]:
    """Yield mean, of shape (m,) or (m, k), and covariance (m, m) of new observations, noise included, for each draw."""
    for theta in draws:
        yield _jointly(model, theta, *model.posterior(theta), X)


def observed_in_groups(model: Model, draws: Array, X: Array, size: int) -> Iterator[tuple[Array, Array]]:
    """Yield, for each draw, mean (g, size) and covariance (g, size, size) of new observations in g groups of rows.

    As `observed_jointly`, without the covariances between groups, each of which is `size` consecutive rows of X.
    """
    step = max(_JOINT_ROWS // size, 1) * size
    for theta in draws:
        solved = model.posterior(theta)
        means, covariances = [], []
        for start in range(0, len(X), step):
            mean, covariance = _jointly(model, theta, *solved, X[start : start + step])
            g = len(mean) // size
            means.append(mean.reshape(g, size))
            covariances.append(np.einsum("iaib->iab", covariance.reshape(g, size, g, size)))
        yield np.concatenate(means), np.concatenate(covariances)


@defer_interrupts
def _jointly(model: Model, theta: Array, kernel: Kernel, evidence: Evidence, X: Array) -> tuple[Array, Array]:
    mean, covariance = evidence.posterior.predict_jointly(kernel(model.X, X), kernel(X))  # type: ignore[attr-defined]
    return mean, covariance + np.diag(_noisy(model, theta).noise_at(X))


def _noisy(model: Model, theta: Array) -> NoisyNumbers:
    likelihood = model.bound_likelihood(theta)
    if not isinstance(likelihood, NoisyNumbers):
        raise InvalidInput(f"observations of {type(likelihood).__name__} are labels: ask for their probabilities.")
    return likelihood


def probabilities(model: Model, draws: Array, X: Array, *, n_jobs: int | None = None) -> Array:
    """Probabilities of the classes averaged over the draws, of shape (m, C), with C = 2 for labels -1 and +1.

    Of two classes, both are right in relative terms, however small.  Of more, rows sum to 1 exactly.
    """
    total = np.sum(per_group(_sums_of_probabilities, model, draws, X, n_jobs=n_jobs), axis=0)
    return model.likelihood.normalised(total.T)


def probabilities_per_draw(model: Model, draws: Array, X: Array, *, n_jobs: int | None = None) -> Array:
    """Probabilities of the classes for each draw, of shape (S, m, C)."""
    return np.concatenate(per_group(_probabilities, model, draws, X, n_jobs=n_jobs))


def per_group(
    function: Callable[..., Array], model: Model, draws: Array, *arguments: NDArray[Any], n_jobs: int | None
) -> list[Array]:
    """Return function(model, group of draws, *arguments) for each group, within which draws may be solved warm."""
    groups = [draws[s : s + _GROUP] for s in range(0, len(draws), _GROUP)]
    calls = [(function, (model, group, *arguments)) for group in groups]
    return run_tasks(calls, resolve_n_jobs(n_jobs, len(groups)))


def each_posterior(model: Model, draws: Array) -> Iterator[tuple[int, Kernel, Evidence]]:
    """Yield s, the kernel and the latent posterior of every draw, each solved warm from the one before.

    A draw at which the solver gives out comes last, approached in steps from one that it solved: that is how the
    sampler, which evaluated it, came there.
    """
    solved: tuple[Array, Array] | None = None  # a draw, and where to start from there
    failed = []
    for s, theta in enumerate(draws):
        try:
            kernel, evidence = model.posterior(theta, None if solved is None else solved[1])
        except NotConverged:
            failed.append(s)
            continue
        solved = theta, evidence.posterior.start
        yield s, kernel, evidence
    for s in failed:
        yield s, *_approached(model, draws[s], solved)


def _approached(model: Model, theta: Array, solved: tuple[Array, Array] | None) -> tuple[Kernel, Evidence]:
    if solved is None:
        return model.posterior(theta)  # no draw was solved: say why
    u, start = model.unconstrain(solved[0]), solved[1]
    step = (model.unconstrain(theta) - u) / _STEPS
    for i in range(1, _STEPS):
        start = model.posterior(model.constrain(u + i * step), start)[1].posterior.start
    return model.posterior(theta, start)


def _moments(model: Model, draws: Array, X: Array) -> Array:
    out = np.empty((2, len(draws), len(X), *_latents(model)))
    for s, columns, mean, variance in _each_draw(model, draws, X):
        out[:, s, columns] = mean, _variances(variance, mean)
    return out


def _sums_of_moments(model: Model, draws: Array, X: Array) -> Array:
    out = np.zeros((3, len(X), *_latents(model)))
    for _, columns, mean, variance in _each_draw(model, draws, X):
        out[:, columns] += mean, mean**2, _variances(variance, mean)
    return out


def _sums_of_probabilities(model: Model, draws: Array, X: Array) -> Array:
    out = np.zeros((model.likelihood.count(model.y), len(X)))
    for s, columns, mean, variance in _each_draw(model, draws, X):
        out[:, columns] += model.bound_likelihood(draws[s]).class_probabilities(mean, variance)
    return out


def _probabilities(model: Model, draws: Array, X: Array) -> Array:
    out = np.empty((len(draws), len(X), model.likelihood.count(model.y)))
    for s, columns, mean, variance in _each_draw(model, draws, X):
        out[s, columns] = model.bound_likelihood(draws[s]).class_probabilities(mean, variance).T
    return out


def _latents(model: Model) -> tuple[int, ...]:
    """Shape of what is latent at one input: a number, or one for each class or column of targets."""
    return (model.likelihood.count(model.y),) if model.likelihood.targets == "classes" else model.y.shape[1:]


def _variances(variance: Array, mean: Array) -> Array:
    """Variances of the latent values, in the shape of the mean; from covariances between classes, of (m, C, C)."""
    if variance.ndim == 3:
        return np.diagonal(variance, axis1=1, axis2=2)
    return variance if variance.shape == mean.shape else np.broadcast_to(variance[:, None], mean.shape)


def _each_draw(model: Model, draws: Array, X: Array) -> Iterator[tuple[int, slice, Array, Array]]:
    """Yield s, columns, mean, variance for every draw and every block of new inputs."""
    for s, kernel, evidence in each_posterior(model, draws):
        for columns in _blocks(int(np.prod(_latents(model))) * len(model.X), len(X)):
            yield s, columns, *_predict(kernel, evidence.posterior, model.X, X[columns])


def _blocks(n: int, m: int) -> Iterator[slice]:
    size = max(BLOCK_BYTES // (2 * 8 * n), 1)  # the cross-covariance and its solve
    return (slice(start, min(start + size, m)) for start in range(0, m, size))


def _predict(kernel: Kernel, posterior: Posterior, X: Array, X_new: Array) -> tuple[Array, Array]:
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = posterior.predict(kernel(X, X_new), kernel.diag(X_new))
    if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
        m = len(X_new)
        finite = np.isfinite(mean).reshape(m, -1).all(axis=1) & np.isfinite(variance).reshape(m, -1).all(axis=1)
        row = int(np.argmin(finite))
        raise InvalidInput(
            f"the covariance overflows at a new input whose standardised values are {X_new[row].tolist()}: "
            "it lies too far from the training inputs. Check the units of that row."
        )
    return mean, variance
