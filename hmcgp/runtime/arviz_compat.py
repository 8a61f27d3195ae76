"""The one module that knows which arviz is installed.

arviz 0.2x keeps results in its own `InferenceData`; arviz 1.x in `xarray.DataTree`.  Everything that
differs between the two is decided here, by arviz's major version (0.2x also installs on new Pythons),
so the rest of the package sees one set of functions.  arviz is imported inside them: it takes longer
to import than a small fit takes to run.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from hmcgp.runtime.typing import Array

TAIL = (0.05, 0.95)  # the quantiles of the tail ESS; 1.x has no default for arrays


@cache
def major() -> int:
    """Major version of the installed arviz, found without importing it where possible."""
    try:
        found = version("arviz")
    except PackageNotFoundError:  # e.g. on the path without metadata
        found = str(import_arviz().__version__)
    return int(found.split(".")[0])


def import_arviz() -> Any:
    """Import arviz, without the daily notice of 0.23 about its refactoring."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*ArviZ is undergoing a major refactor", category=FutureWarning)
        return importlib.import_module("arviz")


@cache
def _array_statistics() -> Any:
    """`rhat`, `ess`, `mcse` and `bfmi` for (chain, draw) arrays, by the cheapest import there is."""
    if major() >= 1:  # the array layer alone: half the import time of arviz, no plotting
        return importlib.import_module("arviz_stats.base").array_stats
    return import_arviz()


def rhat(x: Array) -> float:
    """Rank-normalised split R-hat of x, of shape (chains, draws)."""
    return _scalar(_array_statistics().rhat(x, method="rank"))


def ess_bulk(x: Array) -> float:
    """Effective sample size of the bulk of x, of shape (chains, draws)."""
    return _scalar(_array_statistics().ess(x, method="bulk"))


def ess_mean(x: Array) -> float:
    """Effective sample size for the mean of x, of shape (chains, draws)."""
    return _scalar(_array_statistics().ess(x, method="mean"))


def ess_tail(x: Array) -> float:
    """Smaller effective sample size of the 5 % and 95 % quantiles of x, of shape (chains, draws)."""
    return _scalar(_array_statistics().ess(x, method="tail", prob=TAIL))


def mcse_mean(x: Array) -> float:
    """Monte Carlo standard error of the mean of x, of shape (chains, draws)."""
    return _scalar(_array_statistics().mcse(x, method="mean"))


def bfmi(energy: Array) -> Array:
    """Bayesian fraction of missing information, (chains,), of an energy of shape (chains, draws)."""
    return np.asarray(_array_statistics().bfmi(energy), dtype=np.float64)


def psis(log_ratios: Array, r_eff: float) -> tuple[Array, Array]:
    """Logarithms of Pareto-smoothed importance weights, normalised, and shapes k of the tails.

    The importance ratios of S draws for each of n targets come as logarithms of shape (n, S); r_eff is the number of
    effective draws per draw.  Where a tail holds too few different draws, k is infinite, and the weights are left as
    they are; it is 0 where all ratios of a target are equal.
    """
    x = np.array(log_ratios, dtype=float)
    n_draws = x.shape[1]
    tail = min(n_draws // 5, int(3.0 * np.sqrt(n_draws / r_eff)))  # what both versions take; 1.x raises below 5
    ordered = np.sort(x, axis=1)
    k = np.where(np.ptp(x, axis=1) > 0.0, np.inf, 0.0)
    if tail >= 5:
        rows = ordered[:, -tail] < ordered[:, -1]
        # repeated draws at the foot of the tail would have no excess over it, and 1.x no answer: 1e-9 tells them apart
        x[rows], k[rows] = _psislw(x[rows] + np.linspace(0.0, 1e-9, n_draws), r_eff)
    return x - np.logaddexp.reduce(x, axis=1, keepdims=True), k


def _psislw(x: Array, r_eff: float) -> tuple[Any, Any]:
    if major() >= 1:  # takes log likelihoods, the negative log ratios
        return _array_statistics().psislw(-x, r_eff=r_eff)
    return _array_statistics().psislw(x, reff=r_eff)


def elpd_data(pointwise: Array, pareto_k: Array, n_parameters: float, n_samples: int) -> Any:
    """Leave-one-out densities as the installed arviz's own `loo` returns them, which its `compare` takes.

    Logarithms and shapes k of the tails, of shape (n,), and the effective number of parameters, from so many draws.
    """
    import xarray as xr

    n = len(pointwise)
    good_k = min(1.0 - 1.0 / np.log10(n_samples), 0.7) if n_samples > 1 else 0.7  # of both versions
    warning = bool(np.any(pareto_k > good_k))
    elpd, se = float(pointwise.sum()), float(np.sqrt(n * np.var(pointwise)))
    rows = {"dims": ("obs_id",), "coords": {"obs_id": np.arange(n)}}
    each, k = xr.DataArray(pointwise, name="loo_i", **rows), xr.DataArray(pareto_k, name="pareto_shape", **rows)
    common = {"se": se, "n_samples": n_samples, "n_data_points": n, "scale": "log", "good_k": good_k, "pareto_k": k}
    arviz = import_arviz()
    if major() >= 1:
        extra = {"elpd": elpd, "p": n_parameters, "warning": warning, "elpd_i": each}
        if hasattr(arviz, "ELPDDataLOO"):
            return arviz.ELPDDataLOO(**extra, **common)
        return arviz.ELPDData(kind="loo", **extra, **common)  # before 1.3
    kind = importlib.import_module("arviz.stats.stats_utils").ELPDData
    return kind({"elpd_loo": elpd, "p_loo": n_parameters, "warning": warning, "loo_i": each, **common}, index=_LOO_ROWS)


# in this order, as 0.2x prints them by their places
_LOO_ROWS = ["elpd_loo", "se", "p_loo", "n_samples", "n_data_points", "warning", "loo_i", "pareto_k", "scale", "good_k"]


def _scalar(value: Any) -> float:
    return float(np.asarray(value).item())  # a float, a 0-d or a 1-element array, depending on the version


def build_container(groups: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    """Put datasets, by their groups in the arviz schema, into the installed arviz's container.

    Attributes of the root that netCDF cannot hold are stored as JSON text, booleans as 0 and 1.
    """
    import xarray as xr

    stored = {str(key): _storable(value) for key, value in attrs.items()}
    if major() >= 1:
        return xr.DataTree.from_dict({"/": xr.Dataset(attrs=stored), **groups})
    return import_arviz().InferenceData(attrs=stored, save_warmup=True, **groups)


def _storable(value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        return int(value)
    words = isinstance(value, list) and len(value) > 1 and all(isinstance(v, str) for v in value)
    if words or isinstance(value, str | int | float | np.number):
        return value
    return json.dumps(value, default=lambda v: v.tolist() if isinstance(v, np.ndarray | np.generic) else repr(v))
