"""Settings that error messages and warnings name exist, with the values that they name."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hmcgp
from hmcgp import GPClassifier, GPCounts, GPOrdinal, GPRegressor, evidence, kernels, likelihoods, plots, samplers
from hmcgp.errors import NotConverged
from hmcgp.estimators.settings import ESTIMATOR_SAMPLERS
from hmcgp.likelihoods import Gaussian
from hmcgp.model.compatibility import LIKELIHOODS, PROVIDERS

PACKAGE = Path(hmcgp.__file__).parent
ESTIMATORS = (GPClassifier, GPCounts, GPOrdinal, GPRegressor)
FUNCTIONS = [hmcgp.find_map, hmcgp.find_modes, hmcgp.sample, hmcgp.sample_jointly, hmcgp.compare, *vars(plots).values()]
CLASSES = {
    name: value
    for module in (hmcgp, evidence, kernels, likelihoods, samplers)
    for name, value in vars(module).items()
    if inspect.isclass(value)
}
SETTING = re.compile(r"\b([a-z_]+)='([\w-]+)'")
REGISTRIES = {"evidence": set(PROVIDERS), "likelihood": set(LIKELIHOODS), "sampler": set(ESTIMATOR_SAMPLERS)}
FORMER = {("solver", "iterative")}  # named in order to say what replaces it


def messages() -> list[tuple[str, str]]:
    """Place and text of every string of the package that names a setting with a value, docstrings excepted."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise | ast.Call):
                found += [(f"{path.relative_to(PACKAGE)}:{node.lineno}", text) for text in strings(node)]
    return sorted({(place, text) for place, text in found if SETTING.search(text)})


def strings(node: ast.AST) -> list[str]:
    """Strings within a statement or call, with {} for what f-strings insert."""
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)]
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    return [text for part in ast.iter_child_nodes(node) for text in strings(part)]


def owners(text: str) -> list[Any]:
    """Callables whose settings a message may name: estimators and their methods, functions, classes in the text."""
    methods = [m for estimator in ESTIMATORS for _, m in inspect.getmembers(estimator, inspect.isfunction)]
    named = [CLASSES[word] for word in re.findall(r"[A-Z]\w+", text) if word in CLASSES]
    if "label noise" in text.lower():
        named.append(likelihoods.LabelNoise)
    return [*ESTIMATORS, *methods, *filter(callable, FUNCTIONS), *named]


def unknown_settings(text: str) -> list[str]:
    """Settings of a message that no callable has, or whose value is neither registered nor documented."""
    unknown = []
    for name, value in SETTING.findall(text):
        having = [o for o in owners(text) if name in inspect.signature(o).parameters]
        documented = "".join(
            options for o in having for options in re.findall(rf"\b{name} : (.*)", inspect.getdoc(o) or "")
        )
        accepted = REGISTRIES.get(name, set(re.findall(r'"([\w-]+)"', documented)))
        if not having or (value not in accepted and (name, value) not in FORMER):
            unknown.append(f"{name}='{value}'")
    return unknown


@pytest.mark.parametrize(("place", "text"), messages(), ids=lambda part: part if "/" in part[:30] else "")
def test_settings_named_in_messages_exist(place, text):
    assert unknown_settings(text) == [], place


def test_an_absent_setting_is_found():
    text = "Iterative: residual {} > tol {}; raise rank or max_products, or use solver='cholesky'."
    assert unknown_settings(text) == ["solver='cholesky'"]
    assert unknown_settings("take evidence='choleski'") == ["evidence='choleski'"]


def test_the_advice_of_the_iterative_solver_works():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    K, y = kernels.SquaredExponential(1.0, 0.3)(X), rng.normal(size=60)
    with pytest.raises(NotConverged, match="evidence='exact'"):
        evidence.Iterative(rank=5, max_products=2)(K, y, Gaussian(1e-3))
    assert np.isfinite(PROVIDERS["exact"]()(K, y, Gaussian(1e-3)).log_z)
    assert np.isfinite(evidence.Iterative(rank=60, max_products=200)(K, y, Gaussian(1e-3)).log_z)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_say_in_which_units_kernels_are_written(estimator):
    entry = re.search(r"\nkernel : .*?(?=\n\w)", inspect.getdoc(estimator) or "", re.DOTALL)
    assert entry
    assert "in the units of the inputs" in " ".join(entry[0].split())


def test_texts_that_mean_all_estimators_name_all():
    both = re.compile(r"GPClassifier`*,? (?:and|or) `*GPRegressor|GPRegressor`*,? (?:and|or) `*GPClassifier")
    root = PACKAGE.parent
    pages = [root / "README.md", *root.glob("scripts/*.md"), *root.glob("scripts/docs/*.md"), PACKAGE / "README.md"]
    for path in [*PACKAGE.rglob("*.py"), *filter(Path.is_file, pages)]:
        assert not both.search(path.read_text(encoding="utf-8")), path
