"""Files that users name: odd paths, what is no regular file, and what a killed write leaves behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hmcgp import GPClassifier, datasets
from hmcgp.errors import InvalidInput
from hmcgp.runtime.files import open_regular, replacing, user_path
from hmcgp.runtime.locks import exclusive
from hmcgp.samplers import sample
from tests.helpers.densities import Gaussian
from tests.helpers.writers import another_process, output_of, write

pytestmark = pytest.mark.usefixtures("no_waiting")

ROOT = os.geteuid() == 0
NOBODY = 65534
DROP_PRIVILEGES = f"""
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
"""


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_folder():
    """A folder that every user can enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


# -- what a replaced file keeps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0o600, 0o640, 0o664, 0o755])
def test_mode_is_kept(tmp_path, bits):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(bits)
    write(path)
    assert (path.read_bytes(), mode(path)) == (b"new", bits)


@pytest.mark.parametrize(("umask", "bits"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_a_new_file_follows_the_umask(tmp_path, umask, bits):
    before = os.umask(umask)
    try:
        write(tmp_path / "file")
    finally:
        os.umask(before)
    assert mode(tmp_path / "file") == bits


def test_owner_is_kept(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    if ROOT:  # others own their files anyhow
        os.chown(path, 12345, 23456)
    before = path.stat()
    write(path)
    after = path.stat()
    assert (after.st_uid, after.st_gid, mode(path)) == (before.st_uid, before.st_gid, 0o640)
    assert after.st_ino != before.st_ino


def test_a_file_of_another_user_goes_to_the_writer_without_new_rights(open_folder):
    """The new group gets what all others have: the old group's rights were not meant for it."""
    path = open_folder / "file"
    path.write_bytes(b"old")
    path.chmod(0o676)
    open_folder.chmod(0o777)
    output_of(DROP_PRIVILEGES + "with replacing(path) as file: file.write(b'new')", path)
    assert path.read_bytes() == b"new"
    assert mode(path) == (0o666 if ROOT else 0o676)
    assert path.stat().st_uid == (NOBODY if ROOT else os.geteuid())


def test_private_content_is_never_public(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with replacing(path):
        [temporary] = [p for p in tmp_path.iterdir() if p != path]
        assert mode(temporary) == 0o600


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed(tmp_path, exists):
    """A dangling one too: the file that it names is made, as `open` would."""
    (tmp_path / "folder").mkdir()
    path, link, second = tmp_path / "folder" / "file", tmp_path / "link", tmp_path / "second"
    if exists:
        path.write_bytes(b"old")
    link.symlink_to("folder/file")
    second.symlink_to(link)
    write(second)
    assert link.is_symlink()
    assert second.is_symlink()
    assert path.read_bytes() == b"new"
    assert not path.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "second"]


def test_names_almost_too_long_can_be_written(tmp_path):
    path = tmp_path / ("x" * 255)
    for content in (b"first", b"second"):
        with exclusive(path):
            write(path, content)
    assert path.read_bytes() == b"second"
    assert len(os.listdir(tmp_path)) == 1


# -- what is refused ---------------------------------------------------------------------------------------------------


def make_irregular(kind, path):
    if kind == "device" and ROOT:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)


class Untouchable(Gaussian):
    def __init__(self):
        super().__init__(np.zeros(1), np.eye(1))

    def evaluate(self, u, carry=None, gradient=True):
        raise AssertionError("the density was evaluated")


def sample_into(path):
    sample(Untouchable(), "hmc", draws=10, tune=60, progressbar=False, checkpoint=path)


DOORS: dict[str, Callable[..., Any]] = {
    "write": write,
    "read": open_regular,
    "save": lambda path: GPClassifier().save(path),
    "load": GPClassifier.load,
    "checkpoint": sample_into,
    "heart": datasets.load_heart,
    "sonar": lambda path: datasets.load_sonar(split_file=path),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("kind", ["device", "socket", "FIFO", "folder"])
def test_what_is_no_regular_file_is_refused_and_left_alone(tmp_path, monkeypatch, door, kind, linked):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    path = Path("file")
    make_irregular(kind, path)
    if door == "checkpoint" and kind == "folder":  # in which one is kept
        path = path / "hmcgp-checkpoint.nc"
        path.mkdir()
    before, given = path.stat(), Path("link" if linked else "file")
    if linked:
        given.symlink_to("file")
    signal.alarm(5)
    with pytest.raises(InvalidInput, match=rf"'{given}.*is a .*not a regular file"):
        DOORS[door](given)
    after = path.stat()
    assert (after.st_ino, after.st_mode, after.st_rdev) == (before.st_ino, before.st_mode, before.st_rdev)
    assert sorted(os.listdir()) == (["file", "link"] if linked else ["file"])


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "is an empty path, ''"),
        ("x\0y", r"'x\\x00y' cannot be the name of a file"),
        ("x\ud800y", r"'x\\ud800y' cannot be the name of a file"),
        ("x" * 300, "'xxx.*xxx' cannot be .*: the name is too long"),
        ("missing/file", "'missing/file' cannot be .*: the folder '.*missing' does not exist"),
        ("missing/", "'missing/' ends like a folder, and there is no such folder"),
        ("table.csv/file", "'table.csv/file' cannot be .*: '.*table.csv' is a file, not a folder"),
        ("table.csv/folder/file", "'table.csv/folder/file' cannot be .*: '.*table.csv' is a file, not a folder"),
        ("circle", "'circle' cannot be .*: its symbolic links lead in a circle"),
        (b"bytes", "must be a path, as text or as pathlib.Path; got b'bytes'"),
        (0, "must be a path, as text or as pathlib.Path; got 0"),
    ],
)
def test_odd_paths_are_refused_in_the_words_of_the_user(tmp_path, monkeypatch, door, path, message):
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_bytes(b"a,b\n1,2\n")
    Path("circle").symlink_to("circle")
    with pytest.raises(InvalidInput, match=message):
        DOORS[door](path)
    assert sorted(os.listdir()) == ["circle", "table.csv"]
    assert Path("table.csv").read_bytes() == b"a,b\n1,2\n"


