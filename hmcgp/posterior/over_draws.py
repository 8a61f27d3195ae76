"""Statistics over draws of the hyperparameters: each draw is solved once, on workers, in bounded memory.

Draws come in groups of fixed size, within which each is solved warm from the one before: results do not depend on the
number of workers.  Groups run so many at a time that their results take HELD_BYTES, or one per worker.

What predictions need of a draw may be kept between calls (`kept`), by workers that are threads: those draws are not
solved again.  That is the predictor of a draw or, where covariances between new rows are asked for, its posterior.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from hmcgp.errors import NotConverged
from hmcgp.evidence import Evidence
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Likelihood
from hmcgp.model import Model
from hmcgp.posterior.kept import KeptPredictors
from hmcgp.posterior.predictors import AnyPredictor, predictor
from hmcgp.posterior.reduction import reduced
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.parallel import resolve_n_jobs, run_tasks
from hmcgp.runtime.progress import DelayedBar
from hmcgp.runtime.typing import Array

GROUP_SIZE = 25  # draws that share a warm start
CONTINUATION_STEPS = 20  # from a solved draw to one that failed
HELD_BYTES = 256 * 2**20  # of results of groups, or of values for each draw, that wait to be merged


@dataclass(frozen=True)
class Draw:
    """A draw of the hyperparameters, and its place among others."""

    model: Model
    index: int  # position in its group of draws
    number: int  # position among all draws
    weight: float  # 1 where all are equal
    weight_before: float  # of the draws of the group that were solved before

    @property
    def log_weight(self) -> float:
        """Logarithm of the weight."""
        return math.log(self.weight) if self.weight > 0.0 else -math.inf


@dataclass(frozen=True)
class SolvedDraw(Draw):
    """A draw of the hyperparameters with the latent posterior there."""

    theta: Array  # (p,)
    kernel: Kernel  # with every parameter a number
    evidence: Evidence

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood with every parameter a number."""
        return self.model.likelihood_at(self.theta)

    @property
    def predictor(self) -> AnyPredictor:
        """Latent predictions at new inputs."""
        return predictor(self.model, self.theta, self.kernel, self.evidence)


@dataclass(frozen=True)
class PredictingDraw(Draw):
    """A draw of the hyperparameters with what predictions need of it."""

    predictor: AnyPredictor
    kept: KeptPredictors | None

    def reduced(self, size: int | None) -> PredictingDraw:
        """Draw whose latent variances come from so many training rows (`hmcgp.posterior.reduction`); None: from all."""
        if size is None:
            return self
        known = None if self.kept is None else self.kept.get((self.number, size))
        if known is None:
            known = reduced(self.predictor, size)
            if self.kept is not None:
                self.kept.keep((self.number, size), known)
        return replace(self, predictor=known)


class Kept(NamedTuple):
    """Kept part of a draw: enough to predict, and to solve the draw after it as if this one had been solved."""

    predictor: AnyPredictor
    start: Array
    failed: bool  # at first, so that it comes after the others


class KeptSolution(NamedTuple):
    """Kept part of a draw for predictions that need its latent posterior: covariances between new rows."""

    kernel: Kernel
    evidence: Evidence
    failed: bool  # as of `Kept`

    @property
    def start(self) -> Array:
        """Start of the solution of the next draw."""
        return self.evidence.posterior.start


class Group(NamedTuple):
    """Consecutive draws whose result is merged into that of the draws before."""

    rows: slice  # among all draws
    weight: float
    weight_before: float


D = TypeVar("D", bound=Draw)


class Reduction(ABC, Generic[D]):
    """An array computed from all draws; pickled to workers in other processes."""

    fill: ClassVar[float] = 0.0  # value before the first draw

    @abstractmethod
    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        """Shape of the array for so many draws."""

    @abstractmethod
    def update(self, out: Array, draw: D) -> None:
        """Take one draw of a group into account, in place."""

    def merge(self, out: Array, group: Group, part: Array) -> None:
        """Take a group of draws into account, in place; by default the first axis is that of the draws."""
        out[group.rows] = part


class Statistic(Reduction[SolvedDraw]):
    """An array computed from the latent posteriors of all draws."""

    keeps: ClassVar[bool] = False  # whether they are kept between calls, as for predictions


class Prediction(Reduction[PredictingDraw]):
    """An array computed from predictions of all draws, which may be kept between calls."""


