"""Memory that evaluations free stays with the process."""

import os
import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource
import numpy as np
from hmcgp.runtime.memory import WorkSpace, keep_work_space

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        K, L = np.empty(380_000), np.empty(380_000)  # of 3 MB: from 4 MB on, numpy asks for large pages
        K[:] = L[:] = 1.0
        del K, L
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10

before = faults()
keep_work_space(WorkSpace(6_080_000, "two arrays", str))
faults()
print(before, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_work_space_is_not_mapped_anew() -> None:
    """Without `keep_work_space` each of the pages, of which there are 1484, is mapped in every evaluation."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(
        [sys.executable, "-c", _FAULTS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        encoding="utf-8",
    )
    before, after = map(float, found.stdout.split())
    if before < 500:
        pytest.skip("the system maps large pages, or keeps the memory anyway")
    assert after < 20
