"""Maximum and modes of a log density."""

from __future__ import annotations

from hmcgp.optimize.maximum import find_map
from hmcgp.optimize.modes import find_modes

__all__ = ["find_map", "find_modes"]
