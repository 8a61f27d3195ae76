"""Export: the arviz container on both versions, and netCDF."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hmcgp.errors import InvalidInput
from hmcgp.kernels.base import Parameter
from hmcgp.reporting.arviz_export import build_tree
from hmcgp.runtime import arviz_compat
from hmcgp.samplers.trace import STAT_DTYPE, Trace

FEATURES = ("FL", "RW", "größe")
PARAMETERS = [
    Parameter("left.variance", 1, None, None, "variance"),
    Parameter("left.length_scale", 3, FEATURES, None, "length_scale"),
    Parameter("right.length_scale", 2, ("FL", "größe"), None, "length_scale"),
]
NAMES = [name for p in PARAMETERS for name in p.flat_names]
X = np.random.default_rng(1).normal(size=(7, 3))
Y = np.array(["no", "yes", "no", "no", "yes", "ja", "no"])
GROUPS = {"posterior", "sample_stats", "unconstrained_posterior", "observed_data", "constant_data"}
WARMUP = {"warmup_posterior", "warmup_sample_stats"}


def make_stats(rng, chains, draws):
    stats = {name: rng.normal(size=(chains, draws)).astype(STAT_DTYPE[name]) for name in STAT_DTYPE.names}
    stats["diverging"] = rng.random((chains, draws)) < 0.5
    stats["n_steps"] = rng.integers(1, 20, size=(chains, draws))
    stats["energy_error"][0, 0] = np.inf  # a failed trajectory
    return stats


def make_trace(*, chains=2, draws=5, tune=4, sampler="hmc", dense=False):
    rng = np.random.default_rng(0)
    u, warm = rng.normal(size=(chains, draws, 6)), rng.normal(size=(chains, tune, 6))
    return Trace(
        draws=np.exp(u),
        unconstrained=u,
        stats=make_stats(rng, chains, draws),
        names=NAMES,
        sampler=sampler,
        sampling_time=1.5,
        interrupted=False,
        warmup_draws=np.exp(warm),
        warmup_unconstrained=warm,
        warmup_stats=make_stats(rng, chains, tune) if tune else {n: np.zeros((chains, 0)) for n in STAT_DTYPE.names},
        inv_metric=rng.random((chains, 6, 6) if dense else (chains, 6)),
    )


def group_names(tree):
    return set(tree.children) if arviz_compat.major() >= 1 else set(tree.groups())


def full_tree(trace):
    return build_tree(
        trace,
        PARAMETERS,
        observed_data={"y": Y},
        constant_data={"X": X},
        features=FEATURES,
        log_likelihood={"y": np.random.default_rng(2).normal(size=(2, 5, 7))},
        attrs={"kernel": "SE + SE", "settings": {"n": np.arange(3), "none": None}, "flag": True, "tags": ["a"]},
    )


def check_contents(tree, trace):
    """Hold every group of `tree` against the trace it was built from."""
    assert group_names(tree) == GROUPS | WARMUP | {"log_likelihood"}
    for group, draws in (
        ("posterior", trace.draws),
        ("unconstrained_posterior", trace.unconstrained),
        ("warmup_posterior", trace.warmup_draws),
    ):
        data = tree[group]
        assert data["left.variance"].dims == ("chain", "draw")
        assert data["left.length_scale"].dims == ("chain", "draw", "feature")
        assert data["right.length_scale"].dims == ("chain", "draw", "feature_1")
        assert data["left.length_scale"].coords["feature"].values.tolist() == list(FEATURES)
        assert data["right.length_scale"].coords["feature_1"].values.tolist() == ["FL", "größe"]
        assert data["left.variance"].coords["draw"].values.tolist() == list(range(draws.shape[1]))
        np.testing.assert_array_equal(data["left.variance"], draws[:, :, 0])
        np.testing.assert_array_equal(data["left.length_scale"], draws[:, :, 1:4])
        np.testing.assert_array_equal(data["right.length_scale"], draws[:, :, 4:])
        assert data["left.variance"].dtype == np.float64
    for group, stats in (("sample_stats", trace.stats), ("warmup_sample_stats", trace.warmup_stats)):
        for name, values in stats.items():
            assert tree[group][name].dtype == STAT_DTYPE[name], name
            np.testing.assert_array_equal(tree[group][name], values)
        np.testing.assert_array_equal(tree[group]["int_time"], stats["step_size"] * stats["n_steps"])
    metric = tree["sample_stats"]["inv_metric"]
    assert metric.dims == ("chain", "parameter")
    assert metric.coords["parameter"].values.tolist() == NAMES
    np.testing.assert_array_equal(metric, trace.inv_metric)
    assert tree["observed_data"]["y"].values.tolist() == Y.tolist()
    assert tree["constant_data"]["X"].dims == ("obs_id", "feature")
    assert tree["constant_data"]["X"].coords["feature"].values.tolist() == list(FEATURES)
    np.testing.assert_array_equal(tree["constant_data"]["X"], X)
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "obs_id")


def check_attributes(tree):
    for holder in (tree, tree["posterior"], tree["sample_stats"], tree["observed_data"]):
        assert holder.attrs["inference_library"] == "hmcgp"
        assert holder.attrs["sampling_time"] == 1.5
        assert holder.attrs["interrupted"] == 0
        assert isinstance(holder.attrs["inference_library_version"], str)
        assert pd.Timestamp(holder.attrs["created_at"]).tzinfo is not None
    assert list(tree["posterior"].attrs["sample_dims"]) == ["chain", "draw"]
    assert "sample_dims" not in tree["observed_data"].attrs
    assert tree.attrs["kernel"] == "SE + SE"
    assert json.loads(tree.attrs["settings"]) == {"n": [0, 1, 2], "none": None}
    assert json.loads(tree.attrs["tags"]) == ["a"]
    assert tree.attrs["flag"] == 1


def test_the_container_is_arvizs_own():
    tree = full_tree(make_trace())
    assert type(tree).__name__ == ("DataTree" if arviz_compat.major() >= 1 else "InferenceData")
    check_contents(tree, make_trace())
    check_attributes(tree)


def loaded(path):
    """Read by arviz's own function, into memory, so that the file can be written again."""
    tree = arviz_compat.import_arviz().from_netcdf(path)
    loaded = tree.load() or tree  # arviz 0.2x loads in place and returns None
    tree.close()
    return loaded


