"""Predictions at new inputs: latent moments for each draw of the hyperparameters, and averages over the draws.

    p(y* = 1 | y) = (1/S) Σ_s ∫ p(y* = 1 | f*) N(f*; μ_s, σ²_s) df*,     μ_s = k*'α_s,  σ²_s = k** - k*'R_s k*

With several classes f* has a component for each, μ_s as many, and σ²_s is their covariance.

One factorisation serves all new inputs of a draw.  New inputs come in blocks, so that beside two n x n matrices a
worker holds at most about BLOCK_BYTES of cross-covariances and what follows from them.  Draws come in groups of fixed
size, within which each is solved warm from the one before: the result does not depend on the number of workers.

Memory does not grow with draws times inputs.  Averages (means, variances, probabilities, log densities) are updated
draw by draw: they hold a few numbers for each new input, for so many groups at a time as HELD_BYTES allow, and at least
for one group per worker.  Quantiles need all draws of a new input at once: inputs come in blocks whose values are held
in HELD_BYTES, and every draw is solved again for every block.  That is one block up to 16,000 inputs with 500 draws;
beyond, a factorisation of n³/3 operations is little beside the n² operations for each of the inputs of a block.
Functions that return values for each draw hold what they return once, and HELD_BYTES or a group per worker beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hmcgp.errors import InvalidInput, NotConverged
from hmcgp.evidence import Evidence, Posterior, SupportsJointPrediction
from hmcgp.kernels import Kernel, contract
from hmcgp.likelihoods import NoisyNumbers
from hmcgp.model import Model
from hmcgp.posterior import mixture
from hmcgp.runtime.interrupts import defer_interrupts
from hmcgp.runtime.parallel import resolve_n_jobs, run_tasks
from hmcgp.runtime.typing import Array

_GROUP = 25  # draws that share a warm start
_JOINT_ROWS = 64  # whose covariances are computed together, for the few that are wanted
_STEPS = 20  # on the way to a draw that cannot be solved at once
BLOCK_BYTES = 32 * 2**20  # of work space for a block of new inputs, for each worker
HELD_BYTES = 256 * 2**20  # of results of groups, or of values for each draw, that wait to be put together


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
    return _moments_of_draws(model, draws, X, False, n_jobs)


def observed_moments(model: Model, draws: Array, X: Array, *, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Mean and variance of a new observation, noise included: as of `latent_moments`."""
    return _moments_of_draws(model, draws, X, True, n_jobs)


def _moments_of_draws(model: Model, draws: Array, X: Array, observed: bool, n_jobs: int | None) -> tuple[Array, Array]:
    out = np.empty((2, len(draws), len(X), *_latents(model)))
    parts = each_group(_moments, model, draws, X, observed, n_jobs=n_jobs, nbytes=out[:, :_GROUP].nbytes)
    for group, part in zip(_groups(len(draws)), parts, strict=True):
        out[:, group] = part
    mean, variance = out
    return mean, variance


def mixture_moments(
    model: Model, draws: Array, X: Array, *, observed: bool = False, n_jobs: int | None = None
) -> tuple[Array, Array]:
    """Mean and variance at each new input, averaged over the draws.

    Parameters
    ----------
    model, draws, X, n_jobs
        As of `latent_moments`.
    observed : bool, default=False
        Of new observations, noise included, instead of the latent function.

    Returns
    -------
    mean, variance : ndarrays of shape (m,), or (m, C) as above
        The variance is that of the mixture: the mean of the variances plus the variance of the means.  Each draw is
        solved once; memory is that of a few results, whatever the number of draws.
    """
    total = np.zeros((3, len(X), *_latents(model)))
    parts = each_group(_running_moments, model, draws, X, observed, n_jobs=n_jobs, nbytes=total.nbytes)
    for group, part in zip(_groups(len(draws)), parts, strict=True):
        mixture.merge(total, group.start, part, group.stop - group.start)
    mean, between, within = total
    return mean, (between + within) / len(draws)


