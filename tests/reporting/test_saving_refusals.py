"""Files with crafted content or of other versions: refused at load, before they do harm."""

from __future__ import annotations

import copy
import json
import os
import pickle
import zipfile
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import InconsistentVersionWarning

from hmcgp import GPClassifier, GPRegressor, evidence, kernels
from hmcgp.errors import InvalidInput
from hmcgp.reporting.saving import OtherVersionWarning
from hmcgp.runtime.files import library_version
from tests.helpers.saved import KINDS, LABELS, X, find, fit, members, npy, quick, refused, rewrite, shifted


@pytest.fixture(scope="module")
def appended():
    gp = fit(quick(refine=None), X, LABELS)
    return gp.append(X[:3], LABELS[:3])


# -- draws -----------------------------------------------------------------------------------------------------------


def with_nan(a):
    return np.where(np.arange(a.size).reshape(a.shape) == 3, np.nan, a)


DRAWS = {
    "shifted": (shifted, "contradict"),
    "swapped coordinates": (lambda a: a[:, :, ::-1], "contradict"),
    "scaled": (lambda a: a * (1 + 1e-8), "contradict"),
    "nan": (with_nan, "not finite"),
    "too few": (lambda a: a[:, 1:], "wrong shape"),
    "too few chains": (lambda a: a[:1], "wrong shape"),
    "too few parameters": (lambda a: a[:, :, 1:], "wrong shape"),
    "flat": (lambda a: a.ravel(), "no draws"),
    "empty": (lambda a: a[:, :0], "no draws"),
    "integers": (lambda a: a.astype(int), "draws is a ndarray"),
}


@pytest.mark.parametrize("change", DRAWS)
def test_draws_that_are_wrong_although_their_checksum_fits(change, fitted, path):
    content = members(path)
    name = next(n for n, body in content.items() if n.endswith("npy") and body == npy(fitted.trace_.draws))
    content[name] = npy(np.ascontiguousarray(DRAWS[change][0](fitted.trace_.draws)))
    rewrite(path, content)
    refused(path, DRAWS[change][1])


TRACES: dict[str, tuple[dict[str, Any], str]] = {
    "names": ({"names": ["a", "b", "c", "d"]}, "other hyperparameters"),
    "metric": ({"inv_metric": np.ones((2, 3))}, "metric"),
    "no lp": ({"stats": {}}, "statistics"),
    "time": ({"sampling_time": -1.0}, "sampling time"),
    "warm-up": ({"warmup_draws": np.ones((2, 3, 4))}, "contradict"),
    "short statistics": ({"stats": "cut"}, "statistics of the wrong shape"),
    "infinite density": ({"stats": "infinite"}, "log densities"),
}


@pytest.mark.parametrize("change", TRACES)
def test_traces_that_contradict_themselves_are_not_even_saved(change, fitted, tmp_path):
    changes, match = copy.copy(TRACES[change][0]), TRACES[change][1]
    if changes.get("stats") == "cut":
        changes["stats"] = {name: values[:, 1:] for name, values in fitted.trace_.stats.items()}
    if changes.get("stats") == "infinite":
        changes["stats"] = fitted.trace_.stats | {"lp": np.full((2, 4), np.inf)}
    gp = copy.copy(fitted)
    gp.trace_ = replace(fitted.trace_, **changes)
    with pytest.raises(InvalidInput, match=f"cannot be saved: it holds .*{match}"):
        gp.save(tmp_path / "gp")
    assert not os.listdir(tmp_path)


# -- content ---------------------------------------------------------------------------------------------------------


def edited(path, edit):
    content = members(path)
    tree = json.loads(content["content.json"])
    edit(tree)
    content["content.json"] = json.dumps(tree).encode()
    rewrite(path, content)


def estimated(tree, **settings):
    """Put an Iterative with these settings in the place of the Exact."""
    own(tree, "evidence.Exact")[:] = ["evidence.Iterative", {**asdict(evidence.Iterative()), **settings}]


def own(tree, name):
    return find(tree, lambda kind, content: kind == "hmcgp" and content[0] == name)["hmcgp"]


def entries(tree, key):
    """The list of [key, value] that holds a key."""
    return find(tree, lambda kind, content: kind == "dict" and any(k == key for k, _ in content))["dict"]


def set_entry(tree, key, value, beside=None):
    next(pair for pair in entries(tree, beside or key) if pair[0] == key)[1] = value


