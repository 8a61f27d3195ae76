"""Stationary covariance functions that are zero beyond a finite distance.

They come from blurring: white noise convolved with the indicator of an interval, or a ball, of diameter length_scale.
Values farther apart than that share no noise (MacKay 1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hmcgp.kernels.base import Parameter, check_inputs
from hmcgp.kernels.compiled import radial
from hmcgp.kernels.stationary import Radial
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class _Compact(Radial):
    _most: ClassVar[int]  # inputs; with more, the same formula is not positive definite

    def _own_parameters(self, inputs: Sequence[str]) -> list[Parameter]:
        check_inputs(self, len(inputs), self._most)
        return super()._own_parameters(inputs)

    def _scaled(self, X: Array) -> Array:
        Z = super()._scaled(X)
        check_inputs(self, len(Z), self._most)
        return Z


@dataclass(frozen=True)
class Triangle(_Compact):
    """variance * max(0, 1 - |x - x'|/length_scale), for one input: a moving average of white noise.

    Parameters
    ----------
    variance : float or prior, optional
    length_scale : float or prior, optional
        Width of the average; values farther apart are independent.
    ard : bool, default=False
        Changes the name of the length scale only, as there is one input.
    """

    _kind = radial.TRIANGLE
    _most = 1


@dataclass(frozen=True)
class Spherical(_Compact):
    """variance * (1 - 3/2 r + 1/2 r³) for r < 1, else 0, with r² = Σ_k (x_k - x'_k)² / length_scale_k², up to 3 inputs.

    The average of white noise over a ball of diameter 1 (in three dimensions; in fewer, its restriction).

    Parameters
    ----------
    variance : float or prior, optional
    length_scale : float, sequence of float or prior, optional
        Diameter of the ball along each input: one for all or, with `ard`, one per input.
    ard : bool, default=False
        One length scale per input.
    """

    _kind = radial.SPHERICAL
    _most = 3
