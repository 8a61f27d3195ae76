"""Which arviz is installed is decided in one place, and its notices do not reach users."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hmcgp.runtime import arviz_compat
from tests.helpers.processes import child_environment, empty_home

EXPORT = """
import numpy as np
from hmcgp import GPRegressor

X = np.linspace(0.0, 1.0, 8)[:, None]
gp = GPRegressor(sampler="map", random_state=0, progressbar=False).fit(X, np.sin(6.0 * X[:, 0]))
assert "posterior" in str(gp.to_arviz())
"""


def run_with_empty_home(code, folder):
    """Run code in a new process whose home is empty and whose FutureWarnings are errors."""
    command = [sys.executable, "-W", "error::FutureWarning", "-c", code]
    environment = child_environment(**empty_home(folder))
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, encoding="utf-8")


def test_an_export_does_not_show_the_daily_notice_of_arviz(tmp_path):
    """arviz 0.23 gives it once a day, by a file in the user's cache: an empty cache makes it due."""
    done = run_with_empty_home(EXPORT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(arviz_compat.major() >= 1, reason="arviz 1 has no daily notice")
def test_the_daily_notice_is_due_in_an_empty_home(tmp_path):
    """Negative control: without our import of arviz, the same process fails."""
    done = run_with_empty_home("import arviz", tmp_path)
    assert done.returncode == 1
    assert "ArviZ is undergoing a major refactor" in done.stderr
