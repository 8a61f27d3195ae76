"""Pages of the reference: public names (`__all__` of each module), and the classes that public functions return."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

from sklearn.base import BaseEstimator

MODULES = {
    "hmcgp": "Estimators and functions",
    "hmcgp.kernels": "Kernels",
    "hmcgp.likelihoods": "Likelihoods",
    "hmcgp.priors": "Priors",
    "hmcgp.evidence": "Evidence",
    "hmcgp.samplers": "Samplers",
    "hmcgp.plots": "Plots",
    "hmcgp.datasets": "Data sets",
    "hmcgp.diagnostics": "Diagnostics",
    "hmcgp.predict": "Predictions from a model and draws",
    "hmcgp.leave_one_out": "Leave-one-out predictions",
    "hmcgp.marginal_evidence": "Marginal evidence",
    "hmcgp.evidence_bounds": "Bounds on the evidence",
    "hmcgp.label_noise": "Label noise",
    "hmcgp.errors": "Errors and warnings",
}
OF_SKLEARN = "get_metadata_routing, set_fit_request, set_predict_request, set_score_request, score"


def write_reference(folder: Path) -> list[Path]:
    """Write a page for each module, and one that lists them; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {name.replace(".", "_"): page(name, title) for name, title in MODULES.items()}
    pages["results"] = results_page()
    listing = "\n".join(f"   {name}" for name in pages)
    pages["index"] = f"{heading('Reference', '=')}\n.. toctree::\n   :maxdepth: 2\n\n{listing}\n"
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # an unchanged page is not built again
            path.write_text(text, encoding="utf-8")
    return [folder / f"{name}.rst" for name in pages]


def page(name: str, title: str) -> str:
    """Page of one module: its docstring, its classes, its functions."""
    module = module_of(name)
    members = public(module)
    parts = [heading(title, "="), f"``{name}``\n", paragraph(module)]
    for kind, wanted in (("Classes", inspect.isclass), ("Functions", inspect.isroutine)):
        found = [member for member in members if wanted(getattr(module, member))]
        if found:
            parts += [heading(kind, "-"), *(entry(name, member, kind) for member in found)]
    return "\n".join(parts)


def results_page() -> str:
    """Page of the classes that public functions, methods and fitted attributes hold, and that no other page has."""
    parts = [heading("Results", "="), "Classes of what functions, methods and fitted attributes return.\n"]
    for kind in result_classes():
        parts.append(f".. autoclass:: {kind.__module__}.{kind.__qualname__}\n   :members:\n")
    return "\n".join(parts)


def result_classes() -> list[type[Any]]:
    """Classes of this package that public names return or hold, directly or through such classes, sorted by name."""
    members = (getattr(module_of(name), member) for name in MODULES for member in public(module_of(name)))
    waiting = [member for member in members if inspect.isclass(member) or inspect.isroutine(member)]
    seen, found = set(waiting), []
    while waiting:
        for kind in returned(waiting.pop()):
            if kind not in seen:
                seen.add(kind)
                waiting.append(kind)
                found.append(kind)
    return sorted(found, key=lambda kind: kind.__name__)


def returned(thing: Any) -> set[type[Any]]:
    """Public classes of this package in the annotations of results: of a function, or of a class's public parts."""
    if not inspect.isclass(thing):
        return {kind for kind in own_classes(hints(thing).get("return")) if not is_estimator(kind)}
    names = [name for name in dir(thing) if not name.startswith("_")]
    parts = [getattr(inspect.getattr_static(thing, n), "fget", None) or getattr(thing, n, None) for n in names]
    methods = (hints(part).get("return") for part in parts if inspect.isroutine(part))
    attributes = (hint for name, hint in hints(thing).items() if not name.startswith("_"))
    return {kind for hint in (*methods, *attributes) for kind in own_classes(hint) if not is_estimator(kind)}


def hints(thing: Any) -> dict[str, Any]:
    """Annotations of a function or class; none where a name in them is unknown when the program runs."""
    try:
        return get_type_hints(thing)
    except (NameError, TypeError):
        return {}


def own_classes(hint: Any) -> Iterator[type[Any]]:
    """Public classes of this package within an annotation."""
    if inspect.isclass(hint) and hint.__module__.startswith("hmcgp.") and not hint.__name__.startswith("_"):
        yield hint
    for part in get_args(hint):
        yield from own_classes(part)


def module_of(name: str) -> ModuleType:
    """Module by the name that users know it by, `hmcgp.diagnostics` as well."""
    package, _, rest = name.partition(".")
    found: Any = importlib.import_module(package)
    return getattr(found, rest) if rest else found


def public(module: ModuleType) -> list[str]:
    """Names that a module calls public, without modules; of one that does not say, its own classes and functions."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    names = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    return [name for name in names if not inspect.ismodule(getattr(module, name))]


def paragraph(module: ModuleType) -> str:
    """First sentence of the docstring of a module."""
    return (inspect.getdoc(module) or "").split("\n\n")[0].replace("\n", " ") + "\n"


def entry(module: str, name: str, kind: str) -> str:
    """Directive that documents one name."""
    if kind == "Functions":
        return f".. autofunction:: {module}.{name}\n"
    options = "   :members:\n"
    if is_estimator(getattr(module_of(module), name)):  # whose methods come from its bases
        options += f"   :inherited-members: BaseEstimator\n   :exclude-members: {OF_SKLEARN}\n"
    return f".. autoclass:: {module}.{name}\n{options}"


def is_estimator(kind: type[Any]) -> bool:
    """Tell an estimator, or a base class of them, from other classes."""
    return issubclass(kind, BaseEstimator)


def heading(text: str, line: str) -> str:
    """Heading of a page or a section."""
    return f"{text}\n{line * len(text)}\n"
