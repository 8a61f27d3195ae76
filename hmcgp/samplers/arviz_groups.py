"""Groups of arviz's container that describe a run: draws, statistics, warm-up.

`posterior` has draws of equal weight, because arviz averages without weights: of a trace with weights, as many draws by
balanced resampling (`hmcgp.numerics.balanced_resampling`).  All draws that were sampled are in `sampling_posterior`
then, and their statistics with `log_weight` in `sampling_sample_stats`.  One variable per hyperparameter; a per-input
one has the dimension `feature`, whose coordinates are the input names, one that every class has for itself the
dimension `class`, and one of each of several outputs the dimension `output`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.parameters import Parameter
from hmcgp.runtime import arviz_compat
from hmcgp.runtime.files import library_version
from hmcgp.runtime.typing import Array
from hmcgp.samplers.trace import Trace

SAMPLE_DIMS = ("chain", "draw")
RESERVED = (*SAMPLE_DIMS, "obs_id", "feature", "class", "output")


@dataclass(frozen=True)
class Variables:
    """Variables of a container: the parameters that own the columns of a trace, and the dimensions of vectors."""

    parameters: tuple[Parameter, ...]
    dims: Mapping[tuple[str, ...], str]  # by the names of the components

    @staticmethod
    def of(
        trace: Trace, parameters: Sequence[Parameter], features: Sequence[str] = (), outputs: Sequence[str] = ()
    ) -> Variables:
        """Variables of a trace, for inputs and outputs of these names; default: of the first per-input parameter.

        Raises
        ------
        InvalidInput
            If the parameters do not fit the columns of the trace, or names clash.
        """
        _check_parameters(trace, parameters)
        known = tuple(features) or next((p.labels for p in parameters if p.labels is not None), ())
        return Variables(tuple(parameters), _vector_dims(parameters, known, tuple(outputs)))

    def dataset(self, draws: Array) -> Any:
        """One variable per parameter from draws of shape (chains, draws, n_dim)."""
        import xarray as xr

        variables: dict[str, Any] = {}
        coords = sample_coords(draws)
        sizes = np.cumsum([p.size for p in self.parameters], dtype=int)
        blocks = np.split(draws, sizes, axis=2)[:-1]  # the last is empty
        classes = list(dict.fromkeys(p.of_class for p in self.parameters if p.of_class is not None))
        alike = _in_every_class(self.parameters, classes)
        for p, block in zip(self.parameters, blocks, strict=True):
            name, values = p.name.replace("/", "_"), block  # netCDF allows no slash, and a class may be called "a/b"
            axes: tuple[str, ...] = SAMPLE_DIMS
            if p.labels is not None:
                axes = (*axes, self.dims[p.labels])
                coords[self.dims[p.labels]] = np.asarray(p.labels, dtype=str)
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


def parameters_of(names: Sequence[str]) -> list[Parameter]:
    """Parameters by the names of a trace: `length_scale[FL]` and `length_scale[RW]` are one with two components."""

    def owner(name: str) -> tuple[str, bool]:
        return (name.partition("[")[0], True) if name.endswith("]") else (name, False)

    found: list[Parameter] = []
    for (base, is_vector), group in itertools.groupby(names, key=owner):
        members = list(group)
        labels = tuple(name[len(base) + 1 : -1] for name in members) if is_vector else None
        found.append(Parameter(base, len(members), labels, None, base))
    return found


def trace_groups(trace: Trace, variables: Variables) -> dict[str, Any]:
    """Return the draws of a trace, as they are, with their statistics and warm-up."""
    groups = {
        "posterior": variables.dataset(trace.draws),
        "sample_stats": _run_statistics(trace),
        "unconstrained_posterior": variables.dataset(trace.unconstrained),
    }
    if trace.warmup_unconstrained.shape[1] > 0:
        groups["warmup_posterior"] = variables.dataset(trace.warmup_draws)
        groups["warmup_sample_stats"] = _statistics(trace, trace.warmup_stats)
    return groups


def run_groups(run: Trace, variables: Variables) -> dict[str, Any]:
    """Return all draws that were sampled, where `posterior` has others, and their statistics."""
    return {"sampling_posterior": variables.dataset(run.draws), "sampling_sample_stats": _run_statistics(run)}


def container(trace: Trace, *, resample: bool) -> Any:
    """Return a trace as the installed arviz's container (see `Trace.to_arviz`)."""
    resample = resample and trace.log_weight is not None
    variables = Variables.of(trace, parameters_of(trace.names))
    groups = trace_groups(trace.chosen(trace.equal_positions()) if resample else trace, variables)
    groups |= run_groups(trace, variables) if resample else {}
    attrs = attributes(trace) | {"draws_note": describe_run(trace, resampled=resample)}
    with_attributes(groups, attrs)
    return arviz_compat.build_container(groups, attrs)


