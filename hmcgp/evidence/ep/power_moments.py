"""Compiled moments of a power of one label's likelihood, p(y | f)^ω with 0 < ω < 1, times a Gaussian cavity N(f; μ, v).

Behind a step the power is a step again: with c = ε^ω + (1 - ε)^ω,

    [ε + (1 - 2ε)H]^ω = c [ε' + (1 - 2ε')H],   ε' = ε^ω/c.

Elsewhere there is no closed form.  Gauss-Legendre panels, as narrow as the integrand asks for: 3 of its least standard
deviations, since the curvature of -log p lies between 0 and 1 (probit; ¼ for the logistic), and not much more than the
distance to the points where p vanishes in the complex plane, which lie above and below f = 0 and, with flipped labels,
above and below the f where Φ(f) is about ε, at a distance of about π/|f|.  Panels begin and end where the integrand has
fallen by exp(-38).  Where labels are flipped, it may have two peaks, of the clean likelihood and of the floor ε^ω.
"""

import math

import numpy as np

from hmcgp.evidence.ep.tilted_moments import cumulants, flip_slope, tilted
from hmcgp.likelihoods.terms import LOGISTIC, PROBIT, STEP, logistic_terms, probit_terms
from hmcgp.numerics.compiled import compiled_inside

_DIGITS = 38.0
_REACH = math.sqrt(2.0 * _DIGITS)  # standard deviations until a Gaussian has fallen as far
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_FAR = 37.0  # the logistic function is an exponential, or 1, to all digits
_PROBIT_SATURATES = 8.3  # the probit's Φ is 1
_ERFC_UNDERFLOWS = -35.0  # below, erfc underflows
_SQRT_HALF = math.sqrt(0.5)


@compiled_inside
def _flipped_step(flip: float, power: float) -> tuple[float, float]:
    """Log c and ε' of a power of a step, which is a step again."""
    if flip == 0.0:
        return 0.0, 0.0
    wrong, right = flip**power, (1.0 - flip) ** power
    return math.log(wrong + right), wrong / (wrong + right)


@compiled_inside
def _log_p(kind: int, flip: float, x: float) -> float:
    """Log p(y = +1 | f = x)."""
    if kind == LOGISTIC:
        return min(x, 0.0) - math.log1p(math.exp(-abs(x)))
    if flip > 0.0:
        return math.log(flip + (1.0 - 2.0 * flip) * 0.5 * math.erfc(-x * _SQRT_HALF))
    if x > _ERFC_UNDERFLOWS:
        return math.log(0.5 * math.erfc(-x * _SQRT_HALF))
    return probit_terms(1.0, x)[0]


@compiled_inside
def _min_deviation(kind: int, power: float, v: float) -> float:
    """Lower bound on the standard deviation of p^ω N, from the curvatures of its logarithm."""
    return 1.0 / math.sqrt(1.0 / v + power * (0.25 if kind == LOGISTIC else 1.0))


@compiled_inside
def _mode_of_clean_label(kind: int, power: float, mu: float, v: float) -> float:
    """Maximum of p^ω N where no label is flipped: the only root of ω g(x) - (x - μ)/v, which falls with x.

    The root lies above μ, and not far above 0 or μ, since g(x) < 1.4 exp(-x).
    """
    x, before = max(mu, 0.0), math.inf
    low, high = mu, x + max(math.log(1.4 * power) + math.log(v), 1.0)
    for _ in range(200):
        _, g, w, _ = logistic_terms(1.0, x) if kind == LOGISTIC else probit_terms(1.0, x)
        slope = power * g - (x - mu) / v
        if slope > 0.0:
            low = x
        else:
            high = x
        step = slope / (power * w + 1.0 / v)
        if abs(step) <= 1e-3 * _min_deviation(kind, power, v):
            break
        if abs(step) > 0.5 * before or not low <= x + step <= high:
            step = 0.5 * (low + high) - x
        x, before = x + step, abs(step)
    return x


@compiled_inside
def _distance_to_fall(kind: int, power: float, mu: float, v: float, peak: float, reach: float, least: float) -> float:
    """Distance from its peak, of at most `reach`, at which the integrand has fallen below exp(least)."""
    near, enough = 0.0, 4.0 * _min_deviation(kind, power, v)
    for _ in range(600):  # halvings of any number in floating point
        if not abs(reach - near) > enough:
            break
        x = peak + 0.5 * (near + reach)
        if power * _log_p(kind, 0.0, x) - 0.5 * (x - mu) ** 2 / v > least:
            near = x - peak
        else:
            reach = x - peak
    return reach


