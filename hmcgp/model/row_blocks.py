"""Rows in blocks, each read where it is used: parts of arrays, partitions of a Dask collection, or parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.parallel import Workers
from hmcgp.runtime.typing import Array

ROWS = 20_000  # of a block of arrays
_ROUNDING = 1000.0 * EPS  # standard deviation of a constant column, as a part of its largest value


class Rows(NamedTuple):
    """Rows of a block."""

    X: Array  # (n_b, d)
    y: Array  # (n_b,), or (n_b, k) for k columns of numbers
    weights: Array | None  # (n_b,)


class Source(Protocol):
    """Something that reads the rows of a block, wherever it is called; it travels, and may be called again."""

    def read(self) -> Rows: ...


@dataclass(frozen=True, eq=False)
class _OfArrays:
    X: Array
    y: Array
    weights: Array | None

    def read(self) -> Rows:
        return Rows(self.X, self.y, self.weights)


@dataclass(frozen=True, eq=False)
class _OfPartition:
    """Partitions of Dask collections, computed by the worker that needs them."""

    X: Any  # Delayed, of an array or of a DataFrame
    y: Any  # Delayed, or the name of a column
    weights: Any  # Delayed, the name of a column, or None
    inputs: tuple[str, ...] | None  # columns of a DataFrame

    def read(self) -> Rows:
        table = self.X.compute(scheduler="synchronous")
        y, weights = (_column(table, part) for part in (self.y, self.weights))
        X = table if self.inputs is None else table[list(self.inputs)]
        return Rows(np.asarray(X, dtype=float), np.asarray(y), weights)


@dataclass(frozen=True)
class _OfFile:
    """A parquet file, read by the worker that needs it."""

    path: str
    inputs: tuple[str, ...]
    target: str
    weights: str | None

    def read(self) -> Rows:
        import pandas as pd

        names = [*self.inputs, self.target, *([] if self.weights is None else [self.weights])]
        table = pd.read_parquet(self.path, columns=names)
        return Rows(
            np.asarray(table[list(self.inputs)], dtype=float),
            np.asarray(table[self.target]),
            _column(table, self.weights),
        )


@dataclass(frozen=True, eq=False)
class _Scaled:
    """Rows of another source, with their inputs scaled."""

    source: Source
    mean: Array  # (d,)
    sd: Array  # (d,)

    def read(self) -> Rows:
        X, y, weights = self.source.read()
        return Rows((X - self.mean) / self.sd, y, weights)


class _Moments(NamedTuple):
    """Number of some rows, and the means, sums of squares about them, and largest sizes of their inputs."""

    n: int
    mean: Array
    squares: Array
    size: Array

    @classmethod
    def of(cls, source: Source) -> _Moments:
        X = np.asarray(source.read().X, dtype=float)
        mean = X.mean(axis=0)
        return cls(len(X), mean, np.sum((X - mean) ** 2, axis=0), np.abs(X).max(axis=0))

    def joined(self, other: _Moments) -> _Moments:
        """Moments of both, by the formula of Chan, Golub & LeVeque (1983)."""
        n, apart = self.n + other.n, other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * (self.n * other.n / n)
        return _Moments(n, self.mean + apart * (other.n / n), squares, np.maximum(self.size, other.size))


def _column(table: Any, part: Any) -> Any:
    """Numbers of a column by name, or of a part of a collection of its own."""
    if part is None:
        return None
    return np.asarray(table[part] if isinstance(part, str) else part.compute(scheduler="synchronous"), dtype=float)


@dataclass(frozen=True)
class RowBlocks:
    """Rows in blocks; make them by `of_arrays`, `of_dask` or `of_parquet`.

    Attributes
    ----------
    sources : tuple
        What reads each block, where it is used.
    input_names : tuple of str or None
    mean, sd : ndarrays of shape (d,) or None
        Of the inputs, where they are `standardised`.
    """

    sources: tuple[Source, ...]
    input_names: tuple[str, ...] | None = None
    mean: Array | None = field(default=None, compare=False)
    sd: Array | None = field(default=None, compare=False)

    @classmethod
    def of_arrays(cls, X: Any, y: Any, weights: Any = None, *, rows: int = ROWS) -> RowBlocks:
        """Blocks of at most so many rows of arrays, X of shape (n, d) and y of shape (n,) or (n, k)."""
        X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
        weights = None if weights is None else np.asarray(weights, dtype=float)
        if X.ndim != 2 or len(X) == 0 or any(len(part) != len(X) for part in (y, weights) if part is not None):
            raise InvalidInput(
                f"'X' must have shape (n, d), and 'y' and 'weights' a value for each row; got {X.shape}."
            )
        parts = np.array_split(np.arange(len(X)), -(-len(X) // rows))
        return cls(tuple(_OfArrays(X[i], y[i], None if weights is None else weights[i]) for i in parts))

    @classmethod
    def of_dask(cls, X: Any, y: Any, weights: Any = None, *, inputs: Sequence[str] | None = None) -> RowBlocks:
        """Blocks that are the partitions of Dask collections, computed where they are used.

        Parameters
        ----------
        X : dask DataFrame or dask array of shape (n, d)
            An array in chunks of whole rows.
        y, weights : str, or dask Series or array
            Names of columns of X, or collections of the same partitions.
        inputs : sequence of str, optional
            Columns of X that are inputs; default: all but those of y and weights.
        """
        parts = [_partitions(part) for part in (X, y, weights)]
        counts = {len(part) for part in parts if not (len(part) == 1 and _is_name(part[0]))}
        if len(counts) > 1:
            raise InvalidInput(f"X, y and weights have {sorted(counts)} partitions: repartition them alike.")
        columns = _inputs(X, (y, weights), inputs)
        tables, targets, weighed = (part * max(counts) if len(part) < max(counts) else part for part in parts)
        each = zip(tables, targets, weighed, strict=True)
        return cls(
            tuple(_OfPartition(table, target, weight, columns) for table, target, weight in each),
            None if columns is None else tuple(map(str, columns)),
        )

    @classmethod
    def of_parquet(
        cls, folder: str | Path, *, target: str, inputs: Sequence[str], weights: str | None = None
    ) -> RowBlocks:
        """Blocks that are the files ``*.parquet`` of a folder, which every worker must see under this path."""
        files = sorted(Path(folder).glob("*.parquet"))
        if not files:
            raise InvalidInput(f"there are no files *.parquet in {str(folder)!r}.")
        return cls(tuple(_OfFile(str(file), tuple(inputs), target, weights) for file in files), tuple(inputs))

    def standardised(self, n_jobs: int | None = None) -> RowBlocks:
        """These rows with inputs of mean 0 and standard deviation 1; inputs that never change become 0.

        Means and standard deviations take one pass over the blocks, in threads, or on a Dask cluster inside
        ``joblib.parallel_config(backend="dask")``.  They stay in `mean` and `sd`, by which `scale` scales new inputs.
        """
        if self.mean is not None:
            return self
        found: _Moments = Workers(n_jobs).total(_Moments.joined, _Moments.of, self.sources)
        sd = np.sqrt(found.squares / found.n)
        sd = np.where(sd > _ROUNDING * found.size, sd, np.inf)
        return replace(
            self, sources=tuple(_Scaled(source, found.mean, sd) for source in self.sources), mean=found.mean, sd=sd
        )

    def scale(self, X: Any) -> Array:
        """New inputs, of shape (m, d), scaled as those of these blocks are."""
        if self.mean is None or self.sd is None:
            raise InvalidInput("these blocks have the inputs that they were given: call standardised() first.")
        return np.asarray((np.asarray(X, dtype=float) - self.mean) / self.sd)


def _inputs(X: Any, others: tuple[Any, ...], inputs: Sequence[str] | None) -> tuple[str, ...] | None:
    """Columns of a DataFrame that are inputs; None for an array."""
    if not hasattr(X, "columns"):
        return None
    names = {other for other in others if isinstance(other, str)}
    return tuple(c for c in X.columns if c not in names) if inputs is None else tuple(inputs)


def _is_name(part: Any) -> bool:
    return part is None or isinstance(part, str)


def _partitions(collection: Any) -> list[Any]:
    """Delayed partitions of a collection in whole rows; itself where it is a name or None."""
    if _is_name(collection):
        return [collection]
    if not hasattr(collection, "to_delayed"):
        raise InvalidInput(f"a Dask DataFrame or array is needed; got a {type(collection).__name__}: take of_arrays.")
    delayed = np.asarray(collection.to_delayed(), dtype=object)
    if delayed.ndim == 2 and delayed.shape[1] > 1:
        raise InvalidInput("the Dask array is cut between its columns: X.rechunk({1: -1}) keeps rows whole.")
    return list(delayed.ravel())
