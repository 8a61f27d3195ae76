"""Export of a fit to arviz.

The arviz container has the groups of a run (`hmcgp.samplers.arviz_groups`) and those that are given: `log_prior`,
`log_likelihood`, `observed_data`, `constant_data`, `posterior_predictive`, `prior`, `audit`; `sampling_posterior` and
`sampling_sample_stats`, all draws that were sampled, where `posterior` has others; and `averaged_posterior`, the draws
that predictions average over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hmcgp.runtime import arviz_compat
from hmcgp.runtime.typing import Array
from hmcgp.samplers.arviz_groups import SAMPLE_DIMS, Variables, attributes, run_groups, trace_groups, with_attributes
from hmcgp.samplers.trace import Trace

if TYPE_CHECKING:
    from hmcgp.kernels.base import Parameter


def build_tree(
    trace: Trace,
    parameters: Sequence[Parameter],
    *,
    observed_data: Mapping[str, ArrayLike] | None = None,
    constant_data: Mapping[str, ArrayLike] | None = None,
    log_likelihood: Mapping[str, Array] | None = None,
    log_prior: Array | None = None,
    posterior_predictive: Mapping[str, NDArray[Any]] | None = None,
    prior: Array | None = None,
    attrs: Mapping[str, object] | None = None,
    features: Sequence[str] | None = None,
    outputs: Sequence[str] = (),
    latent: Array | None = None,
    audit: Mapping[str, Mapping[str, Any]] | None = None,
    run: Trace | None = None,
    averaged: tuple[Array, Array] | None = None,
) -> Any:
    """Build the installed arviz's container: arviz.InferenceData (arviz 0.2x) or xarray.DataTree (arviz 1.x).

    Parameters
    ----------
    trace : Trace
    parameters : sequence of Parameter
        The free parameters, in the order of the columns of the trace.
    observed_data, constant_data : mapping of str to array-like, optional
        Arrays with rows (dimension `obs_id`) first and columns, if any, second: outputs (`output`) and inputs
        (`feature`).
    log_likelihood : mapping of str to ndarray of shape (chains, draws) or (chains, draws, n), optional
        Log likelihoods given the draws: for arviz's `loo`, of each row given all others; for its `psense_summary`, of
        all rows together.
    log_prior : ndarray of shape (chains, draws, n_dim), optional
        Log prior densities of the natural parameters, without Jacobians of the transforms.
    posterior_predictive : mapping of str to ndarray of shape (chains, draws, n) or (chains, draws, n, k), optional
        Targets drawn from the posterior predictive distribution.
    prior : ndarray of shape (m, n_dim), optional
        Natural parameters drawn from their prior.
    attrs : mapping of str to object, optional
        More attributes of the root; what netCDF cannot hold is stored as JSON text.
    features, outputs : sequence of str, optional
        Names of all inputs, by default the columns of a DataFrame in `constant_data`, else x0, x1, …; and of several
        outputs.
    latent : ndarray of shape (chains, draws, n), optional
        Draws of latent values, stored as `f` in `posterior`.
    audit : mapping, optional
        `Audit.to_dict()`, stored as the group `audit`.
    run : Trace, optional
        All draws that were sampled, where `trace` has others.
    averaged : tuple of ndarray of shape (S, n_dim) and ndarray of shape (S,), optional
        Draws that predictions average over, and the logarithms of their weights.
    """
    features = _feature_names(features, constant_data or {})
    outputs = tuple(map(str, outputs))
    columns = {"feature": features, "output": outputs}
    variables = Variables.of(trace, parameters, features, outputs)
    groups = trace_groups(trace, variables)
    if latent is not None:
        groups["posterior"] = groups["posterior"].assign(_dataset({"f": latent}, (*SAMPLE_DIMS, "obs_id"), columns))
    if prior is not None:
        groups["prior"] = variables.dataset(prior[None])
    if log_prior is not None and log_prior.shape[2] > 0:
        groups["log_prior"] = variables.dataset(log_prior)
    if run is not None:
        groups |= run_groups(run, variables)
    if averaged is not None:
        weights = _dataset({"log_weight": averaged[1][None]}, SAMPLE_DIMS, columns)
        groups["averaged_posterior"] = variables.dataset(averaged[0][None]).assign(weights)
    given: dict[str, tuple[Mapping[str, Any] | None, tuple[str, ...]]] = {
        "log_likelihood": (log_likelihood, (*SAMPLE_DIMS, "obs_id")),
        "posterior_predictive": (posterior_predictive, (*SAMPLE_DIMS, "obs_id", "output")),
        "observed_data": (observed_data, ("obs_id", "output")),
        "constant_data": (constant_data, ("obs_id", "feature")),
    }
    groups |= {name: _dataset(arrays, dims, columns) for name, (arrays, dims) in given.items() if arrays is not None}
    if audit is not None:
        groups["audit"] = _audit_dataset(audit)
    common = attributes(trace)
    with_attributes(groups, common)
    return arviz_compat.build_container(groups, {**common, **(attrs or {})})


def _feature_names(given: Sequence[str] | None, constant_data: Mapping[str, ArrayLike]) -> tuple[str, ...]:
    """Names given, else of the columns of the constant data, if there are any."""
    if given is not None:
        return tuple(map(str, given))
    for table in constant_data.values():
        if np.ndim(table) == 2:
            return tuple(map(str, getattr(table, "columns", [f"x{j}" for j in range(np.shape(table)[1])])))
    return ()


def _dataset(arrays: Mapping[str, ArrayLike], dims: tuple[str, ...], columns: Mapping[str, Sequence[str]]) -> Any:
    """Put arrays over the leading `dims` into a dataset, with names for some of them."""
    import xarray as xr

    variables: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    for name, given in arrays.items():
        values = np.asarray(given)
        if values.dtype.kind in "OT":  # netCDF holds text of fixed dtype, not Python objects
            values = values.astype(str)
        variables[name] = (dims[: values.ndim], values)
        for dim, size in zip(dims, values.shape, strict=False):
            coords[dim] = np.asarray(columns[dim], dtype=str) if columns.get(dim) else np.arange(size)
    return xr.Dataset(variables, coords=coords)


def _audit_dataset(audit: Mapping[str, Mapping[str, Any]]) -> Any:
    """Numbers of an audit by draw, hyperparameter and row; its verdict in words as attributes."""
    import xarray as xr

    dims = {"draw": "audited_draw", "parameter": "hyperparameter", "row": "audited_row"}
    labels = {
        "audited_draw": audit["draw"]["draw"],
        "hyperparameter": np.asarray(audit["parameter"]["name"], dtype=str),
    }
    variables = {
        name: (dims[subject], values)
        for subject in dims
        for name, values in audit[subject].items()
        if name not in ("draw", "name")
    }
    return xr.Dataset(variables, coords=labels, attrs=audit["audit"])
