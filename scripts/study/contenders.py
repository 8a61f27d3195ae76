"""All contenders by name, those that share a fit together, in the order in which they are run."""

from __future__ import annotations

from scripts.study import gaussian_processes, others
from scripts.study.forecast import Family

FAMILIES: dict[tuple[str, ...], Family] = {**others.families(), **gaussian_processes.families()}
NAMES = tuple(name for names in FAMILIES for name in names)
QUICK = ("logistic", "knn", "gpc", "map/se", "laplace/se", "default/se")  # of the reduced run
