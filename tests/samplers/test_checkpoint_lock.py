"""A checkpoint is used by one run at a time, for as long as that run lives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from hmcgp.errors import CheckpointWarning, InvalidInput
from hmcgp.samplers import sample
from hmcgp.samplers.chains import checkpoint as checkpoint_module
from tests.helpers.checkpoints import QUICK, assert_same, interrupt
from tests.helpers.densities import Gaussian, correlated_gaussian
from tests.helpers.processes import child_environment


class Counted(Gaussian):
    """Counts its evaluations."""

    def __init__(self):
        plain = correlated_gaussian()
        super().__init__(plain.mean, plain.covariance)
        self.count = 0

    def evaluate(self, u, carry=None, gradient=True):
        self.count += 1
        return super().evaluate(u, carry)


def test_a_run_within_a_run_is_refused(tmp_path):
    options = QUICK | {"checkpoint": tmp_path / "run.nc", "n_jobs": 1}

    class Nested(Gaussian):
        refused = 0

        def evaluate(self, u, carry=None, gradient=True):
            if not self.refused:
                self.refused = 1
                with pytest.raises(InvalidInput, match=rf"in use by another run in this process \({os.getpid()}\)"):
                    sample(correlated_gaussian(), "hmc", **options)
            return super().evaluate(u, carry)

    plain = correlated_gaussian()
    nested = Nested(plain.mean, plain.covariance)
    assert_same(sample(nested, "hmc", **options), sample(correlated_gaussian(), "hmc", **QUICK))
    assert nested.refused


@pytest.mark.parametrize("event", ["another run", "interrupted before it began", "damaged"])
def test_a_run_that_does_not_begin_releases_its_checkpoint(tmp_path, monkeypatch, event):
    path = tmp_path / "run.nc"
    interrupt(500, "hmc", checkpoint=path, **QUICK)
    content = path.read_bytes()
    error: pytest.ExceptionInfo[BaseException]
    held = []  # what an interactive session keeps of an error, frames and all
    if event == "another run":
        with pytest.raises(InvalidInput, match="random_state is another") as error:
            sample(correlated_gaussian(), "hmc", checkpoint=path, **(QUICK | {"random_state": 9}))
    elif event == "damaged":
        path.write_bytes(content[:-1])
        with pytest.raises(InvalidInput, match="is damaged") as error:
            sample(correlated_gaussian(), "hmc", checkpoint=path, **QUICK)
        path.write_bytes(content)
    else:

        def interrupted(*args, **options):
            raise KeyboardInterrupt

        monkeypatch.setattr("hmcgp.samplers.chains.independent.announce", interrupted)
        with pytest.raises(KeyboardInterrupt) as error:
            sample(correlated_gaussian(), "hmc", checkpoint=path, max_time=60.0, **(QUICK | {"progressbar": True}))
        monkeypatch.undo()
    held.append(error.value)
    assert_same(
        sample(correlated_gaussian(), "hmc", checkpoint=path, **QUICK), sample(correlated_gaussian(), "hmc", **QUICK)
    )
    assert os.listdir(tmp_path) == ["run.nc"]


HOLDING = """
import sys
import time
from hmcgp.samplers import sample
from hmcgp.samplers.chains import checkpoint
from tests.helpers.checkpoints import QUICK
from tests.helpers.densities import Gaussian, correlated_gaussian

checkpoint.INTERVAL = 0.0


class Waiting(Gaussian):
    count = 0

    def evaluate(self, u, carry=None, gradient=True):
        self.count += 1
        if self.count == 400:
            print("running", flush=True)
            time.sleep(600)
        return super().evaluate(u, carry)


plain = correlated_gaussian()
sample(Waiting(plain.mean, plain.covariance), "hmc", checkpoint=sys.argv[1], n_jobs=1, **QUICK)
"""


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    path = tmp_path / "run.nc"
    command = [sys.executable, "-c", HOLDING, str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=child_environment(), encoding="utf-8"
    ) as first:
        try:
            assert first.stdout.readline() == "running\n"
            content = path.read_bytes()
            density = Counted()
            with pytest.raises(InvalidInput, match=rf"run\.nc' is in use by process {first.pid} on .*Wait until"):
                sample(density, "hmc", checkpoint=path, **QUICK)
            assert density.count == 0
            assert path.read_bytes() == content
            first.send_signal(signal.SIGKILL)
            first.wait(timeout=60)
            density = Counted()
            resumed = sample(density, "hmc", checkpoint=path, **QUICK)
        finally:
            first.kill()
    whole = Counted()
    assert_same(resumed, sample(whole, "hmc", **QUICK))
    assert density.count < whole.count  # it has gone on, not begun anew
    assert os.listdir(tmp_path) == ["run.nc"]


def test_a_folder_that_disappears_does_not_end_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_module, "INTERVAL", 0.0)
    folder = tmp_path / "folder"
    folder.mkdir()

    class Removing(Gaussian):
        count = 0

        def evaluate(self, u, carry=None, gradient=True):
            self.count += 1
            if self.count == 200:
                shutil.rmtree(folder)
            return super().evaluate(u, carry)

    plain = correlated_gaussian()
    with pytest.warns(CheckpointWarning, match=r"could not be written: .*the folder '.*folder' does not exist"):
        trace = sample(Removing(plain.mean, plain.covariance), "hmc", checkpoint=folder / "run.nc", n_jobs=1, **QUICK)
    assert_same(trace, sample(correlated_gaussian(), "hmc", **QUICK))


def test_a_finished_run_in_a_read_only_folder_can_be_read(tmp_path, monkeypatch):
    path = tmp_path / "run.nc"
    first = sample(correlated_gaussian(), "hmc", checkpoint=path, **QUICK)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for all but root, who may write everywhere
    assert_same(first, sample(correlated_gaussian(), "hmc", checkpoint=path, **QUICK))
    density = Counted()
    with pytest.raises(InvalidInput, match=r"'checkpoint' '.*run\.nc' cannot be written: permission is denied"):
        sample(density, "hmc", checkpoint=path, **(QUICK | {"draws": 70}))
    assert density.count <= 4  # the density where each chain stands
