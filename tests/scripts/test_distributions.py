"""The source distributions and wheels of hmcgp and hmcgp-data: contents, licences, and tests that run from them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "scripts" / "data"

pytestmark = pytest.mark.slow


def run(*command, cwd, **environment):
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    result = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


def repository_files():
    """Paths of the files that git tracks, or would track after `git add`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.skip("needs a clone: the list of files is git's")
    return {name for name in result.stdout.split("\0") if name and (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder with the four distributions, built from a copy of the repository without untracked files."""
    folder = tmp_path_factory.mktemp("distributions")
    checkout, dist = folder / "checkout", folder / "dist"
    for name in repository_files():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, checkout / name)
    for project in (checkout, checkout / "scripts" / "data"):
        run("-m", "build", "--no-isolation", "--outdir", dist, project, cwd=folder)
    return dist


def the_file(folder, pattern):
    (path,) = folder.glob(pattern)
    return path


def extract(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)


def test_the_source_distribution_has_every_file_of_the_repository(built):
    with tarfile.open(the_file(built, "hmcgp-*.tar.gz")) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    generated = {name for name in names if name.startswith("hmcgp.egg-info/")} | {"PKG-INFO"}
    assert names - generated == repository_files()


@pytest.mark.parametrize("kind", ["hmcgp-*.whl", "hmcgp_data-*.whl"])
def test_gpl_data_are_in_the_wheel_of_hmcgp_data_only(built, kind):
    gpl = {hashlib.sha256(path.read_bytes()).hexdigest(): path.name for path in DATA.glob("hmcgp_data/*.csv")}
    with zipfile.ZipFile(the_file(built, kind)) as wheel:
        found = {gpl.get(hashlib.sha256(wheel.read(name)).hexdigest()) for name in wheel.namelist()} - {None}
        csvs = {Path(name).name for name in wheel.namelist() if name.endswith(".csv")}
    if kind.startswith("hmcgp_data"):
        assert found == csvs == set(gpl.values())
        assert len(gpl) == 9
    else:
        assert found == set()
        assert csvs == {"coal_mining.csv", "concrete.csv", "yacht.csv"}


@pytest.mark.parametrize(
    ("kind", "expression", "texts"),
    [
        ("hmcgp-*.whl", "BSD-3-Clause AND MIT", {"LICENSE", "LICENSE-MIT.txt"}),
        (
            "hmcgp_data-*.whl",
            "BSD-3-Clause AND GPL-2.0-only AND (GPL-2.0-only OR GPL-3.0-only) AND GPL-2.0-or-later",
            {"BSD-3-Clause.txt", "GPL-2.0.txt", "GPL-3.0.txt"},
        ),
    ],
)
def test_wheels_state_their_licences_and_contain_the_texts(built, kind, expression, texts):
    with zipfile.ZipFile(the_file(built, kind)) as wheel:
        (path,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(wheel.read(path))
        assert metadata["License-Expression"] == expression
        files = metadata.get_all("License-File")
        assert {Path(name).name for name in files} == texts
        assert all(wheel.read(path.replace("METADATA", f"licenses/{name}")) for name in files)


def test_loaders_of_the_installed_wheels_find_the_data_of_hmcgp_data(built, tmp_path):
    """`hmcgp` alone raises an error with the install command; with `hmcgp-data` the loaders work."""
    load = (
        "import hmcgp, pathlib\n"
        "assert pathlib.Path(hmcgp.__file__).parents[1].samefile('.'), hmcgp.__file__\n"
        "assert len(hmcgp.datasets.load_yacht().data) == 308\n"
        "try: print(len(hmcgp.datasets.load_pima().data))\n"
        "except hmcgp.errors.MissingPackage as error: print(error)\n"
    )
    extract(the_file(built, "hmcgp-*.whl"), tmp_path)
    assert 'pip install "hmcgp[data]"' in run("-c", load, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    extract(the_file(built, "hmcgp_data-*.whl"), tmp_path)
    assert run("-c", load, cwd=tmp_path, PYTHONPATH=str(tmp_path)) == "532\n"


def test_the_source_distribution_alone_runs_tests(built, tmp_path):
    with tarfile.open(the_file(built, "hmcgp-*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    where = run("-c", "import hmcgp; print(hmcgp.__file__)", cwd=folder)
    assert Path(where.strip()).is_relative_to(folder)
    tests = ("tests/test_rooms.py", "tests/test_pages.py", "tests/datasets")
    printed = run("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=folder)
    assert "passed" in printed
    assert "skipped" not in printed
