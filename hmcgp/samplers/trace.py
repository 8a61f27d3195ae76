"""Draws of several chains with their statistics, under the names that arviz uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, get_type_hints

import numpy as np
from numpy.typing import NDArray

from hmcgp.numerics.balanced_resampling import balanced_positions
from hmcgp.numerics.weighted import effective_number
from hmcgp.runtime.checks import check_flag
from hmcgp.runtime.typing import Array
from hmcgp.samplers.integrators import State


class Info(NamedTuple):
    """Statistics of one draw; each field is one column."""

    lp: float  # log density of the draw, in unconstrained coordinates
    acceptance_rate: float  # acceptance probability of the proposal
    step_size: float  # the step used, jitter included
    n_steps: int  # evaluations of the log density
    energy: float  # -lp plus the kinetic energy, at the draw
    energy_error: float  # energy at the end of the trajectory minus at its start; inf where it failed
    diverging: bool
    solver_iterations: int  # summed over the evaluations of this draw
    solver_residual: float  # the largest of this draw
    not_positive_definite: int  # failed evaluations of this draw
    not_converged: int


class TreeInfo(NamedTuple):
    """Statistics of one draw of NUTS: those of `Info`, and the depth of its tree."""

    lp: float
    acceptance_rate: float  # averaged over the states of the trajectory
    step_size: float
    n_steps: int
    energy: float
    energy_error: float  # energy at the draw minus at the start of the trajectory
    diverging: bool
    solver_iterations: int
    solver_residual: float
    not_positive_definite: int
    not_converged: int
    tree_depth: int  # doublings of the trajectory
    reached_max_treedepth: bool  # whether it was stopped by their number


class JumpInfo(NamedTuple):
    """Statistics of one draw of `JumpingHMC`: those of `Info`, and whether it jumped."""

    lp: float  # after the jump
    acceptance_rate: float  # of the trajectory
    step_size: float
    n_steps: int  # evaluations, that of the jump included
    energy: float  # at the end of the trajectory
    energy_error: float
    diverging: bool
    solver_iterations: int
    solver_residual: float
    not_positive_definite: int
    not_converged: int
    jumped: bool


class JointInfo(NamedTuple):
    """Statistics of one draw of hyperparameters and latent values (`hmcgp.sample_jointly`)."""

    lp: float  # log density of the hyperparameters, unconstrained, and latent values
    acceptance_rate: float  # of the move of the hyperparameters, by the exact density
    step_size: float
    n_steps: int
    energy: float
    energy_error: float
    diverging: bool  # by the guide
    solver_iterations: int
    solver_residual: float
    not_positive_definite: int
    not_converged: int
    guide_acceptance_rate: float  # if the density that guides the trajectory were the exact one


class SurrogateInfo(NamedTuple):
    """Statistics of one draw from a surrogate, or of its warm-up, which follows the log density itself."""

    lp: float  # log density of the draw
    acceptance_rate: float  # of the last trajectory on the surrogate
    step_size: float
    n_steps: int  # evaluations of the log density: one of the value alone, after warm-up
    energy: float  # on the surrogate
    energy_error: float
    diverging: bool
    solver_iterations: int
    solver_residual: float
    not_positive_definite: int
    not_converged: int
    surrogate_lp: float  # log density of the draw by the surrogate; of warm-up, lp


AnyInfo: TypeAlias = Info | TreeInfo | JumpInfo | JointInfo | SurrogateInfo
Step: TypeAlias = Callable[[np.random.Generator, State], tuple[State, AnyInfo]]  # a transition of a sampler


def stat_dtype(info: type[AnyInfo]) -> np.dtype[np.void]:
    """Return the structured type of the statistics of a sampler."""
    return np.dtype([(name, np.dtype(kind)) for name, kind in get_type_hints(info).items()])


STAT_DTYPE = stat_dtype(Info)


@dataclass(frozen=True, eq=False)
class Trace:
    """Draws of several chains, warm-up kept apart.

    Where draws carry weights, they stand for another density than the one that was sampled, and everything that is
    averaged over them is weighted.

    Attributes
    ----------
    draws : ndarray of shape (n_chains, n_draws, n_dim)
        Natural parameters.
    unconstrained : ndarray of shape (n_chains, n_draws, n_dim)
        Unconstrained parameters.
    stats : dict of ndarray of shape (n_chains, n_draws)
        The fields of the sampler's info: those of `Info`, for NUTS of `TreeInfo`, for jumps of `JumpInfo`, for joint
        draws of `JointInfo`, for the surrogate of `SurrogateInfo`.
    names : list of str
        One name per parameter.
    sampler : str
        "nuts", "hmc", "jumps", "metropolis", "surrogate", "joint", "map", or "fixed" where there are no parameters.
    sampling_time : float
        Seconds, warm-up included.
    interrupted : bool
        Whether the run was stopped before its end.
    warmup_draws, warmup_unconstrained : ndarray of shape (n_chains, tune, n_dim)
        As above, during warm-up.
    warmup_stats : dict of ndarray of shape (n_chains, tune)
        As above, during warm-up.
    inv_metric : ndarray of shape (n_chains, n_dim) or (n_chains, n_dim, n_dim)
        Inverse mass (for Metropolis: the shape of the proposal's covariance) after warm-up.
    log_weight : ndarray of shape (n_chains, n_draws), optional
        Logarithms of the weights, of which the exponentials sum to 1.  None: equal weights.
    pareto_k : float
        Shape of the tail of the weights, which can be trusted below 0.7.  NaN without weights.
    note : str
        How the surrogate came about, or why it was given up.
    """

    draws: Array
    unconstrained: Array
    stats: dict[str, NDArray[Any]]
    names: list[str]
    sampler: str
    sampling_time: float
    interrupted: bool
    warmup_draws: Array
    warmup_unconstrained: Array
    warmup_stats: dict[str, NDArray[Any]]
    inv_metric: Array
    log_weight: Array | None = None
    pareto_k: float = np.nan
    note: str = ""

    def __len__(self) -> int:
        """Return the number of draws of all chains."""
        return self.n_chains * self.n_draws

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return int(self.draws.shape[0])

    @property
    def n_draws(self) -> int:
        """Draws per chain."""
        return int(self.draws.shape[1])

    @property
    def flat(self) -> Array:
        """Natural parameters of all chains, one after another, of shape (n_chains * n_draws, n_dim)."""
        return self.draws.reshape(len(self), self.draws.shape[2])

    @property
    def weight(self) -> Array:
        """Weights of all draws, of shape (n_chains * n_draws,) and mean 1."""
        if self.log_weight is None:
            return np.ones(len(self))
        return np.exp(self.log_weight.ravel() + np.log(len(self)))

    @property
    def n_effective(self) -> float:
        """Effective number of the weights, (Σw)²/Σw²: at most that of the draws."""
        return effective_number(self.weight)

    def thinned(self, n_max: int | None) -> Trace:
        """At most n_max draws, evenly spaced in every chain (one each of the first, if few); None: all."""
        if n_max is None or len(self) <= n_max:
            return self
        chains, keep = self.spaced(min(self.n_chains, n_max), max(n_max // self.n_chains, 1))
        kept = self.log_weight
        if kept is not None:
            kept = kept[chains, keep] - np.logaddexp.reduce(kept[chains, keep], axis=None)
        return replace(
            self,
            draws=self.draws[chains, keep],
            unconstrained=self.unconstrained[chains, keep],
            stats={name: values[chains, keep] for name, values in self.stats.items()},
            warmup_draws=self.warmup_draws[chains],
            warmup_unconstrained=self.warmup_unconstrained[chains],
            warmup_stats={name: values[chains] for name, values in self.warmup_stats.items()},
            inv_metric=self.inv_metric[chains],
            log_weight=kept,
        )

    def spaced(self, n_chains: int, n_draws: int) -> tuple[slice, NDArray[np.intp]]:
        """The first chains, and positions of n_draws evenly spaced draws in each."""
        return slice(0, n_chains), np.linspace(0, self.n_draws - 1, n_draws).round().astype(int)

    def chosen(self, positions: NDArray[np.intp]) -> Trace:
        """Draws at these positions among those of all chains, as many as there are, with equal weights."""

        def taken(values: NDArray[Any]) -> NDArray[Any]:
            return values.reshape(len(self), *values.shape[2:])[positions].reshape(values.shape)

        return replace(
            self,
            draws=taken(self.draws),
            unconstrained=taken(self.unconstrained),
            stats={name: taken(values) for name, values in self.stats.items()},
            log_weight=None,
            pareto_k=np.nan,
        )

    def equal_positions(self) -> NDArray[np.intp]:
        """Positions of as many draws of equal weight: each is left out or repeated according to its weight."""
        return balanced_positions(self.flat, self.weight)

    def to_arviz(self, *, resample: bool = True) -> Any:
        """Draws and statistics as the installed arviz's container.

        The groups are `posterior` (natural parameters), `sample_stats`, `unconstrained_posterior`, and those of the
        warm-up; names such as `length_scale[FL]` become one variable with the dimension `feature`.  The attribute
        `draws_note` says in words which draws `posterior` holds.

        Parameters
        ----------
        resample : bool, default=True
            Where draws carry weights: let `posterior` be as many draws of equal weight, because arviz averages without
            weights; means, standard deviations and quantiles are those of `hmcgp.diagnostics.summary`, to a small part
            of their Monte Carlo errors.  All draws are then in `sampling_posterior`, in the order in which they were
            sampled, with `log_weight` in `sampling_sample_stats`.  False: `posterior` and `sample_stats` hold the draws
            as they were sampled, which `arviz.bfmi` and trace plots need.

        Returns
        -------
        arviz.InferenceData (arviz 0.2x) or xarray.DataTree (arviz 1.x)

        Examples
        --------
        >>> import numpy as np
        >>> from hmcgp import Model, sample
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> model = Model(X, np.array([-1.0, 1.0, 1.0, -1.0]))
        >>> trace = sample(model, draws=20, tune=20, chains=2, progressbar=False, random_state=1)
        >>> tree = trace.to_arviz()
        >>> tree["posterior"]["length_scale"].dims
        ('chain', 'draw', 'feature')
        """
        from hmcgp.samplers.arviz_groups import container  # which imports this module

        check_flag("resample", resample)
        return container(self, resample=resample)

    def __repr__(self) -> str:
        state = ", interrupted" if self.interrupted else ""
        if self.log_weight is not None:
            state = f", weighted: {self.n_effective:.0f} effective, k = {self.pareto_k:.2f}{state}"
        return (
            f"<Trace: {self.n_chains} chains x {self.n_draws} draws of {', '.join(self.names)}; "
            f"{self.sampler}, {self.sampling_time:.1f} s{state}>"
        )
