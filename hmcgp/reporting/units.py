"""Hyperparameters in the units of the user's table, or of standardised inputs and targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hmcgp.runtime.checks import name_among
from hmcgp.runtime.typing import Array
from hmcgp.samplers.trace import Trace

if TYPE_CHECKING:
    from hmcgp.kernels.base import Parameter

STANDARDIZED, INPUT = "standardized", "input"


def factors(parameters: Sequence[Parameter], units: str) -> Array:
    """Factors that take hyperparameters of a model to these units, of shape (p,).

    1 for one that inputs of different units share: it exists for standardised inputs only.
    """
    name_among("units", units, (STANDARDIZED, INPUT))
    parts = [np.broadcast_to(1.0 if p.unit is None or units == STANDARDIZED else p.unit, p.size) for p in parameters]
    return np.concatenate([np.empty(0), *parts])


def labels(parameters: Sequence[Parameter], units: str) -> list[str]:
    """Units of each value: "standardized", "input", or "any" where both are the same."""
    found: list[str] = []
    for p in parameters:
        own = STANDARDIZED if p.unit is None else units
        values = np.broadcast_to(np.nan if p.unit is None else np.asarray(p.unit, dtype=float), p.size)
        found += ["any" if value == 1.0 else own for value in values]
    return found


def in_units(trace: Trace, parameters: Sequence[Parameter], units: str) -> Trace:
    """Draws in these units; unconstrained coordinates stay as they are."""
    scale = factors(parameters, units)
    return replace(trace, draws=trace.draws * scale, warmup_draws=trace.warmup_draws * scale)
