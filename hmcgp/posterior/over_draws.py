"""Statistics over draws of the hyperparameters: each draw is solved once, on workers, in bounded memory.

Draws come in groups of fixed size, within which each is solved warm from the one before: results do not depend on the
number of workers.  Groups run so many at a time that their results take HELD_BYTES, or one per worker.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from hmcgp.errors import NotConverged
from hmcgp.evidence import Evidence
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Likelihood
from hmcgp.model import Model
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.parallel import resolve_n_jobs, run_tasks
from hmcgp.runtime.typing import Array

GROUP_SIZE = 25  # draws that share a warm start
CONTINUATION_STEPS = 20  # from a solved draw to one that failed
HELD_BYTES = 256 * 2**20  # of results of groups, or of values for each draw, that wait to be merged


@dataclass(frozen=True)
class SolvedDraw:
    """A draw of the hyperparameters with the latent posterior there."""

    model: Model
    theta: Array  # (p,)
    index: int  # position in its group of draws
    number: int  # position among all draws
    weight: float  # 1 where all are equal
    weight_before: float  # of the draws of the group that were solved before
    kernel: Kernel  # with every parameter a number
    evidence: Evidence

    @property
    def log_weight(self) -> float:
        """Logarithm of the weight."""
        return math.log(self.weight) if self.weight > 0.0 else -math.inf

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood with every parameter a number."""
        return self.model.likelihood_at(self.theta)


class Group(NamedTuple):
    """Consecutive draws whose result is merged into that of the draws before."""

    rows: slice  # among all draws
    weight: float
    weight_before: float


class Statistic(ABC):
    """An array computed from the latent posteriors of all draws; pickled to workers in other processes."""

    fill: ClassVar[float] = 0.0  # value before the first draw

    @abstractmethod
    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        """Shape of the array for so many draws."""

    @abstractmethod
    def update(self, out: Array, draw: SolvedDraw) -> None:
        """Take one draw of a group into account, in place."""

    def merge(self, out: Array, group: Group, part: Array) -> None:
        """Take a group of draws into account, in place; by default the first axis is that of the draws."""
        out[group.rows] = part


def summarise(statistic: Statistic, model: Model, draws: Draws, *, n_jobs: int | None = None) -> Array:
    """Value of a statistic for all draws, natural hyperparameters of shape (S, p), on so many workers."""
    draws = WeightedDraws.of(draws)
    groups = slices(len(draws), GROUP_SIZE)
    calls = [(solve_group, (statistic, model, draws[group], group.start)) for group in groups]
    n_workers = resolve_n_jobs(n_jobs, len(calls))
    nbytes = 8 * int(np.prod(statistic.shape(model, min(GROUP_SIZE, len(draws)))))
    out = np.full(statistic.shape(model, len(draws)), statistic.fill)
    for some in slices(len(calls), max(HELD_BYTES // max(nbytes, 1), n_workers)):
        parts = run_tasks(calls[some], n_workers)
        for rows in groups[some]:
            group = Group(rows, draws[rows].total, draws[: rows.start].total)
            statistic.merge(out, group, parts.pop(0))
    return out


def solve_group(statistic: Statistic, model: Model, draws: WeightedDraws, first: int = 0) -> Array:
    """Value of a statistic for a group of draws, of which `first` is the number, each solved warm from the one before.

    Failed draws are retried last, by continuation in 20 steps from a solved draw: the sampler, which evaluated them,
    came there in steps as well.
    """
    out = np.full(statistic.shape(model, len(draws)), statistic.fill)
    solved: tuple[Array, Array] | None = None  # the last solved draw, and where to start from there
    failed: list[int] = []
    before = 0.0

    def update(s: int, kernel: Kernel, evidence: Evidence) -> None:
        nonlocal before
        weight = float(draws.weight[s])
        statistic.update(out, SolvedDraw(model, draws.theta[s], s, first + s, weight, before, kernel, evidence))
        before += weight

    for s, theta in enumerate(draws.theta):
        try:
            kernel, evidence = model.posterior(theta, None if solved is None else solved[1])
        except NotConverged:
            failed.append(s)
            continue
        solved = theta, evidence.posterior.start
        update(s, kernel, evidence)
    for s in failed:
        update(s, *_by_continuation(model, draws.theta[s], solved))
    return out


def _by_continuation(model: Model, theta: Array, solved: tuple[Array, Array] | None) -> tuple[Kernel, Evidence]:
    if solved is None:
        return model.posterior(theta)  # no draw was solved: raise the reason again
    u, start = model.unconstrain(solved[0]), solved[1]
    step = (model.unconstrain(theta) - u) / CONTINUATION_STEPS
    for i in range(1, CONTINUATION_STEPS):
        start = model.posterior(model.constrain(u + i * step), start)[1].posterior.start
    return model.posterior(theta, start)


def latent_shape(model: Model) -> tuple[int, ...]:
    """Shape of the latent values at one input: a number, or one for each class or column of targets."""
    return (model.likelihood.count(model.y),) if model.likelihood.targets == "classes" else model.y.shape[1:]


def slices(n: int, size: int) -> list[slice]:
    """Consecutive slices of at most `size` that cover 0 … n - 1."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
