"""Runs that go on where they were: after a kill, after a limit, and not from a file that is damaged or foreign."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from typing import Any

import h5netcdf
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from hmcgp import GPClassifier, datasets
from hmcgp.errors import CheckpointWarning, HmcgpError, InterruptedWarning, InvalidInput
from hmcgp.samplers import HMC, NUTS, Metropolis, sample
from hmcgp.samplers.chains import checkpoint as checkpoint_module
from tests.helpers.checkpoints import QUICK, Stopping, assert_same, gp_model, interrupt, run_length
from tests.helpers.densities import Gaussian, correlated_gaussian
from tests.helpers.processes import child_environment


@pytest.mark.parametrize("sampler", ["hmc", "nuts", "metropolis", NUTS(dense=False), HMC(step_size=0.1, n_steps=5)])
@pytest.mark.parametrize("k", [2, 40, 120, 500])
def test_interrupted_run_goes_on_with_the_same_draws(tmp_path, sampler, k):
    path = tmp_path / "run.nc"
    whole = sample(correlated_gaussian(), sampler, **QUICK)
    options = QUICK | {"checkpoint": path}
    for _ in range(2 if k < 200 else 1):
        interrupt(k, sampler, **options)
    assert_same(whole, sample(correlated_gaussian(), sampler, n_jobs=2, **options))
    content = path.read_bytes()
    assert_same(whole, sample(correlated_gaussian(), sampler, **options))  # a finished run is read
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["run.nc"]


def test_a_gaussian_process_goes_on(tmp_path):
    """Its state carries the latent modes, without which the last bits would differ."""
    options: dict[str, Any] = {"draws": 20, "tune": 70, "chains": 2, "random_state": 1, "progressbar": False}
    whole = sample(gp_model(), "hmc", **options)
    for seconds in (0.3, 0.3, 0.3, 60.0):
        with contextlib.suppress(HmcgpError, InterruptedWarning):  # with no draws after warm-up, or few
            trace = sample(gp_model(), "hmc", max_time=seconds, checkpoint=tmp_path, **options)
    assert_same(whole, trace)
    assert [p.name for p in tmp_path.iterdir()] == ["hmcgp-checkpoint.nc"]


def test_unseeded_run_goes_on_with_its_own_stream(tmp_path):
    options = QUICK | {"random_state": None, "checkpoint": tmp_path / "run.nc", "n_jobs": 1}
    with pytest.warns(InterruptedWarning, match="interrupted"):
        first = sample(Stopping(300), Metropolis(1.0), **options)
    trace = sample(correlated_gaussian(), Metropolis(1.0), **options)
    np.testing.assert_array_equal(first.draws, trace.draws[: first.n_chains, : first.n_draws])


def test_a_finished_run_can_be_extended(tmp_path):
    path = tmp_path / "run.nc"
    sample(correlated_gaussian(), "hmc", chains=2, checkpoint=path, **QUICK)
    longer = QUICK | {"draws": 150}
    assert_same(
        sample(correlated_gaussian(), "hmc", chains=3, checkpoint=path, **longer),
        sample(correlated_gaussian(), "hmc", chains=3, **longer),
    )


def test_seconds_add_up(tmp_path):
    class Slow(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            time.sleep(2e-4)
            return super().evaluate(u, carry)

    def run(**options):
        slow = Slow(np.zeros(1), np.eye(1))
        return sample(slow, Metropolis(1.0), **(QUICK | {"chains": 1, "checkpoint": tmp_path / "run.nc"} | options))

    first = run(draws=500)
    assert first.sampling_time > 0.1
    assert run(draws=500).sampling_time == first.sampling_time  # what is reported is what was stored
    assert run(draws=520).sampling_time > first.sampling_time


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"random_state": 4}, "random_state is another"),
        ({"tune": 90}, "tune is 90 here and 80 there"),
        ({"sampler": "nuts"}, "sampler is 'nuts' here and 'hmc' there"),
        ({"sampler": HMC(target_accept=0.9)}, "sampler.target_accept is 0.9 here and 0.8 there"),
        ({"sampler": HMC(metric=np.ones(3))}, r"sampler.metric is \[1.0, 1.0, 1.0\] here and None there"),
        ({"density": Gaussian(np.ones(3), np.eye(3))}, "the log density is another"),
        ({"density": Gaussian(np.ones(2), np.eye(2))}, r"parameters is \['x\[0\]', 'x\[1\]'\] here"),
        ({"chains": 2}, "chains is 2 here and 4 there"),
        ({"draws": 30}, "more draws than are asked for"),
        ({"start": np.zeros(3)}, "start is"),
    ],
)
def test_checkpoint_of_another_run_is_refused(tmp_path, change, message):
    path = tmp_path / "run.nc"
    same = {"density": correlated_gaussian(), "sampler": "hmc", "checkpoint": path} | QUICK
    sample(**same)
    content = path.read_bytes()
    with pytest.raises(InvalidInput, match=rf"is of another run: .*{message}.*It was left as it is"):
        sample(**(same | change))
    assert path.read_bytes() == content


def test_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "run.nc"
    options: dict[str, Any] = {"checkpoint": path, "chains": 2} | QUICK
    sample(correlated_gaussian(), "hmc", **options)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(len(content), size=30):
        path.write_bytes(content[:place] + bytes([content[place] ^ rng.integers(1, 256)]) + content[place + 1 :])
        damaged = path.read_bytes()
        with pytest.raises(InvalidInput, match="It was left as it is"):
            sample(correlated_gaussian(), "hmc", **options)
        assert path.read_bytes() == damaged
    for length in (len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(InvalidInput, match="is damaged"):
            sample(correlated_gaussian(), "hmc", **options)
        assert path.read_bytes() == content[:length]


def test_foreign_file_is_refused(tmp_path):
    path = tmp_path / "run.nc"
    for content in (b"", b"my thesis"):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match="is not a checkpoint of hmcgp"):
            sample(correlated_gaussian(), "hmc", checkpoint=path, **QUICK)
        assert path.read_bytes() == content
    with h5netcdf.File(path, "w") as file:
        file.dimensions["x"] = 3
        file.create_variable("x", ("x",), float, data=np.arange(3.0))
    content = path.read_bytes()
    with pytest.raises(InvalidInput, match="is not a checkpoint of hmcgp"):
        sample(correlated_gaussian(), "hmc", checkpoint=path, **QUICK)
    assert path.read_bytes() == content


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    options = QUICK | {"checkpoint": tmp_path / "run.nc"}
    monkeypatch.setattr("hmcgp.samplers.chains.checkpoint_file.FORMAT_VERSION", 3)
    sample(correlated_gaussian(), "hmc", **options)
    monkeypatch.undo()
    with pytest.raises(InvalidInput, match=r"has format 3, written by hmcgp .* this version reads 2"):
        sample(correlated_gaussian(), "hmc", **options)


def test_unusable_places_are_refused_before_sampling(tmp_path):
    class Untouchable(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            raise AssertionError("the density was evaluated")

    with pytest.raises(InvalidInput, match=r"the folder '.*no' does not exist"):
        sample(Untouchable(np.zeros(1), np.eye(1)), "hmc", checkpoint=tmp_path / "no" / "run.nc", **QUICK)


def test_a_carry_that_cannot_be_stored_is_refused(tmp_path):
    class Secretive(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            return super().evaluate(u)._replace(carry={1, 2})

    with pytest.raises(InvalidInput, match=r"carries from one evaluation to the next: a set\. Let it carry None"):
        sample(Secretive(np.zeros(1), np.eye(1)), "hmc", checkpoint=tmp_path / "run.nc", **QUICK)


def test_full_disk_does_not_end_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_module, "INTERVAL", 0.0)
    path = tmp_path / "run.nc"
    interrupt(500, "hmc", checkpoint=path, **QUICK)
    content = path.read_bytes()

    @contextlib.contextmanager
    def full(path, argument):
        raise OSError(28, "No space left on device")
        yield

    monkeypatch.setattr(checkpoint_module, "replacing", full)
    with pytest.warns(CheckpointWarning, match=r"checkpoint could not be written: .*No space left"):
        trace = sample(correlated_gaussian(), "hmc", checkpoint=path, **QUICK)
    assert_same(trace, sample(correlated_gaussian(), "hmc", **QUICK))
    assert path.read_bytes() == content
    with pytest.raises(InvalidInput, match="'checkpoint' cannot be written"):
        sample(correlated_gaussian(), "hmc", checkpoint=tmp_path / "other.nc", **QUICK)


def test_estimator_goes_on_from_its_checkpoint(tmp_path):
    X, y = datasets.load_crabs(return_X_y=True)
    settings: dict[str, Any] = {"draws": 20, "tune": 70, "chains": 2, "random_state": 1, "progressbar": False}
    with pytest.warns(ConvergenceWarning, match="effective sample size"):  # so short a run is
        whole = GPClassifier(**settings).fit(X[::5], y[::5])
    with pytest.raises((HmcgpError, InterruptedWarning), match="goes on from"):
        GPClassifier(**settings, max_time=0.05, checkpoint=tmp_path / "run.nc").fit(X[::5], y[::5])
    with pytest.warns(ConvergenceWarning, match="effective sample size"):
        again = GPClassifier(**settings, checkpoint=tmp_path / "run.nc").fit(X[::5], y[::5])
    assert_same(whole.trace_, again.trace_)
    with pytest.raises(
        InvalidInput, match=r"is of another run: the data are other: X \(values or order of rows\)\. It was"
    ):
        GPClassifier(**settings, checkpoint=tmp_path / "run.nc").fit(X[1::5], y[1::5])


def test_other_versions_are_told(tmp_path, monkeypatch):
    path = tmp_path / "run.nc"
    monkeypatch.setattr(checkpoint_module, "library_version", lambda library: "0.0.1")
    interrupt(500, "hmc", checkpoint=path, **QUICK)
    monkeypatch.undo()
    with pytest.raises(
        InvalidInput, match=r"random_state is another; version of hmcgp is '.*' here and '0\.0\.1' there"
    ):
        sample(correlated_gaussian(), "hmc", checkpoint=path, **(QUICK | {"random_state": 9}))
    with pytest.warns(CheckpointWarning, match=r"begun with other versions \(hmcgp is .*numba is .*last digits"):
        trace = sample(correlated_gaussian(), "hmc", checkpoint=path, **QUICK)
    assert_same(trace, sample(correlated_gaussian(), "hmc", **QUICK))
    sample(correlated_gaussian(), "hmc", checkpoint=path, **QUICK)  # it is finished: nothing to warn about


def test_a_setting_that_only_the_file_has_is_noticed(tmp_path):
    path = tmp_path / "run.nc"
    sample(correlated_gaussian(), "hmc", checkpoint=path, start=np.zeros(3), **QUICK)
    with pytest.raises(InvalidInput, match="start is None here and"):
        sample(correlated_gaussian(), "hmc", checkpoint=path, **QUICK)


KILLED = """
import sys
import numpy as np
from hmcgp.samplers import sample
from hmcgp.samplers.chains import checkpoint
from tests.helpers.checkpoints import gp_model, run_length
checkpoint.INTERVAL, checkpoint.SHARE = 0.01, 1.0  # so that many a kill hits a writing
model = gp_model()
model.evaluate(np.zeros(model.n_dim))  # compiled
print("ready", flush=True)
trace = sample(model, "hmc", checkpoint=sys.argv[1], **run_length(int(sys.argv[3])))
np.savez(sys.argv[2], draws=trace.draws, warmup=trace.warmup_draws, metric=trace.inv_metric, **trace.stats)
"""


def kill_until(path, result, n_kills, rng):
    """Run the script again and again, kill it at random moments, let the last one live; return how often it died."""
    killed = 0
    while not result.exists():
        command = [sys.executable, "-c", KILLED, str(path), str(result), str(n_kills)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=child_environment(), encoding="utf-8"
        ) as child:
            try:
                if killed < n_kills:
                    assert child.stdout.readline() == "ready\n"
                    time.sleep(rng.uniform(0.0, 0.25))
                    child.send_signal(signal.SIGKILL)
                child.communicate(timeout=120)
            finally:
                child.kill()
        killed += child.returncode == -signal.SIGKILL
        assert child.returncode in (0, -signal.SIGKILL)
    return killed


@pytest.mark.parametrize("n_kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_kill_9_at_random_moments(tmp_path, n_kills):
    killed = kill_until(tmp_path / "run.nc", tmp_path / "draws.npz", n_kills, np.random.default_rng(n_kills))
    assert killed == n_kills
    whole = sample(gp_model(), "hmc", **run_length(n_kills))
    with np.load(tmp_path / "draws.npz") as again:
        np.testing.assert_array_equal(again["draws"], whole.draws)
        np.testing.assert_array_equal(again["warmup"], whole.warmup_draws)
        np.testing.assert_array_equal(again["metric"], whole.inv_metric)
        for name, column in whole.stats.items():
            np.testing.assert_array_equal(again[name], column)
