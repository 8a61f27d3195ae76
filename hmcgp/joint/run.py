"""Draws from the exact posterior of hyperparameters and latent values."""

from __future__ import annotations

from dataclasses import replace

from hmcgp.errors import InvalidInput
from hmcgp.joint.density import JointDensity
from hmcgp.joint.result import JointSample
from hmcgp.joint.sampler import JointHMC
from hmcgp.likelihoods import LabelNoise, Logistic, Probit
from hmcgp.model import Model
from hmcgp.runtime.checks import check_count
from hmcgp.runtime.random import RandomStateLike
from hmcgp.samplers import sample
from hmcgp.samplers.trace import Trace


def sample_jointly(
    model: Model,
    *,
    draws: int = 1000,
    tune: int = 500,
    chains: int = 4,
    random_state: RandomStateLike = None,
    n_jobs: int | None = None,
    n_vectors: int = 16,
    progressbar: bool = True,
    max_time: float | None = None,
) -> JointSample:
    """Draw from the exact posterior of hyperparameters and latent values of a two-class model.

    All other inference in this package integrates the latent values by an approximation (the model's evidence) and
    samples the hyperparameters alone.  Here both are sampled, so that the result is exact but for Monte Carlo error: a
    reference against which approximations are judged (Neal 1997).  It takes several times as long.

    Parameters
    ----------
    model : Model
        Of labels -1 and +1: logistic, probit or label noise.  Its evidence guides the trajectories of the
        hyperparameters, and decides nothing: "laplace" is quick, "ep" is accepted more often where Laplace's
        approximation is poor.
    draws : int
        Draws per chain to keep.
    tune : int
        Warm-up draws per chain, at least 1.
    chains : int
        Number of chains; they start from draws of the prior.
    random_state : None, int, SeedSequence, Generator or RandomState
        Seed.  The same one gives the same draws, whatever `n_jobs`.
    n_jobs : int, optional
        Workers, as of `hmcgp.sample`.
    n_vectors : int, default=16
        Latent vectors with which every move of the hyperparameters is weighed: more are accepted with more of them.
    progressbar : bool
        Show one bar for all chains, in a terminal or a notebook.
    max_time : float, optional
        Seconds after which to stop with the draws so far, as of `hmcgp.sample`.

    Returns
    -------
    JointSample
        If the run ended early (Ctrl-C, `max_time`): the draws so far, with a warning, if there are any after warm-up.

    Notes
    -----
    The prior of the latent values is N(0, K + 1e-10 diag K), since a smooth kernel has no Cholesky factor in float64.
    Hyperparameters where EP cannot be solved count as impossible.

    References
    ----------
    Neal (1997), Monte Carlo implementation of Gaussian process models for Bayesian regression and classification.
    Filippone & Girolami (2014), Pseudo-marginal Bayesian inference for Gaussian processes.

    Examples
    --------
    >>> import numpy as np
    >>> from hmcgp import Model, sample_jointly
    >>> X = np.linspace(-1, 1, 12)[:, None]
    >>> model = Model(X, np.where(X[:, 0] > 0.1, 1.0, -1.0), likelihood="probit")
    >>> joint = sample_jointly(model, draws=20, tune=20, chains=1, random_state=1, progressbar=False)
    >>> joint.predict_proba(X[:3]).shape
    (3, 2)
    """
    _check_model(model)
    check_count("tune", tune, 1)
    check_count("n_vectors", n_vectors, 1)
    trace = sample(
        JointDensity(model),
        JointHMC(n_vectors),
        draws=draws,
        tune=tune,
        chains=chains,
        random_state=random_state,
        n_jobs=n_jobs,
        progressbar=progressbar,
        max_time=max_time,
    )
    return JointSample(model, _hyperparameters(trace, model.n_dim), trace.draws[:, :, model.n_dim :].copy())


def _check_model(model: Model) -> None:
    if not isinstance(model, Model):
        raise InvalidInput(f"'model' must be a Model of labels; got a {type(model).__name__}.")
    if not isinstance(model.likelihood, (Logistic, Probit, LabelNoise)):
        raise InvalidInput(
            f"sample_jointly is for two classes (logistic, probit, label noise); this model has "
            f"{type(model.likelihood).__name__}. Sample its hyperparameters with hmcgp.sample(model)."
        )


def _hyperparameters(trace: Trace, p: int) -> Trace:
    """Trace of the first p coordinates."""
    return replace(
        trace,
        draws=trace.draws[:, :, :p].copy(),
        unconstrained=trace.unconstrained[:, :, :p].copy(),
        names=trace.names[:p],
        warmup_draws=trace.warmup_draws[:, :, :p].copy(),
        warmup_unconstrained=trace.warmup_unconstrained[:, :, :p].copy(),
    )
