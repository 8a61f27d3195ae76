"""A model whose rows are spread over workers: threads, or those of a Dask cluster (`evidence.low_rank.spread`).

Every Newton step, and every pass of the gradient, is one map over the blocks and one sum.  What goes down is a vector
of m numbers, or a matrix of m x m; what comes up is m x m numbers.  A worker keeps the covariances of its blocks with
the inducing inputs while they are wanted, and makes them again where it has none: after another worker was lost, or
where memory does not reach for the blocks of all chains.
"""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.evidence import Evidence, EvidenceProvider, Exact, Laplace
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.low_rank import LowRank, spread
from hmcgp.evidence.low_rank.posterior import InducingPosterior
from hmcgp.evidence.low_rank.structure import inducing_cotangent
from hmcgp.kernels import Kernel, contract
from hmcgp.likelihoods import Likelihood, Logistic, Probit
from hmcgp.model import block_work
from hmcgp.model.compatibility import as_likelihood
from hmcgp.model.covariance import check_inducing_inputs, check_structure, refuse_outside
from hmcgp.model.inducing import CANDIDATES, spread_inputs
from hmcgp.model.model import Model
from hmcgp.model.row_blocks import RowBlocks, Rows
from hmcgp.runtime.fingerprint import table_identity
from hmcgp.runtime.memory import WorkSpace
from hmcgp.runtime.parallel import Workers
from hmcgp.runtime.typing import Array

_TEMPLATE_ROWS = 100

_numbers = itertools.count()


@dataclass(frozen=True)
class SpreadPosterior(InducingPosterior):
    """Gaussian of the inducing variables, from which predictions follow; that of single rows stays in their blocks."""

    @property
    def start(self) -> Array:
        """K_mm⁻¹ times the mean of the inducing variables, from which the next solution starts."""
        return np.asarray(np.linalg.solve(self.L.T, self.weight)).ravel()


