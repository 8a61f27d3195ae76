"""The pages of the reference, made of what the package calls public: `__all__` of each module."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

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
    "hmcgp.errors": "Errors and warnings",
}
OF_SKLEARN = "get_metadata_routing, set_fit_request, set_predict_request, set_score_request, score"


def write_reference(folder: Path) -> list[Path]:
    """Write a page for each module, and one that lists them; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {name.replace(".", "_"): page(name, title) for name, title in MODULES.items()}
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
    if issubclass(getattr(module_of(module), name), BaseEstimator):  # whose methods come from its bases
        options += f"   :inherited-members: BaseEstimator\n   :exclude-members: {OF_SKLEARN}\n"
    return f".. autoclass:: {module}.{name}\n{options}"


def heading(text: str, line: str) -> str:
    """Heading of a page or a section."""
    return f"{text}\n{line * len(text)}\n"
