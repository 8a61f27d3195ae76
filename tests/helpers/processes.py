"""Processes that a test starts."""

from __future__ import annotations

import os
import sys


def child_environment(**variables):
    """Environment in which a child imports what its parent can import."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} | variables