def attributes(trace: Trace) -> dict[str, Any]:
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


def describe_weights(trace: Trace) -> str:
    """Describe the weights of a trace by their effective number and the shape of their tail."""
    return f"{trace.n_effective:.0f} of {len(trace)} draws effective, Pareto k {trace.pareto_k:.2f}"


def describe_run(trace: Trace, *, resampled: bool) -> str:
    """Describe what `posterior` has of a run."""
    size = f"{trace.n_chains} chains of {trace.n_draws} draws"
    if trace.log_weight is None:
        return f"{size} were sampled. {EQUAL}"
    weights = f"{size} were sampled and carry importance weights ({describe_weights(trace)})."
    return f"{weights} {RESAMPLED} {ALL_SAMPLED}, with log_weight." if resampled else f"{weights} {NOT_RESAMPLED}"


EQUAL = "posterior: these draws, of equal weight."
RESAMPLED = (
    "posterior: as many draws of equal weight, in which draws are left out or repeated according to their weights, "
    "with nearly the same means and quantiles; sample_stats follows these draws, so it is no time series."
)
NOT_RESAMPLED = "posterior: these draws; sample_stats has log_weight, which arviz's own statistics and plots ignore."
ALL_SAMPLED = "sampling_posterior, sampling_sample_stats: all draws that were sampled"


def with_attributes(groups: Mapping[str, Any], common: Mapping[str, Any]) -> None:
    """Set the attributes of every group, `sample_dims` only where there are chains."""
    without_draws = {key: value for key, value in common.items() if key != "sample_dims"}
    for dataset in groups.values():
        dataset.attrs = dict(common if "chain" in dataset.dims else without_draws) | dataset.attrs


def sample_coords(values: NDArray[Any]) -> dict[str, Any]:
    """Return the numbers of chains and draws as coordinates."""
    return {dim: np.arange(size) for dim, size in zip(SAMPLE_DIMS, values.shape, strict=False)}


def _check_parameters(trace: Trace, parameters: Sequence[Parameter]) -> None:
    names, sizes = [p.name for p in parameters], [p.size for p in parameters]
    if sum(sizes) != len(trace.names):
        raise InvalidInput(f"'parameters' must cover the {len(trace.names)} columns of the trace; got sizes {sizes}.")
    clashes = sorted({n for n in names if n in RESERVED or names.count(n) > 1})
    if clashes:
        raise InvalidInput(f"parameters must have different names, other than {RESERVED}; rename {clashes}.")


def _vector_dims(
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


def _without_class(p: Parameter) -> str:
    return p.name if p.of_class is None else p.name.removeprefix(f"{p.of_class}.")


def _in_every_class(parameters: Sequence[Parameter], classes: Sequence[str | None]) -> set[str]:
    """Names of the parameters that each class has for itself, of the same inputs."""
    owners_of: dict[str, list[Parameter]] = {}
    for p in parameters:
        if p.of_class is not None:
            owners_of.setdefault(_without_class(p), []).append(p)
    return {
        name
        for name, owners in owners_of.items()
        if [p.of_class for p in owners] == list(classes) and len({p.labels for p in owners}) == 1
    }


def _run_statistics(trace: Trace) -> Any:
    return _statistics(trace, trace.stats).assign(_metric(trace)).assign(_weights(trace))


def _statistics(trace: Trace, stats: Mapping[str, NDArray[Any]]) -> Any:
    import xarray as xr

    variables: dict[str, Any] = {name: (SAMPLE_DIMS, values) for name, values in stats.items()}
    if trace.sampler == "hmc":
        variables["int_time"] = (SAMPLE_DIMS, stats["step_size"] * stats["n_steps"])
    return xr.Dataset(variables, coords=sample_coords(stats["lp"]))


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
