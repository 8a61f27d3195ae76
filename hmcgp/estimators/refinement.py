"""Refinement: hyperparameters drawn under an evidence that is cheap to follow, averaged under one that is right.

Laplace's approximation finds the posterior of the hyperparameters well, but its probabilities are too timid.  So the
draws that predictions use are evaluated once by expectation propagation, weighted by Z_EP/Z_Laplace, and predictions
are EP's: some hundred values instead of ten thousand gradients.  Of several classes, draws under the softmax are
weighted to the multinomial probit with the same kernels, θ unchanged:

    w_s ∝ p_EP(y | θ_s)/p_Laplace(y | θ_s).

Where the weights fail (Pareto k, or too few effective draws: the variance lies too low under Laplace), short chains are
run under the better evidence, from draws taken in proportion to the weights and with their covariance as metric.  The
exact evidence is an estimate without a gradient, which no chain can follow: weights that fail there are used, with a
warning.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hmcgp.errors import ApproximationWarning, InvalidInput, NotConverged, NotPositiveDefinite, warn_user
from hmcgp.estimators.prediction_draws import n_each
from hmcgp.evidence import EP, Laplace, LatentSampling, SoftmaxLaplace
from hmcgp.likelihoods import Classes, LabelNoise, Logistic, MultinomialProbit, Probit, Softmax
from hmcgp.model import Model
from hmcgp.posterior.evidence_bounds import log_evidence_per_draw
from hmcgp.posterior.weights import K_LIMIT, Weights, pareto_smoothed, resampled
from hmcgp.runtime.checks import lowered
from hmcgp.runtime.random import spawn_generators
from hmcgp.runtime.typing import Array
from hmcgp.samplers import HMC, Trace, sample

MIN_SHARE = 0.25  # of the draws that the weights must leave effective
MAX_COPIES = 3  # mean weight of rows of several classes, which the multinomial probit takes as copies
TUNE = 60  # warm-up draws of chains that start from weighted draws


@dataclass(frozen=True)
class Refinement:
    """How draws made under one evidence came to stand for another.

    Attributes
    ----------
    sampled, averaged : str
        Likelihood and evidence under which the chains ran, and under which predictions are made.
    method : {"weighted", "sampled", "evaluated"}
        Whether the draws were weighted; or, as the weights would not do, chains were run under the better evidence; or
        there is one draw, which needs no weight.
    pareto_k, effective : float
        Shape of the tail of the weights, and the number of draws that they leave effective, of `n_draws`: of the
        weights that were used, or that would not do.
    n_draws : int
    seconds : float
        That it took.
    """

    sampled: str
    averaged: str
    method: str
    pareto_k: float
    effective: float
    n_draws: int
    seconds: float

    def __str__(self) -> str:
        found = f"{self.effective:.0f} of {self.n_draws} draws effective, Pareto k {self.pareto_k:.2f}"
        how = {
            "weighted": f"{self.n_draws} draws under {self.sampled}, weighted ({found})",
            "sampled": f"drawn under it, from where draws under {self.sampled} led, whose weights failed ({found})",
            "evaluated": f"at the hyperparameters found under {self.sampled}",
        }
        return f"probabilities: {self.averaged}; hyperparameters: {how[self.method]}"


def wanted_models(gp: Any, model: Model) -> list[Model]:
    """Models that lead from the sampled one to the one that `refine` asks for; none where there is nothing to refine.

    Raises
    ------
    InvalidInput
        For a refinement that does not fit the likelihood.
    """
    refine = lowered(gp.refine)
    if refine is None or (refine == "auto" and not _worth_refining(gp, model)):
        return []
    if isinstance(model.likelihood, Classes):
        return _of_classes(model, str(refine))
    if not isinstance(model.likelihood, Logistic | Probit | LabelNoise):
        raise InvalidInput(
            f"refine={gp.refine!r} is for labels, and the likelihood is {type(model.likelihood).__name__}: take "
            "refine=None."
        )
    by_ep = [] if isinstance(model.evidence, EP) else [model.with_evidence("ep")]
    return [*by_ep, model.with_evidence("sampled")] if refine == "exact" else by_ep


def _worth_refining(gp: Any, model: Model) -> bool:
    """Whether the fit took Laplace's approximation, and did not ask for the softmax by name."""
    if isinstance(model.evidence, SoftmaxLaplace):
        by_name = isinstance(gp.likelihood, Softmax) or lowered(gp.likelihood) == "softmax"
        few = np.sum(model.likelihood.row_weights(len(model.y))) <= MAX_COPIES * len(model.y)
        dense = model.inducing is None  # all that the multinomial probit knows
        return not by_name and dense and _has_whole_weights(model) and bool(few)
    return isinstance(model.evidence, Laplace)


