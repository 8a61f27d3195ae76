"""Processes that a test starts."""

from __future__ import annotations

import contextlib
import os
import sys

import pytest


def child_environment(**variables):
    """Environment in which a child imports what its parent can import."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} | variables


def empty_home(folder):
    """Variables that make `folder`, an empty one, the home of a child, with every cache but that of numba below it."""
    home = folder / "home"
    home.mkdir()
    # platformdirs and matplotlib look at these before they look at HOME
    inside = {"XDG_CACHE_HOME": ".cache", "XDG_CONFIG_HOME": ".config", "XDG_DATA_HOME": ".local/share"}
    variables = {name: str(home / below) for name, below in inside.items()}
    return {"HOME": str(home), "MPLCONFIGDIR": str(home / ".config" / "matplotlib"), **variables}


@contextlib.contextmanager
def two_workers():
    """A Dask cluster of two worker processes, and whatever takes their place, that see what we see."""
    distributed = pytest.importorskip("distributed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
        with (
            distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as local,
            distributed.Client(local) as client,
        ):
            yield client
