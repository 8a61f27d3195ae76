"""Forecasts of a contender, and their processor time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from hmcgp.runtime.typing import Array
from scripts.study.tables import Fold, Table


class Chains(NamedTuple):
    """Length of the chains of a fit."""

    chains: int = 2
    tune: int = 150
    draws: int = 200


class Forecast(NamedTuple):
    """Class probabilities of the test rows of a fold."""

    probability: Array  # (m, C)
    seconds: float  # of processor time, for fitting and predicting
    r_hat: float = np.nan  # the largest of the chains


Family: TypeAlias = Callable[[Table, Fold, Chains], dict[str, Forecast]]  # contenders that share a fit