def _of_classes(model: Model, refine: str) -> list[Model]:
    if refine == "exact":
        raise InvalidInput(
            "refine='exact' is for two classes; of more, refine='ep' is the most accurate. Or fit one class against "
            "the rest: sklearn.multiclass.OneVsRestClassifier(gp)."
        )
    if isinstance(model.likelihood, MultinomialProbit):
        return []
    if model.inducing is not None:
        raise InvalidInput(
            "refine='ep' of more than two classes knows dense covariances only, and there are inducing inputs: take "
            "refine=None, Laplace's approximation of the softmax, or inducing=None."
        )
    if not _has_whole_weights(model):
        raise InvalidInput(
            "refine='ep' takes whole numbers as weights of rows and classes where there are more than two classes: the "
            "multinomial probit has rows twice, but not one and a half times. Take refine=None, or whole weights."
        )
    likelihood = MultinomialProbit(n_classes=model.likelihood.count(model.y)).weighted(model.likelihood.weights)
    return [Model(model.X, model.y, kernel=model.kernel, likelihood=likelihood, input_names=model.input_names)]


def _has_whole_weights(model: Model) -> bool:
    weights = model.likelihood.row_weights(len(model.y))
    return bool((weights == np.round(weights)).all())


def refined(gp: Any, sampled: Model, run: Trace, models: list[Model]) -> tuple[Model, Trace, Refinement] | None:
    """Model and draws that predictions average over, and how they came about; None where the evidence failed.

    Parameters
    ----------
    gp : GPClassifier
        Its settings.
    sampled : Model
        The density that was sampled.
    run : Trace
        Its draws.
    models : list of Model
        From `wanted_models`.
    """
    begin = time.perf_counter()
    try:
        method, kept, weights = _stand_for(gp, sampled, run, models)
    except (NotConverged, NotPositiveDefinite) as error:
        warn_user(
            f"the draws could not be refined: {error} Probabilities are those of {_name(sampled)}, which tend to be "
            "too timid. Fit with evidence='ep', or give narrower priors.",
            ApproximationWarning,
        )
        return None
    seconds = time.perf_counter() - begin
    told = _name(sampled), _name(models[-1]), method, weights.pareto_k, weights.effective, len(weights.log_weight)
    return models[-1], kept, Refinement(*told, seconds)


def _stand_for(gp: Any, sampled: Model, run: Trace, models: list[Model]) -> tuple[str, Trace, Weights]:
    """Draws that stand for the last of the models; how they came about; and the weights that were tried last."""
    kept = run.thinned(n_each(gp.predict_draws))
    before = _log_evidence_noted(sampled, kept)
    own = 0.0 if kept.log_weight is None else kept.log_weight.ravel()  # from a surrogate to the density sampled
    if len(kept) == 1:
        weights = Weights(np.zeros(1), np.nan, 1.0)
        log_z = log_evidence_per_draw(models[-1], kept.flat)
        return "evaluated", _with_weights(models[-1], kept, log_z, weights), weights
    method = "weighted"
    for i, model in enumerate(models):
        log_z = log_evidence_per_draw(model, kept.flat, n_jobs=gp.n_jobs)
        weights = pareto_smoothed(own + log_z - before)
        followed = run.sampler != "jumps" and not isinstance(model.evidence, LatentSampling)  # which has no gradient
        if i == 0 and followed and not trustworthy(weights):
            method, kept = "sampled", _sampled_again(gp, model, kept, weights)
            before, own = _log_evidence_noted(model, kept), 0.0
        else:
            kept = _with_weights(model, kept, log_z, weights)
    if kept.log_weight is not None and not trustworthy(weights):
        warn_user(
            f"averages over the draws rest on few of them, {weights.effective:.0f} of {len(kept)} (Pareto k "
            f"{weights.pareto_k:.2f}): the posterior under {_name(models[-1])} lies elsewhere. Raise draws and "
            "predict_draws; or, of two classes, fit with evidence='ep', or draw from the exact posterior with "
            "hmcgp.sample_jointly.",
            ApproximationWarning,
        )
    return method, kept, weights


