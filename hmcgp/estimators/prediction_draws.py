"""The draws of the hyperparameters that predictions average over, chosen once after a fit.

`predict_draws="auto"` takes N_EACH evenly spaced draws wherever each of them counts by itself (leave-one-out, weights,
results for each draw), and for averages N_AVERAGED of these, chosen and weighted such that they predict as all do
(`posterior.compression`).  The choice depends on the draws alone and not on the rows that are asked for: a row has the
same probability in any table.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from hmcgp.model import Model
from hmcgp.posterior.compression import spread_subset
from hmcgp.posterior.kept import KeptPredictors
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.samplers import Trace

N_EACH = 500
N_AVERAGED = 50


def n_each(predict_draws: int | str | None) -> int | None:
    """Most draws that results for each draw are for; None: all."""
    return N_EACH if isinstance(predict_draws, str) else predict_draws


def averaged_draws(trace: Trace, predict_draws: int | str | None) -> WeightedDraws:
    """Draws that averages are over, with their weights."""
    kept = trace.thinned(n_each(predict_draws))
    if not isinstance(predict_draws, str) or len(kept) <= 2 * N_AVERAGED:
        return WeightedDraws(kept.flat, kept.weight)
    u = kept.unconstrained.reshape(len(kept), -1)
    chosen, weight = spread_subset(u, kept.weight, N_AVERAGED)
    return WeightedDraws(kept.flat[chosen], weight)


class PredictionDraws:
    """Draws that averages are over, with what predictions keep of them; empty in pickles and copies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: tuple[Any, ...] | None = None
        self._draws: WeightedDraws | None = None

    def __reduce__(self) -> tuple[type[PredictionDraws], tuple[()]]:
        return PredictionDraws, ()

    def get(self, trace: Trace, model: Model, predict_draws: int | str | None, progressbar: bool) -> WeightedDraws:
        """Draws of a fit, chosen anew if the fit or a setting has changed."""
        wanted = (trace, model, predict_draws)
        with self._lock:
            if self._draws is None or self._of != wanted:  # traces and models are equal to themselves only
                self._draws = replace(averaged_draws(trace, predict_draws), kept=KeptPredictors(model))
                self._of = wanted
            return replace(self._draws, progressbar=progressbar)

    def clear(self) -> None:
        """Drop what predictions keep of the draws."""
        with self._lock:
            if self._draws is not None and self._draws.kept is not None:
                self._draws.kept.clear()
