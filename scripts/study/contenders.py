"""All contenders by name, those that share a fit together, in the order in which they are run."""

from __future__ import annotations

from scripts.study import gaussian_processes, others
from scripts.study.forecast import Family

_ALL: dict[tuple[str, ...], Family] = {**others.families(), **gaussian_processes.families()}


def _place(family: tuple[str, ...]) -> int:
    """Cheap ones first, then what is to be compared, then what is dear: HMC under EP, and searches."""
    name = family[-1]
    order = ("map/", "default/", "tuned", "ep/")
    return next((i for i, part in enumerate(order, 1) if part in name), 0)


FAMILIES: dict[tuple[str, ...], Family] = {family: _ALL[family] for family in sorted(_ALL, key=_place)}
NAMES = tuple(name for names in FAMILIES for name in names)
QUICK = ("logistic", "knn", "gpc", "map/smooth", "laplace/smooth", "default/smooth")  # of the reduced run
