"""Files that a release and its hosts read: they parse, refer to files that exist, and agree on the version."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
YAML_FILES = [
    ROOT / "CITATION.cff",
    ROOT / ".readthedocs.yaml",
    ROOT / ".pre-commit-config.yaml",
    *sorted((ROOT / ".github").rglob("*.yml")),
]


def read_yaml(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def settings():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


@pytest.fixture(scope="module")
def data_project():
    return tomllib.loads((ROOT / "scripts/data/pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_yaml_files_parse(path):
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def test_there_are_templates_for_issues_and_a_workflow():
    names = {path.relative_to(ROOT / ".github").as_posix() for path in YAML_FILES if ".github" in path.parts}
    assert {"workflows/ci.yml", "ISSUE_TEMPLATE/bug.yml", "ISSUE_TEMPLATE/feature.yml"} <= names


def test_the_version_is_the_same_everywhere(settings):
    version = settings["metadata"]["version"]
    citation = read_yaml("CITATION.cff")
    top = re.search(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert citation["version"] == version == top.group(1)
    assert str(citation["date-released"]) == top.group(2)
    assert Version(version).is_prerelease is False


def test_the_extra_data_accepts_the_version_in_this_repository(settings, data_project):
    (line,) = settings["options.extras_require"]["data"].split()
    requirement = Requirement(line)
    assert requirement.name == data_project["name"]
    assert requirement.specifier.contains(data_project["version"])


def test_the_citation_has_the_required_keys_and_the_papers_of_the_readme():
    citation = read_yaml("CITATION.cff")
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert len(citation["references"]) == 5
    for paper in citation["references"]:
        assert f"*{paper['title']}*" in readme
        assert str(paper["year"]) in readme
        assert all(author["family-names"] in readme for author in paper["authors"])


def test_classifiers_name_the_tested_pythons(settings):
    classifiers = settings["metadata"]["classifiers"]
    named = re.findall(r"Python :: (3\.\d+)", classifiers)
    assert named == ["3.11", "3.12", "3.13"]
    assert settings["options"]["python_requires"] == f">={named[0]}"
    assert "License ::" not in classifiers, "license_expression has the licence"
    tested = re.findall(r"find_python (3\.\d+)", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    assert set(tested) <= set(named)


def steps(workflow="ci.yml"):
    for job in read_yaml(f".github/workflows/{workflow}")["jobs"].values():
        yield from job["steps"]


def commands():
    """Commands in the files of hosts that start programs of this repository."""
    yield from (step["run"] for step in steps() if "run" in step and "shell" not in step)
    yield from read_yaml(".readthedocs.yaml")["build"]["commands"]
    yield from (hook["entry"] for repo in read_yaml(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"])


def test_programs_that_hosts_start_exist_and_are_executable():
    started = {command.split()[0] for command in commands() if command.startswith((".ci/", "scripts/"))}
    assert started == {".ci/run", "scripts/build_docs", "scripts/lint"}
    assert all((ROOT / name).is_file() for name in started)
    assert os.name == "nt" or all(os.access(ROOT / name, os.X_OK) for name in started)


def test_links_of_the_pages_for_contributors_lead_to_files():
    for page in (ROOT / ".github").glob("*.md"):
        for link in re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.slow
def test_the_fit_of_the_smoke_job_runs(tmp_path):
    scripts = [step["run"] for step in steps() if step.get("shell") == "python"]
    assert len(scripts) == 1
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", scripts[0]]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
