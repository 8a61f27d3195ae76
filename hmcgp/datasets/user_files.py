"""Loaders of data sets that need a file of the user's, for a part or the whole.

The aspect-angle split of sonar and the Hungarian heart data are in no package that could be named as
their source, so they are not shipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hmcgp.datasets.loading import Loaded, bundle, read_table
from hmcgp.errors import InvalidInput
from hmcgp.runtime.files import open_regular, user_path

SONAR_VARIABLE = "HMCGP_SONAR_SPLIT"
HEART_VARIABLE = "HMCGP_HEART_CSV"

_SONAR_TRAIN = {"M": 49, "R": 55}  # Gorman & Sejnowski (1988)
_HEART_COLUMNS = [
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal", "num"),
]
_HEART_ROWS = 294


def load_sonar(*, split_file: str | os.PathLike[str] | None = None, return_X_y: bool = False) -> Loaded:
    """Sonar returns from mines and rocks: 208 rows, 60 inputs.

    Parameters
    ----------
    split_file : path, optional
        A csv with a column `split` ("train" or "test"), one row per sample in the order of this data set.
        The environment variable HMCGP_SONAR_SPLIT serves instead. `DESCR` says where the published
        split can be had.
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.
    """
    frame = read_table("sonar")
    path = _user_file(split_file, "split_file", SONAR_VARIABLE)
    train = None if path is None else _read_sonar_split(path, frame)
    return bundle(frame, return_X_y, "sonar", train=train)


def load_heart(path: str | os.PathLike[str] | None = None, *, return_X_y: bool = False) -> Loaded:
    """Hungarian heart disease, from a file of the user's: 294 rows, 13 inputs, many values missing.

    Parameters
    ----------
    path : path, optional
        UCI's `processed.hungarian.data`, or a csv of it with a header. The environment variable
        HMCGP_HEART_CSV serves instead.
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.
    """
    found = _user_file(path, "path", HEART_VARIABLE)
    if found is None:
        raise InvalidInput(
            "the heart data are not shipped; 'path' must name a copy of UCI's processed.hungarian.data "
            f"(294 rows, 14 columns). Pass it, or set the environment variable {HEART_VARIABLE}."
        )
    return bundle(_read_heart(found), return_X_y, "heart")


def _user_file(given: str | os.PathLike[str] | None, argument: str, variable: str) -> Path | None:
    """Path of the file that an argument, or else an environment variable, names; None if neither does."""
    if given is None:
        given, argument = os.environ.get(variable) or None, f"environment variable {variable}"
    if given is None:
        return None
    path = user_path(given, argument).expanduser()
    open_regular(path, argument).close()
    return path


def _read_csv(path: Path, **options: Any) -> pd.DataFrame:
    try:
        return pd.read_csv(path, **options)
    except ValueError as error:  # of pandas' parser, or of the encoding
        raise InvalidInput(f"{str(path)!r} cannot be read as a csv: {error}. Give another file.") from error


def _read_sonar_split(path: Path, frame: pd.DataFrame) -> NDArray[np.bool_]:
    table = _read_csv(path)
    if "split" not in table or len(table) != len(frame):
        raise InvalidInput(
            f"{str(path)!r} must have a column 'split' and {len(frame)} rows; "
            f"got {len(table)} rows and the columns {list(table.columns)[:5]}."
        )
    for name in (name for name in frame.columns if name in table):
        if not (table[name].to_numpy() == frame[name].to_numpy()).all():
            raise InvalidInput(f"column {name!r} of {str(path)!r} differs from the data; is the row order the same?")
    if not set(table["split"]) <= {"train", "test"}:
        raise InvalidInput(
            f"column 'split' of {str(path)!r} must hold 'train' or 'test'; got {sorted(set(map(str, table['split'])))}."
        )
    train = (table["split"] == "train").to_numpy()
    counts = frame["class"][train].value_counts().to_dict()
    if counts != _SONAR_TRAIN:
        raise InvalidInput(
            f"the aspect-angle split trains on 49 M and 55 R; {str(path)!r} on {counts}. Is the row order the same?"
        )
    return np.asarray(train, dtype=bool)


def _read_heart(path: Path) -> pd.DataFrame:
    with open_regular(path) as handle:
        has_header = handle.readline().startswith(b"age")
    header = {"header": 0} if has_header else {"header": None, "names": _HEART_COLUMNS}
    frame = _read_csv(path, na_values=["?", "-9", "-9.0"], **header)
    if list(frame.columns) != _HEART_COLUMNS or len(frame) != _HEART_ROWS:
        raise InvalidInput(
            f"{str(path)!r} must have {_HEART_ROWS} rows and the columns {_HEART_COLUMNS}; "
            f"got {len(frame)} rows and {list(frame.columns)}."
        )
    if not frame["num"].isin([0, 1]).all():
        raise InvalidInput(
            f"column 'num' of {str(path)!r} must hold 0 and 1; got {sorted(frame['num'].unique().tolist())}. "
            "Use processed.hungarian.data, not the reprocessed file with five grades."
        )
    return frame.assign(num=frame["num"].astype(int).astype(str))
