"""Reasons to doubt the draws, each with its likely cause and the setting to change.

The limits are the usual ones:

    R-hat > 1.01,   ESS < 100 per chain,   any divergence,   BFMI < 0.3,   any failure of an inner solver,
    more than 5 % of trajectories cut at the largest depth of their tree (NUTS),
    Pareto k > 0.7 or less than a quarter of the draws effective (weighted draws).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hmcgp.numerics.chain_statistics import MIN_DRAWS, rhat
from hmcgp.numerics.weighted import K_LIMIT
from hmcgp.reporting.convergence import bfmi, ess, weighted_ess
from hmcgp.reporting.multimodality import describe_modes
from hmcgp.samplers.trace import Trace

RHAT_MAX = 1.01
ESS_PER_CHAIN = 100
ESS_AVERAGED = 100  # of weighted draws in all: the Monte Carlo error of a mean is a tenth of its sd
BFMI_MIN = 0.3
CUT_MAX = 0.05  # share of trajectories
SHARE_MIN = 0.25  # of the draws that weights leave effective


class Finding(NamedTuple):
    """One reason to doubt the draws."""

    kind: str  # "stuck", "r_hat", "ess", "weights", "divergences", "max_treedepth", "bfmi", or one of SOLVER_KINDS
    message: str


SOLVER_KINDS = ("not_converged", "not_positive_definite")


def _step_setting(trace: Trace) -> str:
    """The setting that makes the steps of this sampler smaller, as users write it."""
    names = {
        "hmc": "HMC(step_size=...)",
        "jumps": "JumpingHMC(step_size=...)",
        "nuts": "NUTS(step_size=...)",
        "metropolis": "Metropolis(scale=...)",
    }
    return names.get(trace.sampler, f"step of '{trace.sampler}'")


def check_stuck(trace: Trace) -> Iterator[Finding]:
    """Chains that never moved."""
    if trace.draws.shape[1] < 2:
        return
    stuck = np.flatnonzero((trace.unconstrained == trace.unconstrained[:, :1]).all(axis=(1, 2)))
    if stuck.size:
        rate = trace.stats["acceptance_rate"][stuck].mean()
        remedy = _step_setting(trace) + ("" if trace.sampler == "metropolis" else ", or raise target_accept")
        yield Finding(
            "stuck",
            f"{stuck.size} of {len(trace.draws)} chains never moved (chains {stuck.tolist()}, mean acceptance rate "
            f"{rate:.2f}): every proposal was rejected, usually because the step is too long for this posterior or the "
            f"warm-up too short to find a good one. Raise tune=, or set a smaller {remedy}.",
        )


def check_rhat(trace: Trace, standardized: bool) -> Iterator[Finding]:
    """Chains that disagree, and their modes where these can be told."""
    rhats = np.array([rhat(trace.draws[:, :, j]) for j in range(len(trace.names))])
    bad = np.flatnonzero(rhats > RHAT_MAX)  # NaN compares false
    if bad.size:
        columns = bad[np.argsort(-rhats[bad], kind="stable")].tolist()  # the worst first
        worst = trace.names[columns[0]]
        cause = describe_modes(trace, columns) or (
            "Either the warm-up was too short to reach the posterior, or it has several modes, as when a prior is very "
            f"wide{'' if standardized else ' or the inputs have very different scales'}. Raise tune= and draws= (now "
            f"{_lengths(trace)}), {'' if standardized else 'take standardize=True, '}or narrow the prior of '{worst}'."
        )
        yield Finding(
            "r_hat",
            f"R-hat is {rhats[bad].max():.3f} for '{worst}' (above {RHAT_MAX} for {bad.size} of "
            f"{len(rhats)} hyperparameters): the chains do not agree with each other. {cause}",
        )


def check_ess(trace: Trace, standardized: bool) -> Iterator[Finding]:
    """Too few effective draws."""
    chains, draws, _ = trace.draws.shape
    if draws < MIN_DRAWS:
        yield Finding(
            "ess",
            f"{draws} draws per chain are too few to estimate an effective sample size, let alone the {ESS_PER_CHAIN} "
            "per chain that stable estimates need. Raise draws=.",
        )
        return
    weight = None if trace.log_weight is None else trace.weight.reshape(chains, draws)
    sizes = np.array(
        [min(ess(x) if weight is None else weighted_ess(x, weight)) for x in np.moveaxis(trace.draws, 2, 0)]
    )
    bad = np.flatnonzero(sizes < ESS_PER_CHAIN * chains)  # NaN compares false
    if bad.size:
        worst, lowest = trace.names[bad[np.argmin(sizes[bad])]], float(sizes[bad].min())
        cause, remedy = _ess_cause(trace, lowest, standardized)
        needed = 100 * math.ceil(draws * ESS_PER_CHAIN * chains / max(lowest, 1.0) / 100)
        yield Finding(
            "ess",
            f"the effective sample size is {lowest:.0f} for '{worst}' (below {ESS_PER_CHAIN} per chain, "
            f"{ESS_PER_CHAIN * chains} in all, for {bad.size} of {len(sizes)} hyperparameters): {cause}. About "
            f"{'' if weight is None else 'SurrogateHMC(effective=...) with '}draws={needed} (now {draws}) would do at "
            f"this pace{remedy}.",
        )


def _ess_cause(trace: Trace, lowest: float, standardized: bool) -> tuple[str, str]:
    """Likely cause of a low effective sample size, and what helps besides more draws."""
    chains, draws, _ = trace.draws.shape
    rate = float(trace.stats["acceptance_rate"].mean())
    if lowest > 0.5 * chains * draws:
        return f"the run is short, {chains} x {draws} draws", ""
    if trace.log_weight is not None:
        return f"the weights leave {trace.n_effective:.0f} of {len(trace)} draws", "; sampler='hmc' has none"
    if trace.sampler == "metropolis":
        return f"a random walk moves slowly (acceptance rate {rate:.2f})", "; sampler='nuts' needs far fewer"
    if rate < 0.5:
        return (
            f"many proposals are rejected (acceptance rate {rate:.2f}), so the step is too long",
            f"; a smaller {_step_setting(trace)}, a higher target_accept or a longer tune= would reject less",
        )
    scaled = "" if standardized else "standardize=True, "
    if "tree_depth" in trace.stats:
        return (
            f"successive draws are too much alike (acceptance rate {rate:.2f}), as where the posterior is curved or "
            "heavy-tailed, or its scales were learnt badly",
            f"; {scaled}a longer tune= or narrower priors would make each draw worth more",
        )
    kind = "JumpingHMC" if trace.sampler == "jumps" else "HMC"
    longer = f"{kind}(trajectory=2.0) (default: pi/2), or more {kind}(n_steps=...) where that was given"
    return (
        f"successive draws are too much alike (acceptance rate {rate:.2f}), so the trajectories are short compared "
        "with the posterior",
        f"; {scaled}a longer tune=, or a longer {longer}, would make each draw travel further",
    )


def check_weights(trace: Trace) -> Iterator[Finding]:
    """Weights that rest on few draws."""
    if trace.log_weight is None:
        return
    if not (trace.pareto_k < K_LIMIT and trace.n_effective >= SHARE_MIN * len(trace)):
        yield Finding(
            "weights",
            f"averages rest on few draws, {trace.n_effective:.0f} of {len(trace)} (Pareto k {trace.pareto_k:.2f}, "
            f"which should be below {K_LIMIT}): the surrogate that was drawn from does not follow the posterior, or "
            "the run ended before that could be told. Take sampler='hmc', or more time.",
        )


def check_averaged(trace: Trace) -> Iterator[Finding]:
    """Too few effective draws among those that predictions average over, their weights included."""
    chains, draws, _ = trace.draws.shape
    if draws < MIN_DRAWS or not trace.names:
        return
    weight = np.ones((chains, draws)) if trace.log_weight is None else trace.weight.reshape(chains, draws)
    sizes = np.array([min(weighted_ess(x, weight)) for x in np.moveaxis(trace.draws, 2, 0)])
    if (sizes < ESS_AVERAGED).any():  # NaN compares false
        yield Finding(
            "averaged_ess",
            f"the effective sample size of the draws that predictions average over is {np.nanmin(sizes):.0f} for "
            f"'{trace.names[int(np.nanargmin(sizes))]}' (below {ESS_AVERAGED} for {int((sizes < ESS_AVERAGED).sum())} "
            f"of {len(sizes)} hyperparameters; {len(trace)} draws, of which their weights leave "
            f"{trace.n_effective:.0f}). Raise draws= and predict_draws=.",
        )


def check_divergences(trace: Trace) -> Iterator[Finding]:
    """Divergent transitions."""
    diverging = trace.stats["diverging"]
    count = int(diverging.sum())
    if count:
        yield Finding(
            "divergences",
            f"{count} of {diverging.size} draws diverged ({count / diverging.size:.1%}): the leapfrog lost the energy, "
            "so a region of the posterior that curves more than the step allows may be missing from the draws. "
            f"Set a smaller {_step_setting(trace)}, raise target_accept or tune=, or narrow the widest priors.",
        )


def check_depth(trace: Trace, standardized: bool) -> Iterator[Finding]:
    """Trajectories of NUTS cut at the largest depth of their tree."""
    cut = trace.stats.get("reached_max_treedepth")
    if cut is not None and cut.size and cut.mean() > CUT_MAX:
        yield Finding(
            "max_treedepth",
            f"{int(cut.sum())} of {cut.size} trajectories ({cut.mean():.0%}) were cut at the largest tree depth before "
            "they turned back, so draws are dear and still alike: the step is tiny compared with the posterior, "
            "usually because its scales differ widely and warm-up has not learnt them. Raise tune=, "
            f"{'' if standardized else 'take standardize=True, '}or raise NUTS(max_depth=...).",
        )


def check_bfmi(trace: Trace) -> Iterator[Finding]:
    """Chains whose energy changes too slowly."""
    values = bfmi(trace)
    low = np.flatnonzero(values < BFMI_MIN)  # NaN compares false
    if low.size:
        yield Finding(
            "bfmi",
            f"BFMI is {values[low].min():.2f} (below {BFMI_MIN} in {low.size} of {len(values)} chains): the energy "
            "changes too slowly between draws, a sign of a heavy-tailed posterior, as under a wide prior on a "
            "hyperparameter that the data hardly determine. Narrow such priors, or raise tune= and draws= "
            f"(now {_lengths(trace)}).",
        )


def check_solver(trace: Trace) -> Iterator[Finding]:
    """Failures of the inner solver, by kind."""
    causes = {
        "not_converged": (
            "the inner solver used up its iterations",
            "very large prior variances do this, or classes that a few inputs separate completely",
            "Narrow the prior of the variance, or allow more iterations: evidence=Laplace(max_iter=...), or EP, if it "
            "was fitted with that.",
        ),
        "not_positive_definite": (
            "the covariance could not be factorised, or the hyperparameters left the range of floating point,",
            "a step far too long in the first draws does this, or a prior that allows variances beyond 1e15",
            "Raise tune=, or narrow the prior of the variance.",
        ),
    }
    for kind, (what, cause, remedy) in causes.items():
        counts = np.asarray(trace.stats[kind], dtype=np.int64)  # (chains, draws)
        if counts.sum() > 0:
            yield Finding(
                kind,
                f"{what} in {int(counts.sum())} evaluations, within {int((counts > 0).sum())} of {counts.size} kept "
                f"draws; those proposals were rejected, so such hyperparameters are missing from the draws: {cause}. "
                f"{remedy}",
            )


def _lengths(trace: Trace) -> str:
    return f"tune={trace.warmup_unconstrained.shape[1]}, draws={trace.draws.shape[1]}"
