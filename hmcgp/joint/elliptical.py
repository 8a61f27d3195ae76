"""Elliptical slice sampling (Murray, Adams & MacKay 2010).

For a density N(x; 0, S) exp(h(x)): with another draw x' ~ N(0, S), every point x cos φ + x' sin φ of their ellipse is
as likely a priori.  An angle φ is drawn from a bracket that shrinks towards φ = 0, where the chain stands, until h
is above a level drawn uniformly below exp(h(x)).  Nothing is tuned, and no proposal is rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, log1p, pi, sin
from typing import NamedTuple

import numpy as np

SMALLEST = 1e-12  # angle below which rounding decides: the chain stays


class Turn(NamedTuple):
    """A turn on the ellipse: x cos φ + x' sin φ."""

    cos: float
    sin: float
    value: float  # h there


def turn(rng: np.random.Generator, here: float, h: Callable[[float, float], float]) -> Turn:
    """Draw a turn that leaves the density invariant.

    Parameters
    ----------
    rng : Generator
    here : float
        h at the current point.
    h : callable
        h(cos φ, sin φ) at any other.

    Returns
    -------
    Turn
    """
    level = here + log1p(-rng.random())
    angle = 2.0 * pi * rng.random()
    low, high = angle - 2.0 * pi, angle
    while high - low > SMALLEST:
        c, s = cos(angle), sin(angle)
        value = h(c, s)
        if value > level:
            return Turn(c, s, value)
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = low + (high - low) * rng.random()
    return Turn(1.0, 0.0, here)