EDITS = {
    "missing field": (lambda t: own(t, "samplers.Trace")[1].pop("names"), "other fields than it has: names"),
    "unknown field": (lambda t: own(t, "samplers.Trace")[1].update(more=1), "other fields than it has: more"),
    "missing attribute": (lambda t: entries(t, "_inputs").remove(["n_features_in_", 2]), "lacks attributes"),
    "unknown attribute": (lambda t: entries(t, "_inputs").append(["predict", 2]), "not part of a fitted.*predict"),
    "missing parameter": (lambda t: entries(t, "tune").remove(["tune", 4]), "other parameters"),
    "unknown parameter": (lambda t: entries(t, "tune").append(["__class__", 4]), "other parameters"),
    "wrong parameter": (lambda t: set_entry(t, "tune", "four"), "wrong types: tune is a str"),
    "wrong number of inputs": (lambda t: set_entry(t, "n_features_in_", 3), "number of inputs"),
    "bool for a number": (lambda t: set_entry(t, "n_features_in_", True), "n_features_in_ is a bool"),
    "kernel that is a number": (lambda t: set_entry(t, "kernel", 5, beside="input_names"), "kernel is a int"),
    "unknown class": (lambda t: own(t, "samplers.Trace").__setitem__(0, "samplers.Popen"), "damaged"),
    "class of another package": (lambda t: own(t, "samplers.Trace").__setitem__(0, "os.system"), "damaged"),
    "abstract class": (lambda t: t["dict"].append(["x", {"hmcgp": ["kernels.Kernel", {}]}]), "damaged"),
    "bad setting": (lambda t: estimated(t, probes=0), "'probes' of Iterative"),
    "wrong type of setting": (lambda t: estimated(t, probes="9"), "probes is a str"),
    "untrusted class": (
        lambda t: set_entry(t, "kernel", {"trusted": ["os.PathLike", {}]}),
        "os.PathLike, which are not",
    ),
    "untrusted function": (lambda t: set_entry(t, "kernel", {"function": "os.system"}), "uses os.system, which"),
    "ufunc that is none": (lambda t: set_entry(t, "kernel", {"ufunc": "load"}), "damaged"),
    "kind that is none": (lambda t: set_entry(t, "kernel", {"__class__": 1}), "damaged"),
    "two kinds": (lambda t: set_entry(t, "kernel", {"tuple": [], "set": []}), "damaged"),
    "a key twice": (lambda t: entries(t, "tune").append(["tune", 4]), "a key twice"),
    "key that is a list": (lambda t: entries(t, "tune").append([[1], 4]), "damaged"),
    "no estimator": (lambda t: t["dict"].append(["x", 1]), "holds no estimator"),
    "array that is not there": (lambda t: set_entry(t, "kernel", {"array": "../../etc/passwd"}), "damaged"),
    "deep": (lambda t: set_entry(t, "kernel", deep(400)), "nested more than 150 deep"),
}


def deep(n):
    node: Any = 1
    for _ in range(n):
        node = [node]
    return node


@pytest.mark.parametrize("change", EDITS)
def test_content_that_no_estimator_has(change, path):
    edited(path, EDITS[change][0])
    refused(path, EDITS[change][1])


def test_json_that_is_none_or_too_deep(path):
    content = members(path)
    for text, match in (
        (b"[" * 200_000 + b"]" * 200_000, "damaged .RecursionError"),
        (b'{"dict": [], "dict": []}', "JSON with a key twice"),
        (b"[NaN]", "JSON with NaN"),
        (b"[1e999]", "JSON with 1e999"),
        (b"[" + b"9" * 10_000 + b"]", "damaged .ValueError"),
        (b"\xff\xfe[", "damaged"),
        (b"", "damaged"),
    ):
        rewrite(path, content | {"content.json": text})
        refused(path, match)


def test_streams_of_numbers_that_point_beyond_their_arrays(tmp_path):
    """Numpy takes these states, and would read outside its memory."""
    for rng, place in (
        (np.random.Generator(np.random.MT19937(1)), "pos"),
        (np.random.RandomState(1), "pos"),
        (np.random.Generator(np.random.Philox(1)), "buffer_pos"),
    ):
        quick(random_state=rng).save(tmp_path / "gp")
        GPClassifier.load(tmp_path / "gp")
        edited(tmp_path / "gp", lambda tree, place=place: set_entry(tree, place, 10**9))
        refused(tmp_path / "gp", "beyond its end", GPClassifier)


