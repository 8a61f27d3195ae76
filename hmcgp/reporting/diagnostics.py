"""Can the draws be trusted?  A table, a list of findings, and warnings.

`summary` tabulates arviz's statistics (`hmcgp.numerics.chain_statistics`); `check` holds them against the usual limits
(`hmcgp.reporting.findings`), and `warn` passes what it finds on to the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from hmcgp.errors import ApproximationWarning, InvalidInput, warn_user
from hmcgp.numerics.chain_statistics import mcse_mean, rhat
from hmcgp.numerics.weighted import weighted_quantile
from hmcgp.reporting import findings
from hmcgp.reporting.convergence import bfmi, ess, weighted_ess
from hmcgp.reporting.findings import SOLVER_KINDS, Finding
from hmcgp.runtime.checks import check_count
from hmcgp.runtime.typing import Array
from hmcgp.samplers.trace import Trace

__all__ = ["COLUMNS", "Finding", "bfmi", "check", "check_averaged", "select", "summary", "warn"]

COLUMNS = ["mean", "sd", "median", "q5", "q95", "ess_bulk", "ess_tail", "r_hat", "mcse_mean"]


def summary(trace: Trace, parameters: str | Iterable[str] | None = None, round_to: int | None = None) -> pd.DataFrame:
    """Describe the posterior of every hyperparameter, with its convergence statistics.

    Parameters
    ----------
    trace : Trace
        A run of `sample`.
    parameters : str or iterable of str, optional
        Rows to keep: a parameter ("length_scale" keeps one row per input) or a single
        row ("length_scale[FL]").  All rows, in the order of the trace, when None.
    round_to : int, optional
        Significant digits to keep; effective sample sizes are then whole numbers, and R-hat has three decimals.
        None keeps all.

    Returns
    -------
    pandas.DataFrame
        One row per name.  Columns: `mean`, `sd`, `median`, the quantiles `q5` and `q95`, the effective
        sample sizes `ess_bulk` and `ess_tail`, `r_hat`, and `mcse_mean`, the Monte Carlo standard error
        of the mean.  `r_hat` of one chain and all convergence statistics of fewer
        than four draws are NaN.  Where the draws carry weights, all columns are of the weighted draws, but for
        `r_hat`, which compares the chains as they ran.  Its `attrs` name the `sampler`, and how it went in a `note`.

    Raises
    ------
    InvalidInput
        If a name in `parameters` is not in the trace.
    """
    columns = sorted(select(trace.names, parameters))
    weight = None if trace.log_weight is None else trace.weight.reshape(trace.draws.shape[:2])
    rows = [_describe(trace.draws[:, :, j], weight) for j in columns]
    found = pd.DataFrame(rows, index=[trace.names[j] for j in columns], columns=COLUMNS)
    found = found if round_to is None else _rounded(found, round_to)
    found.attrs = {"sampler": trace.sampler, "note": trace.note}
    return found


def check(trace: Trace, *, standardized: bool = True) -> list[Finding]:
    """List the reasons to doubt a run.

    Parameters
    ----------
    trace : Trace
        A run of `sample`.
    standardized : bool, default=True
        Whether the inputs were standardised; if not, that is among the advice.

    Returns
    -------
    list of Finding
        Empty when nothing is wrong.  R-hat is not judged for a single chain, BFMI not for Metropolis.
    """
    found = list(findings.check_stuck(trace))
    if not found:  # of a chain that never moved, the others would only repeat that
        found = [
            *findings.check_rhat(trace, standardized),
            *findings.check_ess(trace, standardized),
            *findings.check_weights(trace),
            *findings.check_divergences(trace),
            *findings.check_depth(trace, standardized),
            *findings.check_bfmi(trace),
        ]
    return [*found, *findings.check_solver(trace)]


def check_averaged(run: Trace, averaged: Trace, *, standardized: bool = True) -> list[Finding]:
    """List the reasons to doubt the sampled draws, and the (weighted) draws that predictions average over.

    Parameters
    ----------
    run, averaged : Trace
        `sampling_trace_` and `trace_` of an estimator, which may be the same.
    standardized : bool, default=True
        As for `check`.

    Returns
    -------
    list of Finding
        Empty when nothing is wrong.
    """
    found = check(run, standardized=standardized)
    if averaged is not run:
        found += [*findings.check_weights(averaged), *findings.check_averaged(averaged)]
    return list(dict.fromkeys(found))


def warn(trace: Trace, *, standardized: bool = True) -> list[Finding]:
    """Issue the findings of `check`, at most one warning of each category.

    Parameters
    ----------
    trace, standardized
        As of `check`.

    Returns
    -------
    list of Finding

    Warns
    -----
    sklearn.exceptions.ConvergenceWarning
        For the findings about the chains.
    hmcgp.errors.ApproximationWarning
        For the failures of the inner solver.
    """
    found = check(trace, standardized=standardized)
    for category, about_solver in ((ConvergenceWarning, False), (ApproximationWarning, True)):
        messages = [f.message for f in found if (f.kind in SOLVER_KINDS) == about_solver]
        if len(messages) > 1:
            messages = ["\n".join(f"({i}) {message}" for i, message in enumerate(messages, 1))]
        for message in messages:
            warn_user(message, category)
    return found


def select(names: Sequence[str], wanted: str | Iterable[str] | None, argument: str = "parameters") -> list[int]:
    """Columns of the hyperparameters in `wanted`, in that order; all of them for None.

    "a.length_scale[FL]" is found by its whole name, by "a.length_scale", or by "length_scale", which every
    class and every part of a sum has.
    """
    if wanted is None:
        return list(range(len(names)))
    chosen = [wanted] if isinstance(wanted, str) else list(wanted)
    matches = {want: [j for j, name in enumerate(names) if want in _known_as(name)] for want in chosen}
    unknown = [want for want, found in matches.items() if not found]
    if unknown or not chosen:
        raise InvalidInput(f"{argument!r} must name hyperparameters of the trace; got {unknown}. There are {names}.")
    return list(dict.fromkeys(chain(*matches.values())))


def _known_as(name: str) -> tuple[str, str, str]:
    """Return a name such as "a.length_scale[FL]" whole, without its input, and without the part of the sum too."""
    parameter = name.rpartition("[")[0] if name.endswith("]") else name
    return name, parameter, parameter.rpartition(".")[2]


def _rounded(table: pd.DataFrame, digits: int) -> pd.DataFrame:
    """Table of `summary` with so many significant digits."""
    check_count("round_to", digits, 1)
    decimals = dict.fromkeys(("ess_bulk", "ess_tail"), 0) | {"r_hat": 3}
    return table.apply(
        lambda c: c.round(decimals[c.name]) if c.name in decimals else c.map(lambda x: float(f"{x:.{digits}g}"))
    )


def _describe(x: Array, weight: Array | None = None) -> list[float]:
    """One row of `summary` from the draws of one parameter, and their weights if they carry any, (chains, draws)."""
    if x.size == 0:
        return [np.nan] * len(COLUMNS)
    if weight is not None:
        mean = float(np.average(x, weights=weight))
        sd = float(np.sqrt(np.average((x - mean) ** 2, weights=weight)))
        bulk, tail = weighted_ess(x, weight)
        return [
            mean,
            sd,
            *weighted_quantile(x.ravel(), [0.5, 0.05, 0.95], weight.ravel()),
            bulk,
            tail,
            rhat(x),
            sd / np.sqrt(bulk),
        ]
    sd = float(np.std(x, ddof=1)) if x.size > 1 else np.nan
    return [float(np.mean(x)), sd, *np.quantile(x, [0.5, 0.05, 0.95]), *ess(x), rhat(x), mcse_mean(x)]
