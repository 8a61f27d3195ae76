"""Data sets with a number to predict."""

from __future__ import annotations

from hmcgp.datasets.loading import Loaded, read_description, read_table, regression


def load_motorcycle(*, return_X_y: bool = False) -> Loaded:
    """Head acceleration after a motorcycle impact: 133 rows, 1 input.

    Parameters
    ----------
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    Bunch
        `data` (DataFrame of floats), `target` (Series), `feature_names`, `frame` (the whole table), `DESCR`.
    """
    return _load("motorcycle", ["times"], return_X_y)


def load_co2(*, return_X_y: bool = False) -> Loaded:
    """Monthly atmospheric CO2 at Mauna Loa, 1959 to 1997: 468 rows, 1 input (`decimal_year`).

    Parameters
    ----------
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    Bunch
        `data` (DataFrame of floats), `target` (Series), `feature_names`, `frame` (with `year` and `month`), `DESCR`.
    """
    return _load("co2", ["decimal_year"], return_X_y)


def load_concrete(*, return_X_y: bool = False) -> Loaded:
    """Compressive strength of concrete from its mix and age: 1030 rows, 8 inputs.

    Parameters
    ----------
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    Bunch
        `data` (DataFrame of floats), `target` (Series), `feature_names`, `frame` (the whole table), `DESCR`.
    """
    return _load("concrete", None, return_X_y)


def load_yacht(*, return_X_y: bool = False) -> Loaded:
    """Residuary resistance of sailing yachts: 308 rows, 6 inputs.

    Parameters
    ----------
    return_X_y : bool, default False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    Bunch
        `data` (DataFrame of floats), `target` (Series), `feature_names`, `frame` (the whole table), `DESCR`.
    """
    return _load("yacht", None, return_X_y)


def _load(name: str, inputs: list[str] | None, return_X_y: bool) -> Loaded:
    frame = read_table(name)
    *columns, target = frame.columns
    data = frame[inputs or columns]
    return regression(data, frame, target, description=read_description(name), return_X_y=return_X_y)
