"""Export of a fit to arviz.

The arviz container has the groups `posterior` (natural parameters), `sample_stats`, `unconstrained_posterior`,
`warmup_posterior` and `warmup_sample_stats` when there was a warm-up, and those that are given: `observed_data`,
`constant_data`, `log_likelihood`, `posterior_predictive`, `prior`, `audit`.  One variable per hyperparameter; a
per-input one has the dimension `feature`, whose coordinates are the input names, one that every class has for itself
the dimension `class`, and one of each of several outputs the dimension `output`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hmcgp.errors import InvalidInput
from hmcgp.runtime import arviz_compat
from hmcgp.runtime.files import library_version
from hmcgp.runtime.typing import Array
from hmcgp.samplers.trace import Trace

if TYPE_CHECKING:
    from hmcgp.kernels.base import Parameter

SAMPLE_DIMS = ("chain", "draw")
RESERVED = (*SAMPLE_DIMS, "obs_id", "feature", "class", "output")


def build_tree(
    trace: Trace,
    parameters: Sequence[Parameter],
    *,
    observed_data: Mapping[str, ArrayLike] | None = None,
    constant_data: Mapping[str, ArrayLike] | None = None,
    log_likelihood: Mapping[str, Array] | None = None,
    posterior_predictive: Mapping[str, NDArray[Any]] | None = None,
    prior: Array | None = None,
    attrs: Mapping[str, object] | None = None,
    features: Sequence[str] | None = None,
    outputs: Sequence[str] = (),
    latent: Array | None = None,
    audit: Mapping[str, Mapping[str, Any]] | None = None,
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
        Log likelihoods given the draws: for arviz's `loo`, of each row given all others.
    posterior_predictive : mapping of str to ndarray of shape (chains, draws, n) or (chains, draws, n, k), optional
        Targets drawn anew.
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
    """
    _check_parameters(trace, parameters)
    features = _feature_names(features, parameters, constant_data or {})
    outputs = tuple(map(str, outputs))
    columns = {"feature": features, "output": outputs}
    dims_of = _feature_dims(parameters, features, outputs)
    groups: dict[str, Any] = {
        "posterior": _draws_dataset(trace.draws, parameters, dims_of),
        "sample_stats": _stats_dataset(trace, trace.stats).assign(_metric(trace)).assign(_weights(trace)),
        "unconstrained_posterior": _draws_dataset(trace.unconstrained, parameters, dims_of),
    }
    if latent is not None:
        groups["posterior"] = groups["posterior"].assign(_dataset({"f": latent}, (*SAMPLE_DIMS, "obs_id"), columns))
    if trace.warmup_unconstrained.shape[1] > 0:
        groups["warmup_posterior"] = _draws_dataset(trace.warmup_draws, parameters, dims_of)
        groups["warmup_sample_stats"] = _stats_dataset(trace, trace.warmup_stats)
    if prior is not None:
        groups["prior"] = _draws_dataset(prior[None], parameters, dims_of)
    given: dict[str, tuple[Mapping[str, Any] | None, tuple[str, ...]]] = {
        "log_likelihood": (log_likelihood, (*SAMPLE_DIMS, "obs_id")),
        "posterior_predictive": (posterior_predictive, (*SAMPLE_DIMS, "obs_id", "output")),
        "observed_data": (observed_data, ("obs_id", "output")),
        "constant_data": (constant_data, ("obs_id", "feature")),
    }
    groups |= {name: _dataset(arrays, dims, columns) for name, (arrays, dims) in given.items() if arrays is not None}
    common = _attributes(trace)
    without_draws = {key: value for key, value in common.items() if key != "sample_dims"}
    for dataset in groups.values():
        dataset.attrs = common if "chain" in dataset.dims else without_draws
    if audit is not None:
        groups["audit"] = _audit_dataset(audit).assign_attrs(without_draws)
    return arviz_compat.build_container(groups, {**common, **(attrs or {})})


def _check_parameters(trace: Trace, parameters: Sequence[Parameter]) -> None:
    names, sizes = [p.name for p in parameters], [p.size for p in parameters]
    if sum(sizes) != len(trace.names):
        raise InvalidInput(f"'parameters' must cover the {len(trace.names)} columns of the trace; got sizes {sizes}.")
    clashes = sorted({n for n in names if n in RESERVED or names.count(n) > 1})
    if clashes:
        raise InvalidInput(f"parameters must have names of their own, other than {RESERVED}; rename {clashes}.")


def _feature_names(
    given: Sequence[str] | None, parameters: Sequence[Parameter], constant_data: Mapping[str, ArrayLike]
) -> tuple[str, ...]:
    """Names given, else of the columns of the constant data, else of the first per-input parameter."""
    if given is not None:
        return tuple(map(str, given))
    for table in constant_data.values():
        if np.ndim(table) == 2:
            return tuple(map(str, getattr(table, "columns", [f"x{j}" for j in range(np.shape(table)[1])])))
    return next((p.labels for p in parameters if p.labels is not None), ())