@pytest.mark.parametrize("door", ["read", "load", "heart", "sonar"])
def test_a_missing_file_is_named(tmp_path, monkeypatch, door):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="'absent' cannot be read: it does not exist"):
        DOORS[door]("absent")


def test_user_files_that_are_no_tables_are_named(tmp_path):
    path = tmp_path / "file.csv"
    for content in (b"", b"\xff\xfe\x00\x81" * 10, b"a\n1,2\n1,2,3\n1\n"):
        path.write_bytes(content)
        for load in (DOORS["heart"], DOORS["sonar"]):
            with pytest.raises(InvalidInput, match=r"file\.csv'"):
                load(path)


def test_paths_may_be_text_or_path_like(tmp_path):
    assert user_path("a/b") == user_path(Path("a/b")) == Path("a/b")
    with pytest.raises(InvalidInput, match="'checkpoint' must be a path"):
        user_path(None, "checkpoint")


def test_what_permissions_forbid_is_refused(open_folder):
    """A read-only folder, an unreadable file, and a write-protected file, which `open` would not overwrite either."""
    for name, bits in (("protected", 0o444), ("secret", 0o200)):
        (open_folder / name).write_bytes(b"old")
        (open_folder / name).chmod(bits)
    script = """
os.chdir(path)
print(refused(replacing, "new"))
print(refused(exclusive, "new", "checkpoint"))
print(refused(open_regular, "secret"))
print(refused(replacing, "protected"))
"""
    open_folder.chmod(0o555)
    new, held, secret, _ = output_of(DROP_PRIVILEGES + script, open_folder).splitlines()
    open_folder.chmod(0o777)
    *_, protected = output_of(DROP_PRIVILEGES + script, open_folder).splitlines()
    denied = "permission is denied to the file or to its folder"
    assert new.startswith(f"'path' 'new' cannot be written: {denied}")
    assert held.startswith(f"'checkpoint' 'new' cannot be written: {denied}")
    assert secret.startswith(f"'path' 'secret' cannot be read: {denied}")
    assert protected.startswith(f"'path' 'protected' cannot be written: {denied}")
    assert (open_folder / "protected").read_bytes() == b"old"


# -- killed writes -----------------------------------------------------------------------------------------------------

WRITER = """
with replacing(path) as file:
    file.write(b"by the other process")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


def temporaries(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".tmp"))


def test_what_a_killed_write_leaves_is_removed_by_the_next(tmp_path):
    path = tmp_path / "run.nc"
    path.write_bytes(b"old")
    foreign = [".other.nc.01234567.tmp", ".run.nc.mine.tmp", ".run.nc.bak.01234567.tmp", "run.nc.01234567.tmp"]
    for name in foreign:
        (tmp_path / name).write_bytes(b"of somebody else")
    with another_process(WRITER, path) as writer:
        assert writer.stdout.readline() == "writing\n"
        writer.kill()
    assert len(temporaries(tmp_path)) == 5
    assert path.read_bytes() == b"old"
    write(path)
    assert temporaries(tmp_path) == sorted(foreign)


def test_the_file_of_a_writer_that_lives_is_not_removed(tmp_path):
    path = tmp_path / "run.nc"
    with another_process(WRITER, path) as writer:
        assert writer.stdout.readline() == "writing\n"
        write(path)
        assert len(temporaries(tmp_path)) == 1
        with replacing(path) as file:  # nor that of another thread of this process
            write(path)
            file.write(b"by the first")
        assert path.read_bytes() == b"by the first"
        writer.communicate("go on", timeout=60)
    assert writer.returncode == 0
    assert path.read_bytes() == b"by the other process"
    assert os.listdir(tmp_path) == ["run.nc"]


def test_a_file_taken_for_left_over_is_made_again(tmp_path, monkeypatch):
    """Another writer may look at it between its creation and the lock."""
    flock = fcntl.flock
    removed: list[Any] = []

    def late(file, operation):
        if not removed:
            removed.append([os.unlink(p) for p in tmp_path.iterdir()])
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    write(tmp_path / "run.nc")
    assert removed
    assert (tmp_path / "run.nc").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["run.nc"]
