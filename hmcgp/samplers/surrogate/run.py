"""A run on a surrogate, from warm-up to weighted draws.

    warm-up ──► points ──► surrogate ──► draws z_s ──► log p(u_s) ──► weights ∝ p(u_s)/exp(g(z_s))
                  ▲                                        │
                  └── gradients at the draws whose weights are the worst ◄──┘

The last draws of warm-up are followed to the ends of the density (`edges`).  Some draws of the first two surrogates are
evaluated with their gradients, to be points of the next.  From then on draws are evaluated without, in waves.  A first
wave with bad weights is the last of its surrogate.  Draws of a surrogate that was replaced are not used.  Draws that
are good are asked last whether they reach far enough (`tails`).

A run is kept if k < K_GOOD and the weights leave GOOD_SHARE of the draws effective, or FINE_SHARE and k < K_LIMIT.
Nothing here depends on the number of workers or on the clock: the log densities so far decide what is done next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.numerics.density import LogDensity
from hmcgp.numerics.weighted import K_LIMIT, Weights, pareto_smoothed
from hmcgp.runtime.parallel import run_tasks
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import Tuning, build_schedule
from hmcgp.samplers.chains.chain import Run
from hmcgp.samplers.chains.record import Record, Snapshot
from hmcgp.samplers.integrators import State
from hmcgp.samplers.metric import as_metric
from hmcgp.samplers.surrogate import edges, tails, warmup
from hmcgp.samplers.surrogate.draws import EXCLUDED, SOLVER, Drawn, Values, as_points, draw_chain, evaluate_all
from hmcgp.samplers.surrogate.gaussian_process import Surrogate, Whitening
from hmcgp.samplers.surrogate.points import Points, fitted, joined
from hmcgp.samplers.surrogate.sampler import SurrogateHMC
from hmcgp.samplers.trace import SurrogateInfo, stat_dtype

K_GOOD = 0.5  # Pareto k up to which weights are taken without another surrogate
GOOD_SHARE = 0.4  # of the draws that the weights must leave effective
FINE_SHARE = 0.6  # with which k may be up to K_LIMIT
PILOTS, PILOT = 2, 96  # surrogates only for more points, and draws of each that are evaluated with their gradients
PILOT_DRAWS = 400  # from the first surrogate, which give the whitening of the next
WAVE = 128  # draws evaluated without, before the weights are looked at
# The surrogate is flattened to g/T, T > 1, before it is drawn from: its tails then lie above those of the density, and
# no weight is large.  T = 1 + WARMTH/sqrt(d) leaves four fifths of the draws of a Gaussian effective, whatever d is.
WARMTH = 0.8
PILOT_TEMPERATURE = 3.0  # of the surrogate whose draws become points: they are to lie in the tails too
ROWS = 1800  # values and partial derivatives that a surrogate is fitted to, at most
MOST_POINTS = 250
ASTRAY = 6.0  # variance of draws from a surrogate, in units of that before, with which they are not to be trusted


class GivenUp(NamedTuple):
    """Why there is no surrogate, and where HMC is to begin instead."""

    reason: str
    start: Array  # (chains, d)
    covariance: Array  # (d, d)


class SurrogateRun:
    """One run: its chains, the points so far, and the counts of evaluations."""

    def __init__(self, run: Run, rng: np.random.Generator, tick: Callable[[], None]) -> None:
        task = run.tasks[0]
        assert isinstance(task.sampler, SurrogateHMC)
        self.run, self.rng, self.tick = run, rng, tick
        self.density: LogDensity = task.density
        self.sampler: SurrogateHMC = task.sampler
        self.length = run.records[0].length[1]
        self.streams = [record.snapshot.stream for record in run.records]
        self.points: list[Points] = []
        self.temperature = 1.0 + WARMTH / np.sqrt(self.density.n_dim)
        self.carry: object = None
        self.values = self.gradients = 0
        self.surrogates = 0

    def sample(self) -> GivenUp | str:
        """Fill the records of the run with draws, and return how; or why not."""
        search = self._search()
        chains = self._warm_up(search)
        starts, covariance = np.array([state.position for state in chains.states]), chains.covariance
        if search.several:
            tops = np.array([top.position for top in search.tops])
            starts = tops[np.arange(len(starts)) % len(tops)]
            return GivenUp(self._told("the log density has several maxima"), starts, covariance)
        mean = np.mean([w.positions for w in chains.walks[-1]], axis=(0, 1))
        whitening = Whitening(mean, factor_of(covariance))
        self._explore(chains)
        for _ in range(PILOTS):
            whitening = self._fly_pilot(self._fit(whitening), starts, whitening)
        for _ in range(self.sampler.refits):
            surrogate = self._fit(whitening)
            drawn = self._draw(surrogate, starts, self.temperature, self.length)
            good, found = self._evaluate(surrogate, drawn)
            if good:
                return self._told(found)
            whitening = self._whitening(drawn, whitening, self.temperature)
        return GivenUp(self._told(found), starts, covariance)

    def _told(self, what: str) -> str:
        evaluations = f"{self.gradients} evaluations with and {self.values} without gradient"
        return f"{what}; {evaluations}, {self.surrogates} surrogates"

    def _fit(self, whitening: Whitening) -> Surrogate:
        self.surrogates += 1
        return fitted(joined(self.points), whitening, self._most_points)

    @property
    def _most_points(self) -> int:
        return min(MOST_POINTS, ROWS // (1 + self.density.n_dim))

    # -- warm-up -----------------------------------------------------------------------------------------------------

    def _search(self) -> warmup.Search:
        search = warmup.find_tops(self.density, self.rng, self.run.n_workers, self.run.stop)
        self.points += search.parts
        self.values += search.values
        self.gradients += search.gradients
        self.carry = search.tops[0].carry
        return search

    def _warm_up(self, search: warmup.Search) -> warmup.Chains:
        n_workers, stop = self.run.n_workers, self.run.stop
        chains, parts = warmup.begin_chains(self.density, search, self.streams, n_workers, stop)
        self.points += parts
        self.gradients += sum(map(len, parts))
        while not warmup.finished(chains):
            chains = warmup.next_round(self.density, chains, n_workers, stop)
            self.points += [walk.points for walk in chains.walks[-1]]
            self.gradients += sum(walk.gradients for walk in chains.walks[-1])
            self._record_warm_up(chains)
        self.streams = chains.streams
        return chains

    def _explore(self, chains: warmup.Chains) -> None:
        """Follow the last draws of warm-up along each axis to where the density ends."""
        last = chains.walks[-1]
        u, lp = np.concatenate([w.positions for w in last]), np.concatenate([w.stats["lp"] for w in last])
        edges.explore(u, lp, np.sqrt(np.diagonal(chains.covariance)), self._add)

    def _record_warm_up(self, chains: warmup.Chains) -> None:
        """Begin the records anew with the draws of warm-up."""
        tune = warmup.ROUND * max(warmup.ROUNDS, len(chains.walks))
        tuning = Tuning(chains.step_size or 1.0, as_metric(chains.covariance, self.density.n_dim), build_schedule(0))
        for c, stream in enumerate(chains.streams):
            record = Record(tune, self.length, self.density.n_dim, SurrogateInfo, Snapshot(0, stream))
            positions = np.concatenate([walks[c].positions for walks in chains.walks])
            stats = np.concatenate([walks[c].stats for walks in chains.walks])
            record.fill(positions, stats, Snapshot(len(positions), stream, chains.states[c], tuning))
            self.run.records[c] = record
        self.tick()

    # -- draws -------------------------------------------------------------------------------------------------------

    def _draw(self, surrogate: Surrogate, starts: Array, temperature: float, draws: int) -> list[Drawn]:
        calls = [
            (draw_chain, (surrogate, temperature, stream, start, draws))
            for stream, start in zip(self.streams, starts, strict=True)
        ]
        drawn: list[Drawn] = run_tasks(calls, self.run.n_workers, self.run.stop)
        self.streams = [chain.stream for chain in drawn]
        return drawn

    def _fly_pilot(self, surrogate: Surrogate, starts: Array, before: Whitening) -> Whitening:
        """Evaluate some draws with their gradients, and return the whitening by all of them."""
        drawn = self._draw(surrogate, starts, PILOT_TEMPERATURE, -(-PILOT_DRAWS // len(starts)))
        u = np.concatenate([chain.u for chain in drawn])
        self._add(u[np.linspace(0, len(u) - 1, min(PILOT, len(u))).round().astype(int)])
        return self._whitening(drawn, before, PILOT_TEMPERATURE)

    def _add(self, u: Array) -> Array:
        """Evaluate with gradients, to be points of the next surrogate, and return the log densities."""
        found = self._evaluated(u, gradient=True)
        self.points.append(as_points(u, found))
        return found.logdensity

    def _evaluated(self, u: Array, *, gradient: bool) -> Values:
        if gradient:
            self.gradients += len(u)
        else:
            self.values += len(u)
        return evaluate_all(self.density, u, self.carry, gradient, self.run.n_workers, self.run.stop)

    def _evaluate(self, surrogate: Surrogate, drawn: list[Drawn]) -> tuple[bool, str]:
        """Evaluate and record draws while their weights are good; else learn from the worst.  Return how it went."""
        self._forget_draws()
        u = np.stack([chain.u for chain in drawn], axis=1)  # (m, chains, d): the first draws of all chains first
        followed = np.stack([chain.stats["lp"] for chain in drawn], axis=1)
        step = max(WAVE // len(drawn), 1)
        parts: list[Array] = []
        for first in range(0, self.length, step):
            rows = slice(first, min(first + step, self.length))
            values = self._evaluated(u[rows].reshape(-1, self.density.n_dim), gradient=False)
            self._record(drawn, rows, values)
            parts.append(values.logdensity)
            lp = np.concatenate(parts)
            weights = weights_of(lp - followed.ravel()[: len(lp)])
            if weights.effective < GOOD_SHARE * len(lp):
                break
        u, ratios = u.reshape(-1, self.density.n_dim), lp - followed.ravel()[: len(lp)]
        found = f"{weights.effective:.0f} of {len(lp)} draws effective, k {weights.pareto_k:.2f}"
        if not is_good(weights, followed.size):
            self._add(u[worst(ratios, PILOT)])
            return False, found
        missing = self._missing(surrogate, u, lp, ratios, np.exp(weights.log_weight))
        return missing <= tails.TOLERATED, found if missing <= tails.TOLERATED else f"{missing:.1%} beyond the draws"

    def _missing(self, surrogate: Surrogate, u: Array, lp: Array, ratios: Array, weight: Array) -> float:
        """Return the probability beyond the draws; where that is too much, points there serve the next surrogate."""
        groups = tails.groups(u, weight)
        moved = np.concatenate([group.moved for group in groups])
        values = self._evaluated(moved, gradient=False).logdensity
        mean = np.logaddexp.reduce(ratios) - np.log(len(ratios))
        log_weight = values - surrogate.values(moved) / self.temperature - mean
        gain = values - np.concatenate([lp[group.draws] for group in groups])
        ends = np.cumsum([len(group.draws) for group in groups])[:-1]
        parts = zip(groups, np.split(gain, ends), np.split(log_weight, ends), strict=True)
        missing = max(tails.missing_probability(group, weight, *part) for group, *part in parts)
        if missing > tails.TOLERATED:
            self._add(moved[tails.is_missing(log_weight)][:PILOT])
        return missing

    def _forget_draws(self) -> None:
        for record in self.run.records:
            record.snapshot = record.snapshot._replace(done=record.tune)

    def _record(self, drawn: list[Drawn], rows: slice, found: Values) -> None:
        """Append draws to the records."""
        shape = (rows.stop - rows.start, len(drawn))
        lp, solver = found.logdensity.reshape(shape), found.solver.reshape(*shape, len(SOLVER))
        for c, (record, chain) in enumerate(zip(self.run.records, drawn, strict=True)):
            stats = np.zeros(shape[0], dtype=stat_dtype(SurrogateInfo))
            for name in chain.stats.dtype.names or ():
                stats[name] = chain.stats[name][rows]
            stats["surrogate_lp"], stats["n_steps"] = stats["lp"], 1
            stats["lp"] = np.where(np.isfinite(lp[:, c]), lp[:, c], stats["surrogate_lp"] - EXCLUDED)
            for i, name in enumerate(SOLVER):
                stats[name] = solver[:, c, i]
            positions = chain.u[rows].copy()
            for i in np.flatnonzero(~np.isfinite(lp[:, c])).tolist():  # averages solve draws of no weight too
                positions[i] = positions[i - 1] if i else record.positions[record.count - 1]
            last = State(positions[-1], float(stats["lp"][-1]), np.zeros(self.density.n_dim))
            record.fill(positions, stats, record.snapshot._replace(done=record.count + shape[0], state=last))
        self.tick()

    def _whitening(self, drawn: list[Drawn], before: Whitening, temperature: float) -> Whitening:
        """Return the whitening by draws from a surrogate, unless they went astray."""
        u = np.concatenate([chain.u for chain in drawn])
        spread = np.cov(before.whiten(u).T).reshape(before.factor.shape) / temperature
        if not np.linalg.eigvalsh(spread)[-1] < ASTRAY:
            return before
        return Whitening(u.mean(axis=0), before.factor @ factor_of(spread))


def factor_of(covariance: Array) -> Array:
    """Return the lower triangular factor of a covariance."""
    return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)


def weights_of(log_ratios: Array) -> Weights:
    """Return smoothed weights; where the log density failed at more than half of the draws, useless ones."""
    if np.mean(np.isfinite(log_ratios)) < 0.5:
        return Weights(np.full(len(log_ratios), -np.log(len(log_ratios))), np.inf, 0.0)
    return pareto_smoothed(log_ratios)


def is_good(weights: Weights, asked: int) -> bool:
    """Whether the weights of a whole run can be relied on: by k alone, or by both k and the effective number."""
    share = weights.effective / asked if len(weights.log_weight) == asked else 0.0
    return share >= GOOD_SHARE and weights.pareto_k < (K_LIMIT if share >= FINE_SHARE else K_GOOD)


def worst(ratios: Array, most: int) -> NDArray[np.intp]:
    """Return the positions of the ratios of densities that are farthest from the usual, at most so many."""
    usual = np.median(ratios[np.isfinite(ratios)])
    return np.argsort(-np.abs(ratios - usual), kind="stable")[:most]