def summarise(statistic: Reduction[Any], model: Model, draws: Draws, *, n_jobs: int | None = None) -> Array:
    """Value of a statistic for all draws, natural hyperparameters of shape (S, p), on so many workers.

    If the draws ask for a progress bar, it appears after two seconds.
    """
    draws = WeightedDraws.of(draws)
    groups = slices(len(draws), GROUP_SIZE)
    out = np.full(statistic.shape(model, len(draws)), statistic.fill)
    with DelayedBar(len(draws), "predicting", enabled=draws.progressbar) as bar:
        calls = [(solve_group, (statistic, model, draws[group], group.start, draws.kept, bar)) for group in groups]
        n_workers = resolve_n_jobs(n_jobs, len(calls))
        nbytes = 8 * int(np.prod(statistic.shape(model, min(GROUP_SIZE, len(draws)))))
        for some in slices(len(calls), max(HELD_BYTES // max(nbytes, 1), n_workers)):
            parts = run_tasks(calls[some], n_workers)
            for rows in groups[some]:
                group = Group(rows, draws[rows].total, draws[: rows.start].total)
                statistic.merge(out, group, parts.pop(0))
    return out


def solve_group(
    statistic: Reduction[Any],
    model: Model,
    draws: WeightedDraws,
    first: int = 0,
    kept: KeptPredictors | None = None,
    bar: DelayedBar | None = None,
) -> Array:
    """Value of a statistic for a group of draws, of which `first` is the number, each solved warm from the one before.

    Failed draws are retried last, by continuation in 20 steps from a solved draw: the sampler, which evaluated them,
    came there in steps as well.  Draws of which predictions are `kept` are not solved again.
    """
    group = _GroupValue(statistic, model, draws, first, kept, bar)
    solved: tuple[Array, Array] | None = None  # the last solved draw, and where to start from there
    failed: list[int] = []
    for s, theta in enumerate(draws.theta):
        known = group.known(s)
        if known is None:
            try:
                kernel, evidence = model.posterior(theta, None if solved is None else solved[1])
            except NotConverged:
                failed.append(s)
                continue
            solved = theta, evidence.posterior.start
            group.add(s, kernel, evidence)
        elif known.failed:
            failed.append(s)
        else:
            solved = theta, known.start
            group.add_known(s, known)
    for s in failed:
        known = group.known(s)
        if known is not None:
            group.add_known(s, known)
        else:
            group.add(s, *_by_continuation(model, draws.theta[s], solved), failed=True)
    return group.value


class _GroupValue:
    """Value of a statistic for the draws of a group so far."""

    def __init__(
        self,
        statistic: Reduction[Any],
        model: Model,
        draws: WeightedDraws,
        first: int,
        kept: KeptPredictors | None,
        bar: DelayedBar | None,
    ) -> None:
        self.value = np.full(statistic.shape(model, len(draws)), statistic.fill)
        self._statistic, self._model, self._draws, self._first, self._bar = statistic, model, draws, first, bar
        self._predicts = isinstance(statistic, Prediction)
        self._kept = _kept_for(statistic, model, kept)
        self._before = 0.0

    def known(self, s: int) -> Kept | KeptSolution | None:
        """Kept part of a draw of the group."""
        return None if self._kept is None else self._kept.get(self._first + s)

    def add(self, s: int, kernel: Kernel, evidence: Evidence, *, failed: bool = False) -> None:
        """Take a draw that was solved into account, and keep what predictions need of it."""
        known: Kept | KeptSolution = KeptSolution(kernel, evidence, failed)
        if self._predicts:
            found = predictor(self._model, self._draws.theta[s], kernel, evidence)
            known = Kept(found, evidence.posterior.start, failed)
        if self._kept is not None:
            self._kept.keep(self._first + s, known)
        self.add_known(s, known)

    def add_known(self, s: int, known: Kept | KeptSolution) -> None:
        """Take a draw of which predictions, or the solution, are known into account."""
        if isinstance(known, Kept):
            self._update(PredictingDraw(*self._place(s), known.predictor, self._kept))
        else:
            self._update(SolvedDraw(*self._place(s), self._draws.theta[s], known.kernel, known.evidence))

    def _place(self, s: int) -> tuple[Model, int, int, float, float]:
        return self._model, s, self._first + s, float(self._draws.weight[s]), self._before

    def _update(self, draw: Draw) -> None:
        self._statistic.update(self.value, draw)
        self._before += draw.weight
        if self._bar is not None:
            self._bar.advance()


def _kept_for(statistic: Reduction[Any], model: Model, kept: KeptPredictors | None) -> KeptPredictors | None:
    """Entries that a statistic of this model keeps, if it keeps any."""
    if kept is None or not kept.belongs_to(model):
        return None
    if isinstance(statistic, Statistic):
        return kept.part("solutions") if statistic.keeps else None
    return kept


def posterior_of(model: Model, draws: WeightedDraws, s: int) -> tuple[Kernel, Evidence]:
    """Kernel and latent posterior at one draw (`Model.posterior`), solved by itself, and kept where the draws keep."""
    if draws.kept is None or not draws.kept.belongs_to(model):
        return model.posterior(draws.theta[s])
    part = draws.kept.part("single solutions")
    known = part.get(s)
    if known is None:
        known = model.posterior(draws.theta[s])
        part.keep(s, known)
    return known[0], known[1]


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
