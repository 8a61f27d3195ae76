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