@compiled_inside
def _integration_limits(kind: int, flip: float, power: float, mu: float, v: float) -> tuple[float, float, float, float]:
    """Left and right end of the integral, its highest peak, and the log of the integrand there, approximately."""
    s = math.sqrt(v)
    peak = _mode_of_clean_label(kind, power, mu, v)
    top = power * _log_p(kind, 0.0, peak) - 0.5 * (peak - mu) ** 2 / v
    floor = power * math.log(flip) if flip > 0.0 else -math.inf
    highest = max(top, floor)
    left, right = math.inf, -math.inf
    if top > highest - _DIGITS:
        left = peak + _distance_to_fall(kind, power, mu, v, peak, -_REACH * s, highest - _DIGITS)
        # beside a peak that is far away, 0 is rounded off; but log p(x) < x, and < -x²/2 for the probit
        fallen = (_DIGITS - highest) / power
        left = max(left, -fallen if kind == LOGISTIC else -math.sqrt(2.0 * fallen))
        right = peak + _distance_to_fall(kind, power, mu, v, peak, _REACH * s, highest - _DIGITS)
    if floor > highest - _DIGITS:
        reach = s * math.sqrt(2.0 * (_DIGITS - highest + floor))
        left, right = min(left, mu - reach), max(right, mu + reach)
    return left, right, (peak if top >= floor else mu), highest


@compiled_inside
def _panel_end(kind: int, flip: float, power: float, mu: float, v: float, x: float) -> float:
    """Right end of the panel that begins at x; where p is constant to all digits, only N limits its width."""
    s, least = math.sqrt(v), _min_deviation(kind, power, v)
    width = 1.5 + 0.5 * abs(x)
    if kind == LOGISTIC:
        if x < -_FAR:
            return min(x + 3.0 * s, x + 12.0 / max(power - (x - mu) / v, 1e-3 / s), -_FAR)  # an exponential times N
        return x + (min(width, 3.0 * least) if x < _FAR else 3.0 * s)
    if flip > 0.0:
        floor = -math.sqrt(2.0 * (_FAR - math.log(flip)))  # below, Φ is nothing beside ε
        if x < floor:
            return min(x + 3.0 * s, floor)
        kink = -math.sqrt(-2.0 * math.log(flip))
        width = min(width, math.pi / (1.0 - kink) + 0.5 * abs(x - kink))
        if x < kink - 2.0:
            return x + min(width, 3.0 * s)
    return x + (min(width, 3.0 * least) if x < _PROBIT_SATURATES else 3.0 * s)


@compiled_inside
def _power_moments(
    kind: int, flip: float, power: float, mu: float, v: float
) -> tuple[float, float, float, float, float]:
    """Log Ẑ, Ẑ = ∫ p^ω N, of a label +1, the mean of p^ω N/Ẑ less μ, and its cumulants 2 to 4; not behind a step."""
    s = math.sqrt(v)
    left, right, centre, highest = _integration_limits(kind, flip, power, mu, v)
    zeroth, first, second, third, fourth = 0.0, 0.0, 0.0, 0.0, 0.0
    begin = left
    while begin < right:
        end = min(_panel_end(kind, flip, power, mu, v, begin), right)
        if not end > begin:  # rounded away beside μ
            return math.nan, math.nan, math.nan, math.nan, math.nan
        middle, half = 0.5 * (begin + end), 0.5 * (end - begin)
        for j in range(_NODES.size):
            x = middle + half * _NODES[j]
            exponent = power * _log_p(kind, flip, x) - 0.5 * (x - mu) ** 2 / v
            mass = half / s * _WEIGHTS[j] * math.exp(exponent - highest)
            d = (x - centre) / s  # whose powers do not overflow
            zeroth += mass
            first += mass * d
            second += mass * d * d
            third += mass * d * d * d
            fourth += mass * d * d * d * d
        begin = end
    m1, m2, m3, m4 = first / zeroth, second / zeroth, third / zeroth, fourth / zeroth
    k2 = m2 - m1 * m1
    k3 = m3 - m1 * (3.0 * m2 - 2.0 * m1 * m1)
    k4 = m4 - m1 * (4.0 * m3 - m1 * (6.0 * m2 - 3.0 * m1 * m1)) - 3.0 * k2 * k2
    log_z = highest + math.log(zeroth) - 0.5 * math.log(2.0 * math.pi)
    return log_z, centre - mu + s * m1, v * k2, s * v * k3, v * v * k4


