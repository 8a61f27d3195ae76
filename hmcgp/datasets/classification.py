"""Data sets with a label to predict, all of them shipped."""

from __future__ import annotations

from typing import Literal

import sklearn
from sklearn.datasets import load_breast_cancer as load_diagnostic

from hmcgp.datasets.loading import Loaded, classification, read_description, read_table
from hmcgp.runtime.checks import name_among


def load_crabs(*, species: bool = False, return_X_y: bool = False) -> Loaded:
    """Sex of Leptograpsus crabs from five measures: 200 rows, 5 or 6 inputs.

    There is no `train` mask: Ripley's 80/120 split is lost (`DESCR` has the details).

    Parameters
    ----------
    species : bool, default False
        Add the colour form as a sixth input: 0 blue, 1 orange.
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    Bunch
        `data` (DataFrame of floats), `target` (Series of "F" and "M"), `target_names`, `feature_names`,
        `frame` (the whole table, with the species letter), `DESCR`.
    """
    frame = read_table("crabs")
    data = frame[["FL", "RW", "CL", "CW", "BD"]]
    if species:
        data = data.assign(species=frame["species"] == "O")
    return classification(data, frame, "sex", description=read_description("crabs"), return_X_y=return_X_y)


def load_pima(*, return_X_y: bool = False) -> Loaded:
    """Diabetes of Pima women, Ripley's 200 training and 332 test cases: 532 rows, 7 inputs.

    Parameters
    ----------
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    Bunch
        `data` (DataFrame of floats), `target` (Series of "No" and "Yes"), `train` (boolean mask),
        `target_names`, `feature_names`, `frame`, `DESCR`.
    """
    frame = read_table("pima")
    return classification(
        frame[["npreg", "glu", "bp", "skin", "bmi", "ped", "age"]],
        frame,
        "diabetes",
        description=read_description("pima"),
        train=(frame["split"] == "train").to_numpy(),
        return_X_y=return_X_y,
    )


def load_glass(*, return_X_y: bool = False) -> Loaded:
    """Type of forensic glass fragments, six classes: 214 rows, 9 inputs.

    Parameters
    ----------
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    Bunch
        `data` (DataFrame of floats), `target` (Series of labels), `target_names`, `feature_names`, `frame`, `DESCR`.
    """
    frame = read_table("glass")
    *inputs, target = frame.columns
    return classification(frame[inputs], frame, target, description=read_description("glass"), return_X_y=return_X_y)


def load_ionosphere(*, return_X_y: bool = False) -> Loaded:
    """Radar returns from the ionosphere, good or bad: 351 rows, 34 inputs.

    Parameters
    ----------
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    Bunch
        `data` (DataFrame of floats), `target` (Series of "bad" and "good"), `train` (boolean mask, Sigillito's
        first 200 rows), `target_names`, `feature_names`, `frame`, `DESCR`.
    """
    frame = read_table("ionosphere")
    return classification(
        frame.filter(like="pulse"),
        frame,
        "class",
        description=read_description("ionosphere"),
        train=(frame["split_sigillito"] == "train").to_numpy(),
        return_X_y=return_X_y,
    )


def load_thyroid(*, binary: bool = False, return_X_y: bool = False) -> Loaded:
    """Thyroid function from five laboratory tests, three or two classes: 215 rows, 5 inputs.

    Parameters
    ----------
    binary : bool, default False
        Merge the classes Hyper and Hypo into Abnormal.
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    Bunch
        `data` (DataFrame of floats), `target` (Series of labels), `target_names`, `feature_names`,
        `frame` (with both `diagnosis` and `binary`), `DESCR`.
    """
    frame = read_table("thyroid")
    return classification(
        frame[["RT3U", "T4", "T3", "TSH", "DTSH"]],
        frame,
        "binary" if binary else "diagnosis",
        description=read_description("thyroid"),
        return_X_y=return_X_y,
    )


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

    Returns
    -------
    Bunch
        `data` (DataFrame of floats), `target` (Series of "benign" and "malignant"), `target_names`,
        `feature_names`, `frame`, `DESCR`.
    """
    if name_among("version", version, ("original", "diagnostic")) == "diagnostic":
        return _load_diagnostic(return_X_y)
    frame = read_table("breast_cancer")
    if complete:
        frame = frame.dropna().reset_index(drop=True)
    _, *inputs, target = frame.columns  # the first column identifies the sample
    return classification(
        frame[inputs], frame, target, description=read_description("breast_cancer"), return_X_y=return_X_y
    )


def _load_diagnostic(return_X_y: bool) -> Loaded:
    source = load_diagnostic(as_frame=True)
    names = source.target_names
    frame = source.data.assign(diagnosis=[str(names[code]) for code in source.target])
    *inputs, target = frame.columns
    description = (
        f"Source: scikit-learn {sklearn.__version__}, `sklearn.datasets.load_breast_cancer`.\n"
        f"Licence: BSD-3-Clause.\nSplit: none.\n{source.DESCR}"
    )
    return classification(frame[inputs], frame, target, description=description, return_X_y=return_X_y)
