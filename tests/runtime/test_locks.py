"""A file is locked by one run at a time, for as long as that run lives."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Any

import pytest

from hmcgp.errors import CheckpointWarning, InvalidInput
from hmcgp.runtime import files, locks
from hmcgp.runtime.locks import exclusive
from tests.helpers.writers import another_process, write

pytestmark = pytest.mark.usefixtures("no_waiting")

HOLDER = """
with exclusive(path):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_of_this_process_is_refused(tmp_path):
    path, link = tmp_path / "run.nc", tmp_path / "link"
    link.symlink_to(path)
    with exclusive(path, "checkpoint"):
        for other in (path, link):
            with (
                pytest.raises(InvalidInput, match=rf"is in use by another run in this process \({os.getpid()}\)"),
                exclusive(other, "checkpoint"),
            ):
                pass
        write(path)  # replacing the file does not release it
        with pytest.raises(InvalidInput, match="is in use"), exclusive(path):
            pass
    with exclusive(path):
        pass
    assert sorted(os.listdir(tmp_path)) == ["link", "run.nc"]


def test_a_second_process_is_refused_until_the_first_one_dies(tmp_path):
    path = tmp_path / "run.nc"
    with another_process(HOLDER, path) as holder:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(InvalidInput, match=rf"is in use by process {holder.pid} on .*Wait until that run has ended"),
            exclusive(path),
        ):
            pass
        holder.kill()
        holder.wait()
        assert os.listdir(tmp_path) == [".run.nc.lock"]
        with exclusive(path):
            pass
    assert os.listdir(tmp_path) == []


def test_a_fork_does_not_hold_the_lock_of_its_dead_parent(tmp_path):
    script = """
with exclusive(path):
    if os.fork() == 0:
        print("forked", flush=True)
        sys.stdin.read()
        os._exit(0)
    sys.stdout.flush()
    os.read(0, 1)
    os._exit(0)
"""
    path = tmp_path / "run.nc"
    with another_process(script, path) as parent:
        assert parent.stdout.readline() == "forked\n"
        with pytest.raises(InvalidInput, match="in use by process"), exclusive(path):
            pass
        parent.kill()
        parent.wait()  # its fork still waits for the end of the input
        with exclusive(path):
            pass


def test_a_lock_file_removed_by_its_holder_is_not_taken(tmp_path, monkeypatch):
    """The run before may end between the opening of its lock file and the lock."""
    flock = fcntl.flock
    removed: list[Any] = []

    def late(file, operation):
        if not removed:
            removed.append(os.unlink(tmp_path / ".run.nc.lock"))
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with exclusive(tmp_path / "run.nc"):
        assert removed
        with pytest.raises(InvalidInput, match="is in use"), exclusive(tmp_path / "run.nc"):
            pass


@pytest.mark.parametrize("system", ["without flock", "with a file system without locks"])
def test_without_locks_there_is_a_warning(tmp_path, monkeypatch, system):
    def unsupported(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    for module in (files, locks):
        if system == "without flock":
            monkeypatch.setattr(module, "fcntl", None)
        else:
            monkeypatch.setattr(module.fcntl, "flock", unsupported)
    path = tmp_path / "run.nc"
    (tmp_path / ".run.nc.01234567.tmp").write_bytes(b"perhaps of a writer that lives")
    with pytest.warns(CheckpointWarning, match=r"run\.nc' cannot be locked"), exclusive(path):
        write(path)
    assert path.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == [".run.nc.01234567.tmp", "run.nc"]
