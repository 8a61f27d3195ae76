"""Base classes of the providers of this package, which check their arguments (the contract: `evidence.protocols`)."""

from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import ClassVar, NoReturn

import numpy as np

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence.protocols import Evidence, EvidenceProvider, Structure
from hmcgp.likelihoods import Classes, Likelihood
from hmcgp.runtime.typing import Array

_FLOAT = np.dtype(np.float64)


def refuse_low_rank(provider: EvidenceProvider) -> NoReturn:
    """Refuse inducing inputs, on behalf of a provider that does not know them."""
    raise InvalidInput(
        f"{type(provider).__name__} knows dense covariances only, and there are inducing inputs: take inducing=None, "
        "or evidence='laplace', 'ep' or 'lower' for two classes, 'laplace' for more, or 'exact' for numbers."
    )


class Provider(ABC):
    """Base class of the evidence providers: one checked call, of which subclasses define `_solve`."""

    supports: ClassVar[tuple[type[Likelihood], ...]]
    takes_low_rank: ClassVar[bool] = False  # whether it knows covariances of low rank plus a diagonal

    def __call__(
        self,
        K: Array | Structure,
        y: Array,
        likelihood: Likelihood,
        start: Array | None = None,
        *,
        gradient: bool = True,
    ) -> Evidence:
        """Evidence of targets y under f ~ N(0, K).

        Parameters
        ----------
        K : ndarray of shape (n, n) or, for C classes, also (C, n, n); or LowRank, LowRankClasses
            Prior covariance of the latent values, or one for the latent values of each class.  Symmetric: only lower
            triangles are read, by `Laplace` and `UpperBound` the upper one, by `Iterative` all.
        y : ndarray of shape (n,)
            Labels -1.0 and +1.0; classes 0.0, 1.0, …, C - 1; or numbers, of which k columns, of shape (n, k), are
            independent and share K and the noise.
        likelihood : Likelihood
            One of `supports`, with a number for each of its parameters.
        start : ndarray, optional
            `posterior.start` at nearby hyperparameters.  It saves time and decides nothing: where the solver fails
            from it, the solver is run again without it.
        gradient : bool, default=True
            With the gradient, its matrix takes the place of what `posterior.predict` needs.

        Returns
        -------
        Evidence
            `dK` has the shape of K: where classes share K, it is the sum of their gradients.  `dlik` has the
            derivatives with respect to the parameters of the likelihood.  `n_iter` is the number of iterations, one
            factorisation less than were made; of `Laplace` by conjugate gradients, the number of Newton steps; of
            `Iterative`, the number of products with K.

        Raises
        ------
        InvalidInput
            Where K or y is not such an array.
        NotPositiveDefinite, NotConverged
            The only two errors that come from the numbers; `hmcgp.model` catches them.
        """
        self.check_use(likelihood, dense=not isinstance(K, Structure))
        if not isinstance(K, Structure):
            self._check_covariance(K, likelihood)
        self._check_targets(y, likelihood, K.shape[-1])
        if start is not None:
            try:
                return self._solve_any(K, y, likelihood, start, gradient)
            except (NotConverged, NotPositiveDefinite):
                pass  # a density that is -inf only for those who come from there is none
        return self._solve_cold(K, y, likelihood, gradient)

    def _solve_cold(self, K: Array | Structure, y: Array, likelihood: Likelihood, gradient: bool) -> Evidence:
        """Evidence without a start from nearby; where that is best approached in steps, a provider overrides it."""
        return self._solve_any(K, y, likelihood, None, gradient)

    def _solve_any(
        self, K: Array | Structure, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
    ) -> Evidence:
        if isinstance(K, Structure):
            return self._solve_low_rank(K, y, likelihood, start, gradient)
        return self._solve(K, y, likelihood, start, gradient)

    @abstractmethod
    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        """Evidence of arrays that have been checked (see `__call__`)."""

    def _solve_low_rank(
        self, C: Structure, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
    ) -> Evidence:
        """Evidence under a covariance of low rank plus a diagonal, where a provider knows it (`takes_low_rank`)."""
        raise NotImplementedError

    def check_use(self, likelihood: Likelihood, *, dense: bool) -> None:
        """Refuse a likelihood, or a covariance that is not dense, which the provider does not know by its settings.

        Raises
        ------
        InvalidInput
        """
        if not (dense or self.takes_low_rank):
            refuse_low_rank(self)

    def matrices(self, n_latents: int) -> int:
        """How many n x n arrays an evaluation holds at least (see `SupportsWorkSpace`)."""
        return 2

    def _check_covariance(self, K: Array, likelihood: Likelihood) -> None:
        """Refuse an array that compiled code would misread, and beyond whose end it would write."""
        name = type(self).__name__
        remedy = "take np.ascontiguousarray(K, dtype=float)"
        if not (isinstance(K, np.ndarray) and K.dtype == _FLOAT):
            kind = f"an array of {K.dtype}" if isinstance(K, np.ndarray) else f"a {type(K).__name__}"
            raise InvalidInput(f"'K' of {name} must be an array of float64; got {kind}: {remedy}.")
        if not K.flags.c_contiguous:
            raise InvalidInput(f"'K' of {name} must be C-contiguous, its rows one after the other in memory: {remedy}.")
        most = 3 if isinstance(likelihood, Classes) else 2
        if not (2 <= K.ndim <= most and K.shape[-1] == K.shape[-2]):
            wanted = "(n, n) or (C, n, n)" if most == 3 else "(n, n)"
            raise InvalidInput(f"'K' of {name} must have shape {wanted}; got {K.shape}.")

    def _check_targets(self, y: Array, likelihood: Likelihood, n: int) -> None:
        columns = 2 if likelihood.targets == "numbers" else 1
        if not (isinstance(y, np.ndarray) and 1 <= y.ndim <= columns and len(y) == n):
            wanted = f"({n},) or ({n}, k)" if columns == 2 else f"({n},)"
            raise InvalidInput(f"'y' of {type(self).__name__} must have shape {wanted}, to fit K; got {np.shape(y)}.")
        if y.dtype != _FLOAT:
            raise InvalidInput(f"'y' of {type(self).__name__} must be an array of float64; got one of {y.dtype}.")

    def _check_tolerance(self, tol: float) -> None:
        if not (isinstance(tol, Real) and 0.0 < tol < 1.0):
            raise InvalidInput(f"'tol' of {type(self).__name__} must lie between 0 and 1; got {tol!r}.")

    def _check_count(self, name: str, value: int, least: int = 1) -> None:
        if not (isinstance(value, Integral) and value >= least):
            raise InvalidInput(f"{name!r} of {type(self).__name__} must be an integer >= {least}; got {value!r}.")


class SolverProvider(Provider):
    """Base class of the providers that iterate until a residual is small; subclasses are dataclasses."""

    tol: float  # residual at which it stops
    max_iter: int  # factorisations before it gives up
    criterion: ClassVar[str] = "decrement"  # name of the residual
    remedy: ClassVar[str] = "raise max_iter, or keep the prior variance below 1e10"  # where it gives up

    def __post_init__(self) -> None:
        self._check_tolerance(self.tol)
        self._check_count("max_iter", self.max_iter)

    def starting_point(self, start: Array | None, y: Array, size: int) -> tuple[Array, bool]:
        """Start of a compiled solver, of this size, and whether it is warm; y stands in where there is none."""
        if start is None:
            return y, False
        if not (isinstance(start, np.ndarray) and start.dtype == _FLOAT and start.shape == (size,)):
            raise InvalidInput(
                f"'start' of {type(self).__name__} must be a float64 array of shape ({size},); got {np.shape(start)}."
            )
        return start, True


class SiteProvider(SolverProvider):
    """Base class of the providers that solve for Gaussian sites."""

    criterion = "residual"
    remedy = "raise max_iter, keep the prior variance moderate, or add a White term to the kernel"
