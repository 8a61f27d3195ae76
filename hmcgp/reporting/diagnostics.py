"""Can the draws be trusted?  A table, a list of findings, and one warning per fit.

R-hat (rank-normalised, split), bulk and tail ESS, the Monte Carlo standard error and BFMI are arviz's;
here they are arranged in a table and held against the usual limits:

    R-hat > 1.01,   ESS < 100 per chain,   any divergence,   BFMI < 0.3,   any failure of an inner solver,
    more than 5 % of trajectories cut at the largest depth of their tree (NUTS).

A finding says what happened, the likely cause, and the setting to change.

References
----------
Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), Rank-normalization, folding, and localization:
an improved R-hat.  Betancourt (2016), Diagnosing suboptimal cotangent disintegrations (BFMI).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from hmcgp.errors import ApproximationWarning, InvalidInput, warn_user
from hmcgp.reporting.multimodality import describe_places
from hmcgp.runtime import arviz_compat
from hmcgp.runtime.typing import Array

if TYPE_CHECKING:
    from hmcgp.samplers.trace import Trace

RHAT_MAX = 1.01
ESS_PER_CHAIN = 100
BFMI_MIN = 0.3
CUT_MAX = 0.05  # share of trajectories
MIN_DRAWS = 4  # arviz splits each chain in two and needs a variance in each half
COLUMNS = ["mean", "sd", "median", "q5", "q95", "ess_bulk", "ess_tail", "r_hat", "mcse_mean"]


class Finding(NamedTuple):
    """One reason to doubt the draws."""

    kind: str  # "stuck", "r_hat", "ess", "divergences", "max_treedepth", "bfmi", or one of SOLVER_KINDS
    message: str


SOLVER_KINDS = ("not_converged", "not_positive_definite")


def summary(trace: Trace, parameters: str | Iterable[str] | None = None) -> pd.DataFrame:
    """Describe the posterior of every hyperparameter, with its convergence statistics.

    Parameters
    ----------
    trace : Trace
        The result of `sample`.
    parameters : str or iterable of str, optional
        Rows to keep: a parameter ("length_scale" keeps one row per input) or a single
        row ("length_scale[FL]").  All rows, in the order of the trace, when None.

    Returns
    -------
    pandas.DataFrame
        One row per name.  Columns: `mean`, `sd`, `median`, the quantiles `q5` and `q95`, the effective
        sample sizes `ess_bulk` and `ess_tail`, `r_hat`, and `mcse_mean`, the Monte Carlo standard error
        of the mean.  What cannot be computed is NaN: `r_hat` of one chain, all convergence
        statistics of fewer than four draws.

    Raises
    ------
    InvalidInput
        If a name in `parameters` is not in the trace.
    """
    columns = sorted(select(trace.names, parameters))
    rows = [_describe(trace.draws[:, :, j]) for j in columns]
    return pd.DataFrame(rows, index=[trace.names[j] for j in columns], columns=COLUMNS)


def bfmi(trace: Trace) -> Array:
    """Bayesian fraction of missing information of each chain.

    Parameters
    ----------
    trace : Trace
        The result of `sample`.

    Returns
    -------
    ndarray of shape (chains,)
        NaN where it is not defined: fewer than four draws, or a sampler without momentum.
    """
    energy = np.asarray(trace.stats["energy"], dtype=np.float64)  # (chains, draws)
    if _is_metropolis(trace) or energy.shape[1] < MIN_DRAWS:
        return np.full(energy.shape[0], np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):  # a chain that never moved gives 0/0
        return arviz_compat.bfmi(energy)


def check(trace: Trace, *, standardized: bool = True) -> list[Finding]:
    """List what is wrong with a run.

    Parameters
    ----------
    trace : Trace
        The result of `sample`.
    standardized : bool, default=True
        Whether the inputs were standardised; if not, that is among the advice.

    Returns
    -------
    list of Finding
        Empty when nothing is wrong.  R-hat is not judged for a single chain, BFMI not for Metropolis.
    """
    found = list(_check_stuck(trace))
    if not found:  # of a chain that never moved, the others would only repeat that
        found = [
            *_check_rhat(trace, standardized),
            *_check_ess(trace, standardized),
            *_check_divergences(trace),
            *_check_depth(trace, standardized),
            *_check_bfmi(trace),
        ]
    return [*found, *_check_solver(trace)]


def warn(trace: Trace, *, standardized: bool = True) -> list[Finding]:
    """Issue the findings of `check`, at most one warning of each category.

    Parameters
    ----------
    trace : Trace
        The result of `sample`.
    standardized : bool, default=True
        As of `check`.

    Returns
    -------
    list of Finding
        What was issued.

    Warns
    -----
    sklearn.exceptions.ConvergenceWarning
        For the findings about the chains.
    hmcgp.errors.ApproximationWarning
        For the failures of the inner solver.
    """
    findings = check(trace, standardized=standardized)
    for category, about_solver in ((ConvergenceWarning, False), (ApproximationWarning, True)):
        messages = [f.message for f in findings if (f.kind in SOLVER_KINDS) == about_solver]
        if messages:
            warn_user(_one_text(messages), category)
    return findings


def _one_text(messages: Sequence[str]) -> str:
    return messages[0] if len(messages) == 1 else "\n".join(f"({i}) {m}" for i, m in enumerate(messages, 1))


def select(names: Sequence[str], wanted: str | Iterable[str] | None, argument: str = "parameters") -> list[int]:
    """Columns that are wanted, in the order of the wishes; all where there are none.

    Of "a.length_scale[FL]" the name is wanted, or that before its bracket, "a.length_scale", or its end,
    "length_scale", which every class and every part of a sum has.
    """
    if wanted is None:
        return list(range(len(names)))
    chosen = [wanted] if isinstance(wanted, str) else list(wanted)
    whole = [name.rpartition("[")[0] if name.endswith("]") else name for name in names]
    matches = [
        [j for j, name in enumerate(names) if want in (name, whole[j], whole[j].rpartition(".")[2])] for want in chosen
    ]
    unknown = [want for want, found in zip(chosen, matches, strict=True) if not found]
    if unknown or not chosen:
        raise InvalidInput(f"{argument!r} must name hyperparameters of the trace; got {unknown}. There are {names}.")
    return list(dict.fromkeys(j for found in matches for j in found))


def _describe(x: Array) -> list[float]:
    """One row of `summary` from the draws of one parameter, (chains, draws)."""
    if x.size == 0:
        return [np.nan] * len(COLUMNS)
    sd = float(np.std(x, ddof=1)) if x.size > 1 else np.nan
    quantiles = (float(q) for q in np.quantile(x, [0.5, 0.05, 0.95]))
    return [float(np.mean(x)), sd, *quantiles, *_ess(x), _rhat(x), _guarded(arviz_compat.mcse_mean, x)]


def _ess(x: Array) -> tuple[float, float]:
    return _guarded(arviz_compat.ess_bulk, x), _guarded(arviz_compat.ess_tail, x)


def _rhat(x: Array) -> float:
    return _guarded(arviz_compat.rhat, x) if x.shape[0] > 1 else np.nan


def _guarded(statistic: Callable[[Array], float], x: Array) -> float:
    """Evaluate a statistic of x, (chains, draws), or NaN where arviz would refuse or divide 0 by 0."""
    if x.shape[1] < MIN_DRAWS or not np.isfinite(x).all():
        return np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        return statistic(x)


def _is_metropolis(trace: Trace) -> bool:
    return trace.sampler == "metropolis"


def _step_setting(trace: Trace) -> str:
    """The setting that makes the steps of this sampler smaller, as users write it."""
    names = {
        "hmc": "HMC(step_size=...)",
        "jumps": "JumpingHMC(step_size=...)",
        "nuts": "NUTS(step_size=...)",
        "metropolis": "Metropolis(scale=...)",
    }
    return names.get(trace.sampler, f"step of '{trace.sampler}'")


def _trajectory_setting(trace: Trace) -> str:
    """The setting that makes the trajectories of HMC longer: of a given number of steps, or of a given time."""
    kind = "JumpingHMC" if trace.sampler == "jumps" else "HMC"
    return f"{kind}(trajectory=2.0) (default: pi/2), or more {kind}(n_steps=...) where that was given"


def _check_stuck(trace: Trace) -> Iterator[Finding]:
    if trace.draws.shape[1] < 2:
        return
    stuck = np.flatnonzero((trace.unconstrained == trace.unconstrained[:, :1]).all(axis=(1, 2)))
    if stuck.size:
        rate = trace.stats["acceptance_rate"][stuck].mean()
        remedy = _step_setting(trace) + ("" if _is_metropolis(trace) else ", or raise target_accept")
        yield Finding(
            "stuck",
            f"{stuck.size} of {len(trace.draws)} chains never moved (chains {stuck.tolist()}, mean acceptance rate "
            f"{rate:.2f}): every proposal was rejected, usually because the step is too long for this posterior or the "
            f"warm-up too short to find a good one. Raise tune=, or set a smaller {remedy}.",
        )


def _check_rhat(trace: Trace, standardized: bool) -> Iterator[Finding]:
    rhats = np.array([_rhat(trace.draws[:, :, j]) for j in range(len(trace.names))])
    bad = np.flatnonzero(rhats > RHAT_MAX)  # NaN compares false
    if bad.size:
        columns = bad[np.argsort(-rhats[bad], kind="stable")].tolist()
        yield Finding(
            "r_hat",
            f"R-hat is {rhats[bad].max():.3f} for '{trace.names[columns[0]]}' (above {RHAT_MAX} for {bad.size} of "
            f"{len(rhats)} hyperparameters): the chains do not agree with each other. "
            f"{_rhat_story(trace, columns, standardized)}",
        )


def _rhat_story(trace: Trace, columns: list[int], standardized: bool) -> str:
    """Likely cause of a high R-hat, and what helps; `columns` have it, the worst first."""
    return describe_places(trace, columns) or (
        "Either the warm-up was too short to reach the posterior, or it has several modes, as when a prior is very "
        f"wide{'' if standardized else ' or the inputs have very different scales'}. Raise tune= and draws= (now "
        f"{_lengths(trace)}), {'' if standardized else 'take standardize=True, '}or narrow the prior of "
        f"'{trace.names[columns[0]]}'."
    )


def _check_ess(trace: Trace, standardized: bool) -> Iterator[Finding]:
    chains, draws, _ = trace.draws.shape
    if draws < MIN_DRAWS:
        yield Finding(
            "ess",
            f"{draws} draws per chain are too few to estimate an effective sample size, let alone the {ESS_PER_CHAIN} "
            "per chain that stable estimates need. Raise draws=.",
        )
        return
    ess = np.array([min(_ess(trace.draws[:, :, j])) for j in range(len(trace.names))])
    bad = np.flatnonzero(ess < ESS_PER_CHAIN * chains)  # NaN compares false
    if bad.size:
        worst, lowest = trace.names[bad[np.argmin(ess[bad])]], float(ess[bad].min())
        cause, remedy = _ess_story(trace, lowest, standardized)
        needed = 100 * math.ceil(draws * ESS_PER_CHAIN * chains / max(lowest, 1.0) / 100)
        yield Finding(
            "ess",
            f"the effective sample size is {lowest:.0f} for '{worst}' (below {ESS_PER_CHAIN} per chain, "
            f"{ESS_PER_CHAIN * chains} in all, for {bad.size} of {len(ess)} hyperparameters): {cause}. About "
            f"draws={needed} (now {draws}) would do at this pace{remedy}.",
        )


def _ess_story(trace: Trace, lowest: float, standardized: bool) -> tuple[str, str]:
    """Likely cause of a low effective sample size, and what helps besides more draws."""
    chains, draws, _ = trace.draws.shape
    rate = float(trace.stats["acceptance_rate"].mean())
    if lowest > 0.5 * chains * draws:
        return f"the run is short, {chains} x {draws} draws", ""
    if _is_metropolis(trace):
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
    return (
        f"successive draws are too much alike (acceptance rate {rate:.2f}), so the trajectories are short compared "
        "with the posterior",
        f"; {scaled}a longer tune=, or a longer {_trajectory_setting(trace)}, would make each draw travel further",
    )


def _check_divergences(trace: Trace) -> Iterator[Finding]:
    diverging = trace.stats["diverging"]
    count = int(diverging.sum())
    if count:
        yield Finding(
            "divergences",
            f"{count} of {diverging.size} draws diverged ({count / diverging.size:.1%}): the leapfrog lost the energy, "
            "so a region of the posterior that curves more than the step allows may be missing from the draws. "
            f"Set a smaller {_step_setting(trace)}, raise target_accept or tune=, or narrow the widest priors.",
        )


def _check_depth(trace: Trace, standardized: bool) -> Iterator[Finding]:
    cut = trace.stats.get("reached_max_treedepth")
    if cut is not None and cut.size and cut.mean() > CUT_MAX:
        yield Finding(
            "max_treedepth",
            f"{int(cut.sum())} of {cut.size} trajectories ({cut.mean():.0%}) were cut at the largest tree depth before "
            "they turned back, so draws are dear and still alike: the step is tiny compared with the posterior, "
            "usually because its scales differ widely and warm-up has not learnt them. Raise tune=, "
            f"{'' if standardized else 'take standardize=True, '}or raise NUTS(max_depth=...).",
        )


def _check_bfmi(trace: Trace) -> Iterator[Finding]:
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


def _check_solver(trace: Trace) -> Iterator[Finding]:
    stories = {
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
    for kind, (what, cause, remedy) in stories.items():
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
