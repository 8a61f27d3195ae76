"""Loaders of the data sets that are shipped whole; `return_X_y` returns ``(data, target)`` instead of a Bunch."""

from __future__ import annotations

from typing import Literal

import sklearn
from sklearn.datasets import load_breast_cancer as load_diagnostic

from hmcgp.datasets.loading import Loaded, bundle, inputs_of, load, read_table
from hmcgp.runtime.checks import name_among


def load_co2(*, return_X_y: bool = False) -> Loaded:
    """Monthly atmospheric CO2 at Mauna Loa, 1959 to 1997: 468 rows, 1 input (`decimal_year`)."""
    return load("co2", return_X_y)


def load_coal_mining(*, return_X_y: bool = False) -> Loaded:
    """Disasters in British coal mines, counted by year, 1851 to 1962: 112 rows, 1 input, `exposure` in `frame`."""
    return load("coal_mining", return_X_y)


def load_concrete(*, return_X_y: bool = False) -> Loaded:
    """Compressive strength of concrete from its mix and age: 1030 rows, 8 inputs."""
    return load("concrete", return_X_y)


def load_glass(*, return_X_y: bool = False) -> Loaded:
    """Type of forensic glass fragments, six classes: 214 rows, 9 inputs."""
    return load("glass", return_X_y)


def load_ionosphere(*, return_X_y: bool = False) -> Loaded:
    """Radar returns from the ionosphere, good or bad: 351 rows, 34 inputs; `train` is Sigillito's first 200 rows."""
    return load("ionosphere", return_X_y)


def load_motorcycle(*, return_X_y: bool = False) -> Loaded:
    """Head acceleration after a motorcycle impact: 133 rows, 1 input."""
    return load("motorcycle", return_X_y)


def load_pima(*, return_X_y: bool = False) -> Loaded:
    """Diabetes of Pima women: 532 rows, 7 inputs; `train` is Ripley's split into 200 training and 332 test cases."""
    return load("pima", return_X_y)


def load_yacht(*, return_X_y: bool = False) -> Loaded:
    """Residuary resistance of sailing yachts: 308 rows, 6 inputs."""
    return load("yacht", return_X_y)


def load_crabs(*, species: bool = False, return_X_y: bool = False) -> Loaded:
    """Sex of Leptograpsus crabs from five measures: 200 rows, 5 or 6 inputs.

    There is no `train` mask: Ripley's 80/120 split is lost (`DESCR` has the details).

    Parameters
    ----------
    species : bool, default False
        Add the colour form as a sixth input: 0 blue, 1 orange.
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.
    """
    frame = read_table("crabs")
    data = inputs_of("crabs", frame)
    if species:
        data = data.assign(species=frame["species"] == "O")
    return bundle(frame, return_X_y, "crabs", data=data)


def load_thyroid(*, binary: bool = False, return_X_y: bool = False) -> Loaded:
    """Thyroid function from five laboratory tests, three or two classes: 215 rows, 5 inputs.

    Parameters
    ----------
    binary : bool, default False
        Merge the classes Hyper and Hypo into Abnormal.
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.
    """
    return bundle(read_table("thyroid"), return_X_y, "thyroid", target="binary" if binary else "diagnosis")


def load_breast_cancer(
    *,
    version: Literal["original", "diagnostic"] = "original",
    complete: bool = True,
    return_X_y: bool = False,
) -> Loaded:
    """Wisconsin breast cancer, benign or malignant: 683 rows, 9 inputs, or 569 rows, 30 inputs.

    Parameters
    ----------
    version : {"original", "diagnostic"}, default "original"
        The cytological grades of 1990, or the image features of 1993 that scikit-learn ships.
    complete : bool, default True
        Leave out the 16 rows of the original set with a missing value.
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.
    """
    if name_among("version", version, ("original", "diagnostic")) == "diagnostic":
        return _load_diagnostic(return_X_y)
    frame = read_table("breast_cancer")
    if complete:
        frame = frame.dropna().reset_index(drop=True)
    return bundle(frame, return_X_y, "breast_cancer")


def _load_diagnostic(return_X_y: bool) -> Loaded:
    source = load_diagnostic(as_frame=True)
    names = source.target_names
    frame = source.data.assign(diagnosis=[str(names[code]) for code in source.target])
    description = (
        f"Source: scikit-learn {sklearn.__version__}, `sklearn.datasets.load_breast_cancer`.\n"
        f"Licence: BSD-3-Clause.\nSplit: none.\n{source.DESCR}"
    )
    return bundle(frame, return_X_y, "breast_cancer", data=source.data, description=description)
