"""Averages of the logistic function over a Gaussian.

    p(m, v) = E[sigma(f)],   f ~ N(m, v),   s = sqrt(v),   sigma(x) = 1/(1 + exp(-x))

`logistic_average` keeps its *relative* accuracy when p is tiny, because log losses are made of log p.  Two exact
identities bring every case to a mean c >= -v/2, where no accuracy can be lost:

    mirror   p(m, v) = 1 - p(-m, v)                      from sigma(x) = 1 - sigma(-x):   take m <= 0
    tilt     p(m, v) = exp(m + v/2) p(-m - v, v)         from sigma(x) = exp(x) sigma(-x), when m < -v/2

(exp(x) N(x; m, v) = exp(m + v/2) N(x; m + v, v): the tilt puts the far tail, p ~ exp(m + v/2), into the factor.)
Then the trapezoidal rule, whose error falls like exp(-2 pi d/h) with spacing h, d = pi being the distance from the
real line to the nearest pole of sigma:

    narrow, s <= 5/4   on sigma(c + s t) N(t; 0, 1), spacing 2/5 in t over +-8.4.  Nodes pair up,
                       sigma(c + a) + sigma(c - a) = (2 + E A)/(1 + E A + E^2),   E = exp(-c), A = 2 cosh(a)
    wide,   s > 5/4    sigma(x) = Phi(k x) + r(x) with k^2 = pi/8: the probit part has the closed form
                       E[Phi(k f)] = Phi(c/sqrt(v + 1/k^2)); r is odd, decays like exp(-|x|) and is negative for
                       x > 0, so that both parts have the same sign.  Spacing 1/2 in x, however large s is.

Powers replace exponentials inside both sums (cosh(j a), exp(-j^2 h^2/2v) follow from j - 1), so that an average costs
three or four exponentials in all.

`logistic_average_erf` is the sum of five error functions of Barber & Williams (1997, NIPS 9; Williams & Barber 1998,
IEEE PAMI 20), and `logistic_average_mackay` the formula of MacKay (1992, Neural Computation 4): the approximations of
the papers, kept for comparison; both are poor in the tails.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf, expit, ndtr

from hmcgp.errors import InvalidInput
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.runtime.typing import Array

NARROW_VARIANCE = 1.25**2
_NARROW_STEP = 0.4  # 0.4 * 5/4 = 1/2, the spacing in x: exp(-2 pi^2 / h) = 7e-18
NARROW_T = _NARROW_STEP * np.arange(22)  # 0 .. 8.4: the mass beyond is 4e-17
NARROW_WEIGHTS = np.exp(-0.5 * NARROW_T**2)
NARROW_WEIGHTS /= NARROW_WEIGHTS[0] + 2.0 * NARROW_WEIGHTS[1:].sum()

WIDE_STEP = 0.5
PROBIT_VARIANCE = 8.0 / math.pi  # 1/k^2: sigma(x) and Phi(k x) have the same slope at 0
DIGITS = 37.0  # exp(-37) = 8.5e-17
_WIDE_X = WIDE_STEP * np.arange(1, 150)  # up to 2 * 37, where exp(-x/2) = exp(-37)
WIDE_WEIGHTS = WIDE_STEP * (expit(-_WIDE_X) - ndtr(-_WIDE_X / math.sqrt(PROBIT_VARIANCE)))  # -h r(x) > 0


def logistic_average(mean: ArrayLike, variance: ArrayLike) -> Array:
    """Average of the logistic function over a Gaussian, to nearly full precision.

    Parameters
    ----------
    mean : array_like
        Means m, of any size.
    variance : array_like
        Variances v >= 0, broadcast against `mean`.

    Returns
    -------
    ndarray
        E[sigma(f)], f ~ N(mean, variance), of the broadcast shape.  The relative error is below 1e-12 (larger only by
        the conditioning of the problem itself, log p times the rounding unit); `logistic_average(-mean, variance)`
        is 1 - E[sigma(f)] with the same relative accuracy.
    """
    m, v = _broadcast(mean, variance)
    out = np.empty(m.shape)
    _averages(np.ascontiguousarray(m).ravel(), np.ascontiguousarray(v).ravel(), out.reshape(-1))
    return out


@compiled
def _averages(mean, variance, out):  # type: ignore[no-untyped-def]
    for i in range(mean.size):
        c, v, factor = -abs(mean[i]), variance[i], 1.0
        if not c >= -0.5 * v:
            c, factor = -c - v, math.exp(c + 0.5 * v)  # tilt
        p = factor * (_narrow(c, v) if v <= NARROW_VARIANCE else _wide(c, v))
        out[i] = p if mean[i] <= 0.0 else 1.0 - p  # mirror


@compiled_inside
def _narrow(c, v):  # type: ignore[no-untyped-def]
    """p(c, v) for c >= -v/2, v <= 25/16."""
    E = math.exp(-c)
    up = math.exp(_NARROW_STEP * math.sqrt(v))
    down = 1.0 / up
    grow, shrink = 1.0, 1.0
    total = NARROW_WEIGHTS[0] / (1.0 + E)
    for j in range(1, NARROW_WEIGHTS.size):
        grow *= up
        shrink *= down
        EA = E * (grow + shrink)
        total += NARROW_WEIGHTS[j] * (2.0 + EA) / (1.0 + EA + E * E)
    return total


@compiled_inside
def _wide(c, v):  # type: ignore[no-untyped-def]
    """p(c, v) for c >= -v/2, v > 25/16."""
    if c - 0.5 * v > DIGITS:
        return 1.0  # 1 - p < exp(v/2 - c); and no power below can overflow
    probit = 0.5 * math.erfc(-c / math.sqrt(2.0 * (v + PROBIT_VARIANCE)))
    # N(-x; c, v) - N(x; c, v) = N(0; c, v) (left - right), with left, right = exp(-+x c/v - x^2/2v)
    tilt = c / v
    q = math.exp(-WIDE_STEP * WIDE_STEP / v)
    left_ratio = math.exp(-WIDE_STEP * (tilt + 0.5 * WIDE_STEP / v))
    right_ratio = math.exp(WIDE_STEP * (tilt - 0.5 * WIDE_STEP / v))
    left, right, total = 1.0, 1.0, 0.0
    for j in range(n_wide_nodes(tilt, v)):
        left *= left_ratio
        right *= right_ratio
        left_ratio *= q
        right_ratio *= q
        total += WIDE_WEIGHTS[j] * (left - right)
    return probit + total * math.exp(-0.5 * c * tilt) / math.sqrt(2.0 * math.pi * v)


@compiled_inside
def n_wide_nodes(tilt, v):  # type: ignore[no-untyped-def]
    """Nodes up to the x where r(x) N(x) has fallen by exp(-37): x^2/2v + (1 + tilt) x = 37 for tilt in [-1/2, 0]."""
    if tilt > 0.0:
        return int(DIGITS / WIDE_STEP)
    b = 1.0 + tilt
    x = 2.0 * DIGITS / (b + math.sqrt(b * b + 2.0 * DIGITS / v))
    return min(int(x / WIDE_STEP) + 1, WIDE_WEIGHTS.size)


_ERF_SLOPES = np.array([0.41, 0.40, 0.37, 0.44, 0.39])
_ERF_POINTS = np.array([0.6, 2.0, 3.5, 4.5, np.inf])  # x = 0 gives the same equation as x = inf
_ERF_COEFFICIENTS = np.linalg.solve(0.5 * (1.0 + erf(np.outer(_ERF_POINTS, _ERF_SLOPES))), expit(_ERF_POINTS))


def logistic_average_erf(mean: ArrayLike, variance: ArrayLike) -> Array:
    """Average of the logistic function as a sum of five error functions (Barber & Williams 1997).

    sigma(x) ~ sum_k c_k (1 + erf(l_k x))/2 is averaged exactly, each term becoming
    (1 + erf(l_k m/sqrt(1 + 2 l_k^2 v)))/2.  The c_k interpolate sigma at x = 0, 0.6, 2, 3.5, 4.5 and infinity.

    Arguments as of `logistic_average`.  At most 4.4e-4 off.  The tails of the sum are Gaussian, hence far too thin: at
    mean -10 and variance 0 it is 10 times too small, at -12 340 times.  Do not take a log loss from it.
    """
    m, v = _broadcast(mean, variance)
    p = np.full(m.shape, 0.5 * _ERF_COEFFICIENTS.sum())
    for c, slope in zip(_ERF_COEFFICIENTS, _ERF_SLOPES, strict=True):
        p += 0.5 * c * erf(slope * m / np.sqrt(1.0 + 2.0 * slope**2 * v))
    return p


def logistic_average_mackay(mean: ArrayLike, variance: ArrayLike) -> Array:
    """Average of the logistic function by sigma(m/sqrt(1 + pi v/8)) (MacKay 1992).

    Arguments as of `logistic_average`.  Up to 1.0e-2 off for variances up to 4, 1.6e-2 up to 25, and never more than
    1.77e-2, the largest gap between Phi(z) and sigma(z sqrt(8/pi)), which is what remains as the variance grows.
    """
    m, v = _broadcast(mean, variance)
    return np.asarray(expit(m / np.sqrt(1.0 + v / PROBIT_VARIANCE)))


def _broadcast(mean: ArrayLike, variance: ArrayLike) -> tuple[Array, Array]:
    m, v = np.broadcast_arrays(np.asarray(mean, dtype=float), np.asarray(variance, dtype=float))
    if np.any(v < 0.0):
        raise InvalidInput(f"'variance' must not be negative; got {v.min():g}. Clip rounding errors at 0 first.")
    return m, v