def test_netcdf_round_trip(tmp_path):
    trace, path = make_trace(), tmp_path / "run.nc"
    full_tree(trace).to_netcdf(path)
    tree = loaded(path)
    path.unlink()  # everything is in memory
    check_contents(tree, trace)
    check_attributes(tree)
    tree.to_netcdf(path)  # what was read can be written
    check_contents(loaded(path), trace)
    build_tree(trace, PARAMETERS).to_netcdf(path)
    assert "observed_data" not in group_names(loaded(path))


def test_arviz_reads_what_we_built():
    az = arviz_compat.import_arviz()
    tree = full_tree(make_trace(draws=200))
    assert list(az.summary(tree).index) == NAMES


def test_groups_that_were_not_given_are_absent():
    tree = build_tree(make_trace(tune=0), PARAMETERS)
    assert group_names(tree) == {"posterior", "sample_stats", "unconstrained_posterior"}


@pytest.mark.parametrize("sampler", ["metropolis", "map"])
def test_statistics_follow_the_sampler(sampler):
    stats = build_tree(make_trace(sampler=sampler), PARAMETERS)["sample_stats"]
    assert "int_time" not in stats
    assert "inv_metric" not in stats
    dense = build_tree(make_trace(dense=True), PARAMETERS)["sample_stats"]["inv_metric"]
    assert dense.dims == ("chain", "parameter", "parameter_bis")
    np.testing.assert_array_equal(dense, make_trace(dense=True).inv_metric)


def test_names_of_inputs_as_objects_and_text_as_objects():
    data: dict[str, Any] = {"observed_data": {"y": pd.Series(Y, dtype=object)}, "constant_data": {"X": X}}
    tree = build_tree(make_trace(), PARAMETERS, features=np.array(FEATURES, object), **data)
    assert group_names(tree) == GROUPS | WARMUP
    assert tree["constant_data"]["X"].coords["feature"].values.tolist() == list(FEATURES)
    assert tree["posterior"]["left.length_scale"].dims[-1] == "feature"
    assert tree["observed_data"]["y"].dtype.kind == "U"


@pytest.mark.parametrize("table", [X, pd.DataFrame(X, columns=["a", "b", "c"])])
def test_inputs_without_known_names(table):
    """The names of X are never guessed from a parameter, whose inputs may be in another order."""
    tree = build_tree(make_trace(), PARAMETERS, constant_data={"X": table})
    expected = list(getattr(table, "columns", ["x0", "x1", "x2"]))
    assert tree["constant_data"]["X"].coords["feature"].values.tolist() == expected
    posterior = tree["posterior"]
    assert posterior["left.length_scale"].dims[-1] == "feature_1"
    assert posterior["right.length_scale"].dims[-1] == "feature_2"


def test_a_dimension_avoids_the_names_of_parameters():
    renamed = [PARAMETERS[0]._replace(name="feature_1"), *PARAMETERS[1:]]
    posterior = build_tree(make_trace(), renamed)["posterior"]
    assert posterior["right.length_scale"].dims[-1] == "feature_2"
    assert posterior["feature_1"].dims == ("chain", "draw")


def test_a_vector_without_labels_gets_a_numbered_dimension():
    bare = [*PARAMETERS[:2], PARAMETERS[2]._replace(labels=None)]
    found = build_tree(make_trace(), bare)["posterior"]["right.length_scale"]
    assert found.dims[-1] == "right.length_scale_dim_0"
    np.testing.assert_array_equal(found, make_trace().draws[:, :, 4:])


@pytest.mark.parametrize("name", ["chain", "feature", "left.length_scale"])
def test_clashing_names_are_refused(name):
    with pytest.raises(InvalidInput, match=name):
        build_tree(make_trace(), [PARAMETERS[0]._replace(name=name), *PARAMETERS[1:]])


def test_parameters_must_cover_the_trace():
    with pytest.raises(InvalidInput, match=r"cover the 6 columns.*\[1, 3\]"):
        build_tree(make_trace(), PARAMETERS[:2])