@compiled_inside
def _probit_flip_slope(flip: float, power: float, mu: float, v: float, log_z: float) -> float:
    """∂ log Ẑ/∂ε of a label +1 behind a probit, ε > 0: the mean of ω(1 - 2Φ)/p = ω(1/p - 2)/(1 - 2ε).

    1/p outweighs p^ω at the left, where p is least, so that ∫ p^(ω-1) N wants a range of its own: 1 <= 1/p <= 1/ε.
    """
    s = math.sqrt(v)
    begin, right = mu - s * math.sqrt(2.0 * (_DIGITS - (1.0 - power) * math.log(flip))), mu + _REACH * s
    total, highest = 0.0, -math.inf
    while begin < right:
        end = min(_panel_end(PROBIT, flip, 1.0, mu, v, begin), right)
        if not end > begin:  # rounded away beside μ
            return math.nan
        middle, half = 0.5 * (begin + end), 0.5 * (end - begin)
        for j in range(_NODES.size):
            x = middle + half * _NODES[j]
            exponent = (power - 1.0) * _log_p(PROBIT, flip, x) - 0.5 * (x - mu) ** 2 / v
            if exponent > highest:
                total *= math.exp(highest - exponent)
                highest = exponent
            total += half * _WEIGHTS[j] * math.exp(exponent - highest)
        begin = end
    log_inverse = highest + math.log(total) - 0.5 * math.log(2.0 * math.pi * v) - log_z
    return power * (math.exp(log_inverse) - 2.0) / (1.0 - 2.0 * flip)


@compiled_inside
def tilted_power(kind: int, flip: float, power: float, y: float, mu: float, v: float) -> tuple[float, float, float]:
    """Log Ẑ, a and U of p(y | f)^power, 0 < power <= 1, under the cavity N(mu, v) (see `tilted`)."""
    if power == 1.0:
        return tilted(kind, flip, y, mu, v)
    if kind == STEP:
        log_c, flip = _flipped_step(flip, power)
        log_z, a, U = tilted(kind, flip, y, mu, v)
        return log_c + log_z, a, U
    log_z, shift, k2, _, _ = _power_moments(kind, flip, power, y * mu, v)
    return log_z, y * shift / v, (1.0 - k2 / v) / v


@compiled_inside
def cumulants_power(
    kind: int, flip: float, power: float, y: float, mu: float, v: float
) -> tuple[float, float, float, float, float]:
    """Log Ẑ, the mean less mu, and cumulants 2 to 4 of the tilted distribution (see `cumulants`)."""
    if power == 1.0:
        return cumulants(kind, flip, y, mu, v)
    if kind == STEP:
        log_c, flip = _flipped_step(flip, power)
        log_z, shift, k2, k3, k4 = cumulants(kind, flip, y, mu, v)
        return log_c + log_z, shift, k2, k3, k4
    log_z, shift, k2, k3, k4 = _power_moments(kind, flip, power, y * mu, v)
    return log_z, y * shift, k2, y * k3, k4


@compiled_inside
def flip_slope_power(kind: int, flip: float, power: float, y: float, mu: float, v: float) -> float:
    """∂ log Ẑ/∂ε, which is infinite at ε = 0 unless the power is 1."""
    if power == 1.0:
        return flip_slope(kind, flip, y, mu, v)
    if flip == 0.0:
        return math.inf
    if kind == STEP:
        right, wrong = 0.5 * math.erfc(-y * mu * math.sqrt(0.5 / v)), 0.5 * math.erfc(y * mu * math.sqrt(0.5 / v))
        p_right, p_wrong = (1.0 - flip) ** power, flip**power
        slope = p_wrong * wrong / flip - p_right * right / (1.0 - flip)
        return power * slope / (p_right * right + p_wrong * wrong)
    return _probit_flip_slope(flip, power, y * mu, v, _power_moments(kind, flip, power, y * mu, v)[0])