def test_posteriors_of_appended_rows_of_the_wrong_shape(appended, tmp_path):
    path, kept = tmp_path / "gp", next(iter(appended.model_._kept.values()))
    appended.save(path)
    whole = members(path)
    name = next(n for n, body in whole.items() if body == npy(kept.posterior.f))
    for wrong, match in (
        (kept.posterior.f[:4], "a posterior with f of"),
        (np.full(len(kept.posterior.f), np.nan), "finite"),
    ):
        rewrite(path, whole | {name: npy(wrong)})
        refused(path, match, GPClassifier)
    draws = next(n for n, body in whole.items() if body == npy(appended.model_.draws))
    rewrite(path, whole | {draws: npy(appended.model_.draws + 1.0)})
    refused(path, "that are not the draws", GPClassifier)


# -- versions --------------------------------------------------------------------------------------------------------


def with_meta(path, **changes):
    content = members(path)
    meta = json.loads(content["meta.json"])
    for key, value in changes.items():
        meta[key] = meta[key] | value if isinstance(value, dict) else value
    rewrite(path, content | {"meta.json": json.dumps(meta)})


@pytest.mark.parametrize("library", ["hmcgp", "numpy"])
def test_other_versions_are_told(library, path, fitted):
    with_meta(path, versions={library: "0.0.9"})
    with pytest.warns(
        InconsistentVersionWarning, match=rf"GPRegressor was saved with {library} 0\.0\.9 and is"
    ) as caught:
        again = GPRegressor.load(path)
    assert [w.category for w in caught] == [OtherVersionWarning]
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    with_meta(path, versions={library: library_version(library), "python": "2.7", "scipy": "0.1"})
    GPRegressor.load(path)  # without a word: warnings are errors here


def test_formats(path):
    with_meta(path, format_version=3, versions={"hmcgp": "9.1"})
    refused(path, r"has format 3, written by hmcgp 9\.1.*reads 2\. Upgrade hmcgp")
    for wrong in (0, "2", True, 2.0, None):
        with_meta(path, format_version=wrong)
        refused(path, "which format")


def test_the_pickles_of_format_1_are_not_opened(tmp_path):
    class Dangerous:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    path = tmp_path / "old"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.json", json.dumps({"format": "hmcgp-estimator", "format_version": 1, "versions": {}}))
        archive.writestr("estimator.pickle", pickle.dumps(Dangerous()))
    refused(path, "has format 1, of hmcgp 0.1: a pickle.*save it again here: pickle.loads")
    assert not (tmp_path / "executed").exists()


# -- saving ----------------------------------------------------------------------------------------------------------


class Holder:
    """A function of the user's own, with whatever is put into it."""

    def __init__(self, content):
        self.content = content

    def __call__(self, X):
        return X


def warped(content):
    return kernels.Warped(kernels.SquaredExponential(), Holder(content))


def test_what_cannot_be_read_again_is_not_saved(fitted, tmp_path):
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    unseeded = np.random.Generator(np.random.RandomState(1)._bit_generator)
    for settings, match in (
        ({"kernel": warped(cyclic)}, "nested more than 150 deep"),
        ({"kernel": warped(1 + 2j)}, r"kernel\.warp\.content, a complex, which cannot be written: \(1"),
        ({"kernel": warped(np.array([1 + 2j]))}, "complex128"),
        ({"kernel": warped(X)}, "a DataFrame, which cannot be written"),
        ({"kernel": warped(open)}, "a builtin_function_or_method, which cannot"),
        ({"class_weight": {"a": "much"}}, r"wrong types: class_weight is a dict \({'a': 'much'}\)"),
        ({"draws": "many"}, "wrong types: draws is a str"),
        ({"random_state": unseeded}, "Set 'random_state' to an integer"),
    ):
        with pytest.raises(InvalidInput, match=match):
            quick(**settings).save(tmp_path / "gp")
    gp = copy.copy(fitted)
    gp.my_note = 3
    with pytest.raises(InvalidInput, match="attributes that are not part of a fitted estimator: my_note"):
        gp.save(tmp_path / "gp")
    assert not os.listdir(tmp_path)


def test_a_failed_save_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def full(*args, **options):
        raise OSError("disk full")

    monkeypatch.setattr("hmcgp.reporting.saving.npy.write_array", full)
    with pytest.raises(OSError, match="disk full"):
        KINDS["regression"]().save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["gp"]
