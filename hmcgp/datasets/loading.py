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
from sklearn.utils import Bunch

Loaded: TypeAlias = Bunch | tuple[pd.DataFrame, pd.Series]

_FOLDER = files("hmcgp.datasets")


def read_table(name: str) -> pd.DataFrame:
    """Read the shipped table `name`.csv."""
    with (_FOLDER / f"{name}.csv").open("rb") as handle:
        return pd.read_csv(handle)


def read_description(name: str) -> str:
    """Read the description `name`.md."""
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8")


def classification(
    data: pd.DataFrame,
    frame: pd.DataFrame,
    target: str,
    *,
    description: str,
    train: NDArray[np.bool_] | None = None,
    return_X_y: bool = False,
) -> Loaded:
    """Bundle the inputs `data` with the label column `target` of the whole table `frame`."""
    # object, not pandas' own string type: the same on every pandas version, and what np.asarray gives
    labels = frame[target].astype(object)
    extra: dict[str, object] = {"target_names": np.unique(labels.to_numpy()).tolist()}
    if train is not None:
        extra["train"] = train
    return _bundle(data, frame, labels, description, extra, return_X_y)


def regression(
    data: pd.DataFrame, frame: pd.DataFrame, target: str, *, description: str, return_X_y: bool = False
) -> Loaded:
    """Bundle the inputs `data` with the numeric column `target` of the whole table `frame`."""
    return _bundle(data, frame, frame[target].astype(float), description, {}, return_X_y)


def _bundle(
    data: pd.DataFrame,
    frame: pd.DataFrame,
    target: pd.Series,
    description: str,
    extra: dict[str, object],
    return_X_y: bool,
) -> Loaded:
    data = data.astype(float)
    if return_X_y:
        return data, target
    return Bunch(data=data, target=target, frame=frame, feature_names=list(data.columns), DESCR=description, **extra)
