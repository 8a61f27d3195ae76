"""Reading the tables shipped with the package.

Each data set is a pair of files in this folder, `name.csv` (target in the last column) and `name.md`
(its description); SOURCES.md says where the csv comes from.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from sklearn.utils import Bunch

Loaded: TypeAlias = Bunch | tuple[pd.DataFrame, pd.Series]

NOT_INPUTS = {  # columns beside the inputs and the target; one named split... marks the training rows
    "breast_cancer": ["sample_id"],
    "co2": ["year", "month"],
    "coal_mining": ["exposure"],
    "crabs": ["species", "index"],
    "ionosphere": ["split_sigillito"],
    "pima": ["split"],
    "thyroid": ["binary"],
}

_FOLDER = files("hmcgp.datasets")


def load(name: str, return_X_y: bool) -> Loaded:
    """Load a table whose target is its last column, with its split if it has one."""
    frame = read_table(name)
    split = frame.filter(regex="^split")
    train = None if split.empty else (split.iloc[:, 0] == "train").to_numpy()
    return bundle(frame, return_X_y, name, train=train)


def read_table(name: str) -> pd.DataFrame:
    """Read the shipped table `name`.csv."""
    with (_FOLDER / f"{name}.csv").open("rb") as handle:
        return pd.read_csv(handle)


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
        description = (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    extra: dict[str, object] = {} if is_regression else {"target_names": np.unique(y.to_numpy()).tolist()}
    if train is not None:
        extra["train"] = train
    return Bunch(data=data, target=y, frame=frame, feature_names=list(data.columns), DESCR=description, **extra)
