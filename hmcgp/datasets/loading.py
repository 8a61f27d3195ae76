"""Reading the data files.

Each data set is a pair of files, `name.csv` (target in the last column) and `name.md` (its description).
Files under a permissive licence are in this folder, those under the GPL in the distribution `hmcgp-data`
(in a clone of the repository: scripts/data).  SOURCES.md in either folder states source and licence of each csv.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from sklearn.utils import Bunch

from hmcgp.errors import MissingPackage

Loaded: TypeAlias = Any  # a Bunch, or (data, target) with return_X_y: a union would need a check at each call

NOT_INPUTS = {  # columns that are neither input nor target; one named split... marks the training rows
    "breast_cancer": ["sample_id"],
    "co2": ["year", "month"],
    "coal_mining": ["exposure"],
    "crabs": ["species", "index"],
    "ionosphere": ["split_sigillito"],
    "pima": ["split"],
    "thyroid": ["binary"],
}

_CLONE = Path(__file__).parents[2] / "scripts" / "data" / "hmcgp_data"


def load(name: str, return_X_y: bool) -> Loaded:
    """Load a table whose target is its last column, with its split if it has one."""
    frame = read_table(name)
    split = frame.filter(regex="^split")
    train = None if split.empty else (split.iloc[:, 0] == "train").to_numpy()
    return bundle(frame, return_X_y, name, train=train)


def read_table(name: str) -> pd.DataFrame:
    """Read the table `name`.csv."""
    with data_file(f"{name}.csv").open("rb") as handle:
        return pd.read_csv(handle)


def data_file(name: str) -> Traversable:
    """Locate a data file or its description.

    Parameters
    ----------
    name : str
        Name of the file, such as "pima.csv".

    Returns
    -------
    Traversable
        The file in this package, in the clone that this package runs from, or in the installed `hmcgp-data`.

    Raises
    ------
    MissingPackage
        The file is in none of these.
    """
    for folder in _data_folders():
        if (path := folder / name).is_file():
            return path
    raise MissingPackage(
        f"the data file {name!r} is not installed. It is licensed under the GPL and therefore in a separate package, "
        'hmcgp-data. Install it with: pip install "hmcgp[data]" '
        "(in a clone of the repository: pip install ./scripts/data)."
    )


def _data_folders() -> Iterator[Traversable]:
    """Folders with data files, in order of precedence: files of a clone belong to the code that runs."""
    yield files("hmcgp.datasets")
    if _CLONE.is_dir():
        yield _CLONE
    try:
        yield files("hmcgp_data")
    except ModuleNotFoundError:
        return


def inputs_of(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of the inputs."""
    return frame.iloc[:, :-1].drop(columns=NOT_INPUTS.get(name, []))


def bundle(
    frame: pd.DataFrame,
    return_X_y: bool,
    name: str,
    *,
    data: pd.DataFrame | None = None,
    target: str | None = None,
    train: NDArray[np.bool_] | None = None,
    description: str | None = None,
) -> Loaded:
    """Bundle the inputs of a whole table with its target, the last column by default, and the description `name`.md."""
    data, y = (inputs_of(name, frame) if data is None else data).astype(float), frame[target or frame.columns[-1]]
    is_regression = is_numeric_dtype(y)
    # labels as object, not pandas' own string type: the same on every pandas version, and what np.asarray gives
    y = y.astype(float if is_regression else object)
    if return_X_y:
        return data, y
    if description is None:
        description = data_file(f"{name}.md").read_text(encoding="utf-8")
    extra: dict[str, object] = {} if is_regression else {"target_names": np.unique(y.to_numpy()).tolist()}
    if train is not None:
        extra["train"] = train
    return Bunch(data=data, target=y, frame=frame, feature_names=list(data.columns), DESCR=description, **extra)
