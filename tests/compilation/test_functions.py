"""The list of compiled functions: it names functions that exist, and they can be compiled ahead."""

from __future__ import annotations

import os
import sys

import numba
import pytest
from numba import types

from hmcgp import likelihoods
from hmcgp.compilation import ahead, compile_functions, compiled_functions, fit_names
from hmcgp.compilation.functions import CompiledFunction, functions_of, numba_type
from hmcgp.estimators.base import compilation_name
from hmcgp.numerics.compiled import compiled

FUNCTIONS = compiled_functions()


def test_all_kinds_of_fits_are_listed():
    names = ("logistic", "softmax", "gaussian", "student_t", "poisson", "negative_binomial", "binomial", "ordinal")
    inducing = {f"{name}-inducing" for name in ("logistic", "softmax", "gaussian", "student_t", "poisson", "ordinal")}
    assert {*names, *inducing} <= set(fit_names())


@pytest.mark.parametrize("name", sorted({(f.module, f.name) for f in FUNCTIONS}), ids=":".join)
def test_listed_functions_exist(name):
    for function in FUNCTIONS:
        if (function.module, function.name) == name:
            assert len(function.arguments) == function.dispatcher().py_func.__code__.co_argcount
            assert tuple(map(str, function.signature())) == function.arguments


def test_long_ones_come_first():
    seconds = [function.seconds for function in FUNCTIONS]
    assert seconds == sorted(seconds, reverse=True)


@pytest.mark.parametrize(
    "kind",
    [
        types.float64,
        types.int64,
        types.boolean,
        types.none,
        types.Omitted(1.0),
        types.Omitted(None),
        types.Array(types.float32, 2, "F"),
        types.Array(types.float64, 1, "A", readonly=True),
        types.Array(types.boolean, 1, "C"),
    ],
    ids=str,
)
def test_types_are_read_as_numba_prints_them(kind):
    assert numba_type(str(kind)) == kind


@pytest.mark.parametrize(
    ("likelihood", "inducing", "n", "name"),
    [
        (likelihoods.Logistic(), "auto", 100, "logistic"),
        (likelihoods.StudentT(), "auto", 100, "student_t"),
        (likelihoods.NegativeBinomial(), None, 5000, "negative_binomial"),
        (likelihoods.Gaussian(), "auto", 5000, "gaussian-inducing"),
        (likelihoods.Ordinal(("a", "b", "c")), 50, 100, "ordinal-inducing"),
    ],
)
def test_a_fit_is_named_after_its_likelihood(likelihood, inducing, n, name):
    from types import SimpleNamespace

    model = SimpleNamespace(likelihood=likelihood, X=[0.0] * n)
    assert compilation_name(SimpleNamespace(inducing=inducing), model) == name


@pytest.fixture
def two_functions(tmp_path, monkeypatch):
    """A list with two functions, of a module that other processes can import."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "compiled_ahead.py").write_text(
        "from hmcgp.numerics.compiled import compiled\n\n"
        "@compiled\ndef double(x):\n    return 2.0 * x\n\n"
        "@compiled\ndef triple(x):\n    return 3.0 * x\n",
        encoding="utf-8",
    )
    functions = [CompiledFunction("compiled_ahead", name, ("float64",), (), 0.1) for name in ("double", "triple")]
    monkeypatch.setattr(ahead, "functions_of", lambda fits: functions)
    yield functions
    sys.modules.pop("compiled_ahead", None)


def test_functions_are_compiled_in_other_processes_once(two_functions):
    first = compile_functions(n_jobs=2)
    assert (first.n_compiled, first.n_total) == (2, 2)
    assert str(first).startswith("compiled 2 functions; 0 were compiled before")
    assert compile_functions(n_jobs=2).n_compiled == 0
    for function in two_functions:
        assert not function.dispatcher().overloads  # compiled elsewhere
        assert function.is_compiled()
        assert not function.compile()


def test_functions_are_chosen_by_fit():
    assert functions_of(fit_names()) == list(FUNCTIONS)
    fit, all_of_it = functions_of(["ordinal"], predictions=False), functions_of(["ordinal"])
    assert 0 < len(fit) < len(all_of_it) < len(FUNCTIONS)
    assert all("ordinal" in function.fits for function in fit)
    assert functions_of([]) == []


def test_the_decorator_keeps_the_name():
    @compiled
    def named(x):
        """Documentation."""
        return x

    assert (named.__name__, named.__doc__) == ("named", "Documentation.")
