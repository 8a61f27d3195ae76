"""Comparing contenders over tables: mean ranks, pairs by Wilcoxon's test, paired differences.

A table is one observation: its folds are averaged first, for they share rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from hmcgp.runtime.typing import Array

LEVEL = 0.05
RESAMPLES = 9999


class Difference(NamedTuple):
    """Mean over tables of one score minus another's, with a 95 % bootstrap interval over tables."""

    mean: float
    low: float
    high: float
    wins: int  # tables on which it is below 0
    p_value: float  # of Wilcoxon's signed-rank test


def by_table(results: pd.DataFrame, contenders: Sequence[str], score: str = "log_loss") -> pd.DataFrame:
    """Mean score of each table (rows) and contender (columns) over the folds that all of these contenders have."""
    return _common_folds(results, contenders, score).groupby("table").mean()


def n_folds(results: pd.DataFrame, contenders: Sequence[str]) -> pd.Series:
    """Number of folds of each table that all of these contenders have."""
    return _common_folds(results, contenders, "log_loss").groupby("table").size()


def _common_folds(results: pd.DataFrame, contenders: Sequence[str], score: str) -> pd.DataFrame:
    chosen = results[results["contender"].isin(contenders)]
    folds = chosen.pivot(index=["table", "repeat", "fold"], columns="contender", values=score)
    return folds.reindex(columns=list(contenders)).dropna()


def mean_ranks(means: pd.DataFrame) -> pd.Series:
    """Mean over tables of the rank of each contender, 1 the best, in ascending order."""
    return means.rank(axis=1).mean().sort_values()


def friedman(means: pd.DataFrame) -> float:
    """p-value of Friedman's test that all contenders are the same."""
    return float(stats.friedmanchisquare(*means.to_numpy().T).pvalue)


def difference(means: pd.DataFrame, first: str, second: str) -> Difference:
    """Score of the first minus that of the second; negative: the first is better."""
    gap = (means[first] - means[second]).to_numpy()
    interval = stats.bootstrap(
        (gap,), np.mean, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    p_value = _wilcoxon(means[first], means[second])
    return Difference(float(gap.mean()), interval.low, interval.high, int((gap < 0.0).sum()), p_value)


def holm(p_values: Sequence[float]) -> Array:
    """p-values adjusted for their number: Holm (1979)."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(adjusted, 1.0)
    return out


def groups(means: pd.DataFrame) -> list[tuple[str, str]]:
    """First and last, by mean rank, of each longest run of contenders of which no two differ (Wilcoxon, Holm)."""
    ranked = list(mean_ranks(means).index)
    pairs = list(combinations(ranked, 2))
    tests = [_wilcoxon(means[a], means[b]) for a, b in pairs]
    differ = {pair for pair, p in zip(pairs, holm(tests), strict=True) if p < LEVEL}
    found: list[tuple[int, int]] = []
    for i in range(len(ranked)):
        j = _last_alike(ranked, i, differ)
        if j > i and not any(a <= i and j <= b for a, b in found):
            found.append((i, j))
    return [(ranked[i], ranked[j]) for i, j in found]


def _last_alike(ranked: Sequence[str], i: int, differ: set[tuple[str, str]]) -> int:
    """Position of the last contender from the i-th on such that no two between them differ."""
    j = i
    while j + 1 < len(ranked) and not any((ranked[k], ranked[j + 1]) in differ for k in range(i, j + 1)):
        j += 1
    return j


def _wilcoxon(first: pd.Series, second: pd.Series) -> float:
    gap = (first - second).to_numpy()
    return float(stats.wilcoxon(gap).pvalue) if gap.any() else 1.0