def quantiles(model: Model, draws: Array, X: Array, q: Array, *, n_jobs: int | None = None) -> Array:
    """Quantiles of new observations under the mixture over draws.

    Parameters
    ----------
    model, draws, X, n_jobs
        As of `latent_moments`.
    q : ndarray of shape (k,)
        Probabilities, strictly between 0 and 1.

    Returns
    -------
    ndarray of shape (k, m), or (k, m, C) as above
        By blocks of new inputs, whose moments for all draws are held in HELD_BYTES; each draw is solved once for every
        block, of which there is one up to 16,000 new inputs with 500 draws.
    """
    latents = _latents(model)
    out = np.empty((len(q), len(X), *latents))
    numbers = 4 * len(draws) * int(np.prod(latents))  # mean and variance, in results of groups and put together
    for rows in _slices(len(X), max(HELD_BYTES // (8 * numbers), 1)):
        out[:, rows] = mixture.quantiles(q, *observed_moments(model, draws, X[rows], n_jobs=n_jobs))
    return out


def log_density(model: Model, draws: Array, X: Array, y: Array, *, n_jobs: int | None = None) -> Array:
    """Log density of new observations under the mixture over draws, of shape (m,).

    Each draw is solved once; memory is that of a few results, whatever the number of draws.

    Parameters
    ----------
    model, draws, X, n_jobs
        As of `latent_moments`.
    y : ndarray of shape (m,) or (m, C)
        Columns of targets are independent given the hyperparameters, and the density is that of all together.
    """
    return _averaged(_running_log_density, model, draws, X, y, n_jobs)


def joint_log_density(model: Model, draws: Array, X: Array, y: Array, *, n_jobs: int | None = None) -> Array:
    """As `log_density`, of groups of correlated observations together, of shape (g,).

    Parameters
    ----------
    model, draws, n_jobs
        As of `latent_moments`.
    X : ndarray of shape (g size, d)
        A group is `size` consecutive rows.
    y : ndarray of shape (g, size)
        NaN is integrated out.
    """
    return _averaged(_running_joint_log_density, model, draws, X, y, n_jobs)


def _averaged(
    function: Callable[..., Array], model: Model, draws: Array, X: Array, y: Array, n_jobs: int | None
) -> Array:
    total = np.full(len(y), -np.inf)
    for part in each_group(function, model, draws, X, y, n_jobs=n_jobs, nbytes=total.nbytes):
        np.logaddexp(total, part, out=total)
    return total - np.log(len(draws))


def observed_jointly(model: Model, draws: Array, X: Array) -> Iterator[tuple[Array, Array]]:
    """Yield mean, of shape (m,) or (m, k), and covariance (m, m) of new observations, noise included, for each draw."""
    for theta in draws:
        yield _jointly(model, theta, *model.posterior(theta), X)


@defer_interrupts
def _jointly(model: Model, theta: Array, kernel: Kernel, evidence: Evidence, X: Array) -> tuple[Array, Array]:
    K_cross, K_new = contract.cross_covariance(kernel, model.X, X), contract.covariance(kernel, X)
    noise = _noisy(model, theta).noise_at(X)
    if not isinstance(evidence.posterior, SupportsJointPrediction):
        raise InvalidInput(f"{type(model.evidence).__name__} predicts no covariances between new inputs.")
    mean, covariance = evidence.posterior.predict_jointly(K_cross, K_new)
    covariance.flat[:: len(X) + 1] += noise
    return mean, covariance


def _noisy(model: Model, theta: Array) -> NoisyNumbers:
    likelihood = model.likelihood_at(theta)
    if not isinstance(likelihood, NoisyNumbers):
        raise InvalidInput(f"observations of {type(likelihood).__name__} are labels: ask for their probabilities.")
    return likelihood


def probabilities(model: Model, draws: Array, X: Array, *, n_jobs: int | None = None) -> Array:
    """Probabilities of the classes averaged over the draws, of shape (m, C), with C = 2 for labels -1 and +1.

    Of two classes, both are right in relative terms, however small.  Of more, rows sum to 1 exactly.
    Each draw is solved once; memory is that of a few results, whatever the number of draws.
    """
    total = np.zeros((model.likelihood.count(model.y), len(X)))
    for part in each_group(_sums_of_probabilities, model, draws, X, n_jobs=n_jobs, nbytes=total.nbytes):
        total += part
    return model.likelihood.normalised(total.T)


def probabilities_per_draw(model: Model, draws: Array, X: Array, *, n_jobs: int | None = None) -> Array:
    """Probabilities of the classes for each draw, of shape (S, m, C)."""
    out = np.empty((len(draws), len(X), model.likelihood.count(model.y)))
    parts = each_group(_probabilities, model, draws, X, n_jobs=n_jobs, nbytes=out[:_GROUP].nbytes)
    for group, part in zip(_groups(len(draws)), parts, strict=True):
        out[group] = part
    return out


def per_group(
    function: Callable[..., Array], model: Model, draws: Array, *arguments: Any, n_jobs: int | None
) -> list[Array]:
    """Return function(model, group of draws, *arguments) for each group, within which draws may be solved warm."""
    return list(each_group(function, model, draws, *arguments, n_jobs=n_jobs))


def each_group(
    function: Callable[..., Array], model: Model, draws: Array, *arguments: Any, n_jobs: int | None, nbytes: int = 0
) -> Iterator[Array]:
    """Yield what `per_group` returns, in order.

    Parameters
    ----------
    function, model, draws, *arguments, n_jobs
        As of `per_group`.
    nbytes : int, default=0
        Size of a result.  Groups run so many at a time that their results take HELD_BYTES, or one per worker.
    """
    calls = [(function, (model, draws[group], *arguments)) for group in _groups(len(draws))]
    n_workers = resolve_n_jobs(n_jobs, len(calls))
    for some in _slices(len(calls), max(HELD_BYTES // max(nbytes, 1), n_workers)):
        results = run_tasks(calls[some], n_workers)
        while results:
            yield results.pop(0)


def _groups(n_draws: int) -> list[slice]:
    return _slices(n_draws, _GROUP)


def _slices(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


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


def _moments(model: Model, draws: Array, X: Array, observed: bool) -> Array:
    out = np.empty((2, len(draws), len(X), *_latents(model)))
    for _, s, rows, mean, variance in _each_marginal(model, draws, X, observed):
        out[:, s, rows] = mean, variance
    return out


def _running_moments(model: Model, draws: Array, X: Array, observed: bool) -> Array:
    out = np.zeros((3, len(X), *_latents(model)))  # mean of the means, their scatter, sum of the variances
    for i, _, rows, mean, variance in _each_marginal(model, draws, X, observed):
        mixture.merge(out[:, rows], i, (mean, 0.0, variance), 1)
    return out


def _running_log_density(model: Model, draws: Array, X: Array, y: Array) -> Array:
    out = np.full(len(X), -np.inf)
    for _, _, rows, mean, variance in _each_marginal(model, draws, X, True):
        log_p = mixture.log_densities(y[rows], mean, variance).reshape(len(mean), -1).sum(axis=1)
        out[rows] = np.logaddexp(out[rows], log_p)
    return out


def _running_joint_log_density(model: Model, draws: Array, X: Array, y: Array) -> Array:
    g, size = y.shape
    out = np.full(g, -np.inf)
    for s, kernel, evidence in each_posterior(model, draws):
        for groups in _slices(g, max(_JOINT_ROWS // size, 1)):
            rows, k = slice(groups.start * size, groups.stop * size), groups.stop - groups.start
            mean, covariance = _jointly(model, draws[s], kernel, evidence, X[rows])
            within = np.einsum("iaib->iab", covariance.reshape(k, size, k, size))
            log_p = mixture.joint_log_density(y[groups], mean.reshape(k, size), within)
            out[groups] = np.logaddexp(out[groups], log_p)
    return out


def _sums_of_probabilities(model: Model, draws: Array, X: Array) -> Array:
    out = np.zeros((model.likelihood.count(model.y), len(X)))
    for _, s, rows, mean, variance in _each_draw(model, draws, X):
        out[:, rows] += model.likelihood_at(draws[s]).class_probabilities(mean, variance)
    return out


def _probabilities(model: Model, draws: Array, X: Array) -> Array:
    out = np.empty((len(draws), len(X), model.likelihood.count(model.y)))
    for _, s, rows, mean, variance in _each_draw(model, draws, X):
        out[s, rows] = model.likelihood_at(draws[s]).class_probabilities(mean, variance).T
    return out


def _latents(model: Model) -> tuple[int, ...]:
    """Shape of what is latent at one input: a number, or one for each class or column of targets."""
    return (model.likelihood.count(model.y),) if model.likelihood.targets == "classes" else model.y.shape[1:]


def _variances(variance: Array, mean: Array) -> Array:
    """Variances of the latent values, in the shape of the mean; from covariances between classes, of (m, C, C)."""
    if variance.ndim == 3:
        return np.diagonal(variance, axis1=1, axis2=2)
    return variance if variance.shape == mean.shape else np.broadcast_to(variance[:, None], mean.shape)


def _each_marginal(
    model: Model, draws: Array, X: Array, observed: bool
) -> Iterator[tuple[int, int, slice, Array, Array]]:
    """As `_each_draw`, with a variance for each latent value, and that of the noise on top where it is observed."""
    for i, s, rows, mean, between in _each_draw(model, draws, X):
        variance = _variances(between, mean)
        if observed:  # noise belongs to a row, whatever its columns
            variance = (variance.T + _noisy(model, draws[s]).noise_at(X[rows])).T
        yield i, s, rows, mean, variance


def _each_draw(model: Model, draws: Array, X: Array) -> Iterator[tuple[int, int, slice, Array, Array]]:
    """Yield how many draws came before, s, rows, mean and variance, for every draw and every block of new inputs."""
    blocks = _blocks(model, len(X))
    for i, (s, kernel, evidence) in enumerate(each_posterior(model, draws)):
        for rows in blocks:
            yield i, s, rows, *_predict(kernel, evidence.posterior, model.X, X[rows])


def _blocks(model: Model, m: int) -> list[slice]:
    n_latents = int(np.prod(_latents(model)))
    cross = 2 * n_latents * len(model.X)  # the cross-covariance and its solve
    moments = 16 + 8 * n_latents**2  # what is made of them
    return _slices(m, max(BLOCK_BYTES // (8 * (cross + moments)), 1))


def _predict(kernel: Kernel, posterior: Posterior, X: Array, X_new: Array) -> tuple[Array, Array]:
    with np.errstate(over="ignore", invalid="ignore"):
        K_cross, k_diag = contract.cross_covariance(kernel, X, X_new), contract.variances(kernel, X_new)
        mean, variance = posterior.predict(K_cross, k_diag)
    if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
        m = len(X_new)
        finite = np.isfinite(mean).reshape(m, -1).all(axis=1) & np.isfinite(variance).reshape(m, -1).all(axis=1)
        row = int(np.argmin(finite))
        raise InvalidInput(
            f"the covariance overflows at a new input whose standardised values are {X_new[row].tolist()}: "
            "it lies too far from the training inputs. Check the units of that row."
        )
    return mean, variance
