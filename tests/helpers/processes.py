"""Processes that a test starts."""

from __future__ import annotations

import contextlib
import os
import sys

import pytest


def child_environment(**variables):
    """Environment in which a child imports what its parent can import."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} | variables


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