def _feature_dims(
    parameters: Sequence[Parameter], features: tuple[str, ...], outputs: tuple[str, ...]
) -> dict[tuple[str, ...], str]:
    """One dimension per set of inputs: `feature` for all of them, then `feature_1`, ...; `output` for the outputs."""
    taken = {p.name for p in parameters}
    free = (name for i in itertools.count(1) if (name := f"feature_{i}") not in taken)
    dims = {outputs: "output", features: "feature"}
    for p in parameters:
        if p.labels is not None and p.labels not in dims:
            dims[p.labels] = next(free)
    return dims


def _draws_dataset(draws: Array, parameters: Sequence[Parameter], dims: Mapping[tuple[str, ...], str]) -> Any:
    """One variable per parameter from draws of shape (chains, draws, n_dim)."""
    import xarray as xr

    variables: dict[str, Any] = {}
    coords = _sample_coords(draws)
    blocks = np.split(draws, np.cumsum([p.size for p in parameters], dtype=int), axis=2)[:-1]  # the last is empty
    classes = list(dict.fromkeys(p.of_class for p in parameters if p.of_class is not None))
    alike = _in_every_class(parameters, classes)
    for p, block in zip(parameters, blocks, strict=True):
        name, values = p.name.replace("/", "_"), block  # netCDF allows no slash, and a class may be called "a/b"
        axes: tuple[str, ...] = SAMPLE_DIMS
        if p.labels is not None:
            axes = (*axes, dims[p.labels])
            coords[dims[p.labels]] = np.asarray(p.labels, dtype=str)
        elif p.size == 1 or _without_class(p) in alike:
            values = block[:, :, 0]
        else:
            axes = (*axes, f"{name}_dim_0")
            coords[f"{name}_dim_0"] = np.arange(p.size)
        if _without_class(p) in alike:  # one variable for all classes, which grows by a class at a time
            name, axes, values = _without_class(p), (*SAMPLE_DIMS, "class", *axes[2:]), values[:, :, None]
            coords["class"] = np.asarray(classes, dtype=str)
            values = np.concatenate([variables[name][1], values], axis=2) if name in variables else values
        variables[name] = (axes, values)
    return xr.Dataset(variables, coords=coords)


def _without_class(p: Parameter) -> str:
    return p.name if p.of_class is None else p.name.removeprefix(f"{p.of_class}.")


def _in_every_class(parameters: Sequence[Parameter], classes: Sequence[str | None]) -> set[str]:
    """Names of the parameters that each class has for itself, of the same inputs."""
    found: dict[str, list[Parameter]] = {}
    for p in parameters:
        if p.of_class is not None:
            found.setdefault(_without_class(p), []).append(p)
    return {
        name
        for name, owners in found.items()
        if [p.of_class for p in owners] == list(classes) and len({p.labels for p in owners}) == 1
    }


def _sample_coords(values: NDArray[Any]) -> dict[str, Any]:
    return {dim: np.arange(size) for dim, size in zip(SAMPLE_DIMS, values.shape, strict=False)}


def _stats_dataset(trace: Trace, stats: Mapping[str, NDArray[Any]]) -> Any:
    import xarray as xr

    variables: dict[str, Any] = {name: (SAMPLE_DIMS, values) for name, values in stats.items()}
    if trace.sampler == "hmc":
        variables["int_time"] = (SAMPLE_DIMS, stats["step_size"] * stats["n_steps"])
    return xr.Dataset(variables, coords=_sample_coords(stats["lp"]))


def _metric(trace: Trace) -> dict[str, Any]:
    """`inv_metric`, one per chain: (chains, n_dim), or (chains, n_dim, n_dim) when dense."""
    import xarray as xr

    if trace.sampler in ("metropolis", "map", "fixed"):  # they have no momentum, so no metric
        return {}
    axes = ("parameter", "parameter_bis")[: np.ndim(trace.inv_metric) - 1]
    names = {axis: np.asarray(trace.names, dtype=str) for axis in axes}
    return {"inv_metric": xr.DataArray(trace.inv_metric, dims=("chain", *axes), coords=names)}


def _weights(trace: Trace) -> dict[str, Any]:
    """`log_weight`, of which the exponentials sum to 1, where draws carry weights."""
    import xarray as xr

    if trace.log_weight is None:
        return {}
    attrs = {"pareto_k": float(trace.pareto_k), "n_effective": trace.n_effective}
    return {"log_weight": xr.DataArray(trace.log_weight, dims=SAMPLE_DIMS, attrs=attrs)}


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


def _attributes(trace: Trace) -> dict[str, Any]:
    """Attributes that every group and the root carry."""
    return {
        "inference_library": "hmcgp",
        "inference_library_version": library_version("hmcgp"),
        "created_at": datetime.now(UTC).isoformat(),
        "sampler": trace.sampler,
        "sampler_note": trace.note,
        "sampling_time": float(trace.sampling_time),
        "interrupted": int(trace.interrupted),
        "tuning_steps": int(trace.warmup_unconstrained.shape[1]),
        "sample_dims": list(SAMPLE_DIMS),
    }