def reweighted(trace: Trace, log_ratios: Array) -> Trace:
    """Draws with their weights multiplied, for rows that were appended."""
    before = 0.0 if trace.log_weight is None else trace.log_weight.ravel()
    weights = pareto_smoothed(before + log_ratios)
    shape = trace.draws.shape[:2]
    lp = np.asarray(trace.stats["lp"], dtype=float) + log_ratios.reshape(shape)
    log_weight = weights.log_weight.reshape(shape)
    return replace(trace, stats={**trace.stats, "lp": lp}, log_weight=log_weight, pareto_k=weights.pareto_k)


def trustworthy(weights: Weights) -> bool:
    """Whether averages with these weights can be relied on: k and the effective number, together."""
    return weights.pareto_k < K_LIMIT and weights.effective >= MIN_SHARE * len(weights.log_weight)


def _name(model: Model) -> str:
    words = {"MultinomialProbit": "multinomial probit", "LabelNoise": "label noise"}
    how = {"SoftmaxLaplace": "Laplace", "MultinomialEP": "EP", "LatentSampling": "importance sampling, exact"}
    likelihood, evidence = type(model.likelihood).__name__, type(model.evidence).__name__
    return f"{words.get(likelihood, likelihood.lower())} by {how.get(evidence, evidence)}"


def _log_evidence_noted(model: Model, trace: Trace) -> Array:
    """Log evidence of each draw, of shape (S,), from the log density that the sampler noted."""
    u = trace.unconstrained.reshape(len(trace), -1)
    return np.ravel(trace.stats["lp"]) - np.array([model.log_prior(x)[0] for x in u])


def _with_weights(model: Model, trace: Trace, log_z: Array, weights: Weights) -> Trace:
    """The draws with their weights, and the log density that they stand for."""
    u = trace.unconstrained.reshape(len(trace), -1)
    lp = log_z + np.array([model.log_prior(x)[0] for x in u])
    shape = trace.draws.shape[:2]
    return replace(
        trace,
        stats={**trace.stats, "lp": lp.reshape(shape)},
        log_weight=weights.log_weight.reshape(shape) if len(trace) > 1 else None,
        pareto_k=weights.pareto_k,
    )


def _sampled_again(gp: Any, model: Model, trace: Trace, weights: Weights) -> Trace:
    """Chains under the better evidence, from draws in proportion to their weights."""
    u, w = trace.unconstrained.reshape(len(trace), -1), np.exp(weights.log_weight)
    rng, seed = spawn_generators(gp.random_state, gp.chains + 2)[gp.chains :]  # not those of the chains before
    start = u[rng.permutation(resampled(w))[: gp.chains]]
    # few weighted draws say little about covariances: those of all draws make up for them
    share = weights.effective / (weights.effective + 2.0 * u.shape[1])
    wide = np.diag(np.var(u, axis=0)) + 1e-12 * np.eye(u.shape[1])
    metric = share * np.cov(u.T, aweights=w).reshape(wide.shape) + (1.0 - share) * wide
    return sample(
        model,
        HMC(metric=metric),
        draws=max(len(trace) // gp.chains, 1),
        tune=TUNE,
        chains=gp.chains,
        start=start,
        random_state=seed,
        n_jobs=gp.n_jobs,
        progressbar=gp.progressbar,
    )