class SpreadModel(Model):
    """Posterior density of hyperparameters, of rows that are spread over workers (see `Model`).

    Made inside ``joblib.parallel_config(backend="dask")``, its blocks live on the workers of that cluster; otherwise
    threads share them.  Find its maximum, sample it and predict with it outside of that context: chains run in threads
    here, side by side, and send their maps to the same blocks.

    Parameters
    ----------
    blocks : RowBlocks
        Rows, of which inputs (`RowBlocks.standardised`) and numbers should have about mean 0 and variance 1.
    inducing : int, or array-like of shape (m, d)
        Inducing inputs, or how many rows to choose as such, by k-means++ among rows at random.
    kernel, likelihood, evidence, input_names
        As of `Model`: labels behind "logistic" or "probit" with "laplace", or numbers with "exact".
    n_jobs : int, optional
        Threads, where there is no cluster.
    """

    def __init__(
        self,
        blocks: RowBlocks,
        *,
        inducing: Any,
        kernel: Kernel | None = None,
        likelihood: str | Likelihood = "logistic",
        evidence: str | EvidenceProvider | None = None,
        input_names: Sequence[str] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        first = block_work.read(blocks.sources[0])
        names = blocks.input_names if input_names is None else input_names
        template = _template(first, kernel, likelihood, evidence, names)
        _check_pair(template)
        self.__dict__.update(template.__dict__)
        self._workers = Workers(n_jobs)
        labels = template.likelihood.targets == "labels"
        most = -(-CANDIDATES // len(blocks.sources))
        parts = self._workers.make(block_work.describe, [(source, most, labels) for source in blocks.sources])
        described: list[block_work.Summary] = self._workers.map(_itself, parts)
        if labels:
            template.likelihood.check_targets(np.concatenate([part.targets for part in described]))
        self.n_rows = sum(part.n for part in described)
        self.inducing = template.inducing = self._check_inputs(inducing, described)
        self._number = next(_numbers)
        keys = [(os.getpid(), self._number, b) for b in range(len(blocks.sources))]
        jobs = [(source, key, template) for source, key in zip(blocks.sources, keys, strict=True)]
        self._blocks = self._workers.make(block_work.load, jobs)

    def _check_inputs(self, inducing: Any, described: list[block_work.Summary]) -> Array:
        low, high = (np.stack(parts) for parts in zip(*((part.low, part.high) for part in described), strict=True))
        if isinstance(inducing, int | np.integer) and not isinstance(inducing, bool):
            if not 1 <= inducing <= self.n_rows:
                raise InvalidInput(
                    f"'inducing' must be between 1 and the number of rows ({self.n_rows}); got {inducing}."
                )
            return spread_inputs(np.vstack([part.some for part in described]), int(inducing))
        Z = check_inducing_inputs(inducing, self.n_rows, self.X.shape[1])
        refuse_outside(Z, low.min(axis=0), high.max(axis=0))
        return Z

    def __reduce__(self) -> Any:
        raise pickle.PicklingError(
            "the rows of a SpreadModel live with its workers: sample or maximise it outside of "
            "joblib.parallel_config; its chains run in threads here, and their maps on the workers it was made with"
        )

    def with_evidence(self, evidence: str | EvidenceProvider) -> Any:
        """Refused: make another model of the blocks."""
        raise InvalidInput("the blocks of a SpreadModel are made for its evidence: make another one, with evidence=.")

    def with_rows(self, X: Array, y: Array, likelihood: Likelihood | None = None) -> Any:
        """Refused: make another model of all blocks."""
        raise InvalidInput("a SpreadModel takes no more rows: make another one, of all blocks.")

    def identity(self) -> dict[str, Any]:
        """Digests of every block and of the inducing inputs, and the names of the inputs, for checkpoints."""
        assert self.inducing is not None
        digests = self._workers.map(block_work.block_digest, self._blocks)
        return table_identity(
            {"inducing inputs": self.inducing}, {"list of columns": self.input_names, "rows": digests}
        )

    def close(self) -> None:
        """Let go of the blocks."""
        self._blocks = []
        block_work.kept.drop(self._number)

    @property
    def work_space(self) -> WorkSpace:
        """Memory that an evaluation takes here: some m x m arrays."""
        assert self.inducing is not None
        m = len(self.inducing)
        return WorkSpace(
            64 * m * m, f"8 matrices of {m:,} x {m:,} numbers", lambda nbytes: "take fewer inducing inputs"
        )

    def __repr__(self) -> str:
        assert self.inducing is not None
        return (
            f"SpreadModel(n={self.n_rows}, blocks={len(self._blocks)}, inducing={len(self.inducing)}, "
            f"likelihood={self.likelihood}, evidence={self.evidence}, parameters={', '.join(self.names)})"
        )

    # -- maps and sums -----------------------------------------------------------------------------------------------

    def _sums(self, function: Callable[..., spread.Sums], *common: Any) -> spread.Sums:
        found: spread.Sums = self._workers.total(spread.Sums.joined, function, self._blocks, *common)
        return found

    def _solve(self, theta: Array, start: Array | None) -> tuple[spread.Factor, float, int, float, Array]:
        """Solution, log Z, factorisations, residual, and the factor of K_mm."""
        assert self.inducing is not None
        K, k, _ = contract.inducing_triple(self.kernel_at(theta), self.inducing, self.inducing)
        L = LowRank.of(K, k).L
        if isinstance(self.evidence, SolverProvider):
            begin = np.zeros(len(L)) if start is None or not np.isfinite(start).all() else start @ L
            solved = spread.find_mode(self.evidence, lambda zeta: self._sums(block_work.label_sums, theta, zeta), begin)
            return (*solved, L)
        return (*spread.evidence_of_numbers(self._sums(block_work.number_sums, theta)), 1, 0.0, L)

    def _evidence_at(self, kernel: Kernel, theta: Array, start: Array | None) -> Evidence:
        found, log_z, n_factor, residual, L = self._solve(theta, start)
        return Evidence(log_z, None, np.empty(0), self._posterior(found, L), n_factor - 1, residual)

    def _posterior(self, found: spread.Factor, L: Array) -> SpreadPosterior:
        return SpreadPosterior(L, found.L, found.zeta.reshape(len(L), *self.y.shape[1:]))

    def _log_evidence(self, theta: Array, start: Array | None) -> tuple[Evidence, Array]:
        assert self.inducing is not None
        found, log_z, n_factor, residual, L = self._solve(theta, start)
        z = None
        if isinstance(self.evidence, SolverProvider):
            z = spread.response(
                found, self._workers.total(np.add, block_work.label_response, self._blocks, theta, found)
            )
        dkernel, gram, dlik = self._workers.total(_added, block_work.pull_back, self._blocks, theta, found, z)
        kernel = self.kernel_at(theta)
        _, k, pullback = contract.inducing_triple(kernel, self.inducing, self.inducing)
        dK = inducing_cotangent(L, spread.inducing_product(found, z, gram))
        dkernel = contract.derivatives(kernel, dkernel + pullback(dK, np.zeros_like(k)), self._hyper.n_kernel)
        posterior = self._posterior(found, L)
        return Evidence(log_z, None, dlik, posterior, n_factor - 1, residual), self._hyper.gradient(dkernel, dlik)


def _added(one: tuple[Array, ...], other: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(mine + its for mine, its in zip(one, other, strict=True))


def _itself(part: Any) -> Any:
    return part


def _template(first: Rows, kernel: Any, likelihood: Any, evidence: Any, names: Any) -> Model:
    """Model of a few rows: kernel, priors and likelihood, of which a worker makes that of its rows."""
    X, y = np.resize(first.X[:_TEMPLATE_ROWS], (_TEMPLATE_ROWS, first.X.shape[1])), first.y[:_TEMPLATE_ROWS]
    y = np.resize(y, (_TEMPLATE_ROWS, *y.shape[1:]))
    if as_likelihood(likelihood).targets == "labels":  # a block may hold one of them only
        y = np.resize([-1.0, 1.0], _TEMPLATE_ROWS)
    settings = {"kernel": kernel, "likelihood": likelihood, "evidence": evidence, "input_names": names}
    return Model(X, y, **settings)


def _check_pair(model: Model) -> None:
    known = isinstance(model.evidence, Laplace) and isinstance(model.likelihood, Logistic | Probit)
    exact = isinstance(model.evidence, Exact) and not model.evidence.variational
    if not (known or exact) or model.likelihood.weights is not None:
        raise InvalidInput(
            "rows that are spread over workers are known with evidence='laplace' (likelihood 'logistic' or 'probit') "
            "and evidence='exact' (numbers; weights come with the rows): take one of these, or Model(inducing=...)."
        )
    check_structure(model.X, model.likelihood, model.evidence)
