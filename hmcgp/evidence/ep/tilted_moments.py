"""Compiled moments of one label's likelihood times a Gaussian cavity N(f; μ, v).

    Ẑ = ∫ p(y | f) N(f; μ, v) df,   a = ∂ log Ẑ/∂μ,   U = -∂²log Ẑ/∂μ²

The tilted distribution p(y | f) N(f; μ, v)/Ẑ has mean μ + v a and variance v(1 - v U).

Label noise at rate ε, with s² = 1 behind a probit and 0 behind a step, z = yμ/√(s² + v):

    Ẑ = ε + (1 - 2ε)Φ(z),   a = y r/√(s² + v),   U = r(z + r)/(s² + v),   r = (1 - 2ε)φ(z)/Ẑ = q r₀

with r₀ = φ(z)/Φ(z), h₀ = r₀ + z and q = 1/(1 + ρ), ρ = ε/((1 - 2ε)Φ(z)).  Everything follows from log Φ, r₀ and h₀,
none of which overflows or cancels in the tails, and z + r = h₀ - (1 - q)r₀.

Logistic, p(m) = E[σ(f)], f ~ N(m, v), by the trapezoidal rules of `quadrature` and its two identities, which take
(log p, a, U) at one mean to those at another:

    mirror   p(-m) = 1 - p(m)                    tilt   log p(m) = m + v/2 + log p(-m - v)

    narrow, v <= 25/16   m >= -v/2 (else tilt).  Under the tilted weights, with σ̄ = 1 - σ: a = E[σ̄], U = E[σσ̄] - var σ
    wide                 -v/2 <= m <= 0 (else tilt and mirror, in turn).  σ(x) = Φ(kx) + r(x), k² = π/8: p, p' and p''
                         are a closed form plus a sum over r each, relative to exp(-m²/2v), so that none underflows
"""

import math

from hmcgp.likelihoods.terms import LOGISTIC, PROBIT, probit_terms
from hmcgp.numerics.compiled import compiled_inside
from hmcgp.numerics.quadrature import (
    DIGITS,
    NARROW_T,
    NARROW_VARIANCE,
    NARROW_WEIGHTS,
    PROBIT_VARIANCE,
    WIDE_STEP,
    WIDE_WEIGHTS,
    n_wide_nodes,
)

_SQRT_2PI = math.sqrt(2.0 * math.pi)


@compiled_inside
def tilted(kind: int, flip: float, y: float, mu: float, v: float) -> tuple[float, float, float]:
    """Return log Ẑ, a and U of a label y = ±1 under the cavity N(mu, v)."""
    if kind == LOGISTIC:
        log_z, a, U = _logistic(y * mu, v)
        return log_z, y * a, U
    spread = v + 1.0 if kind == PROBIT else v
    root = math.sqrt(spread)
    z = y * mu / root
    log_phi, r, U, _ = probit_terms(1.0, z)
    if flip == 0.0:
        return log_phi, y * r / root, U / spread
    rho = math.exp(math.log(flip) - math.log1p(-2.0 * flip) - log_phi)
    q, rest = 1.0 / (1.0 + rho), 1.0 / (1.0 + 1.0 / rho) if rho > 0.0 else 0.0
    log_z = math.log1p(-2.0 * flip) + log_phi + math.log1p(rho) if rho < 1e300 else math.log(flip)
    h = U / r if r > 0.0 else z
    return log_z, y * q * r / root, q * r * (h - rest * r) / spread


@compiled_inside
def cumulants(kind: int, flip: float, y: float, mu: float, v: float) -> tuple[float, float, float, float, float]:
    """Return log Ẑ, the mean less μ, and cumulants 2 to 4 of the tilted distribution; behind a probit or a step only.

    κ_k = v^k dᵏ log Ẑ/dμᵏ, to which the cavity adds v where k = 2.  With g₁ = r, g₂ … the derivatives of log Ẑ in z,
    g₂ = -r(z + r), g₃ = -g₂(z + r) - r(1 + g₂), g₄ = -g₃(z + 2r) - 2g₂(1 + g₂).
    """
    log_z, a, U = tilted(kind, flip, y, mu, v)
    spread = v + 1.0 if kind == PROBIT else v
    root = math.sqrt(spread)
    r, g2 = y * a * root, -U * spread
    z_r = -g2 / r if r > 0.0 else y * mu / root  # z + r, which cancels in the tail
    g3 = -g2 * z_r - r * (1.0 + g2)
    g4 = -g3 * (z_r + r) - 2.0 * g2 * (1.0 + g2)
    ratio = v / root
    return log_z, v * a, v * (1.0 - U * v), y * ratio**3 * g3, ratio**4 * g4


@compiled_inside
def flip_slope(kind: int, flip: float, y: float, mu: float, v: float) -> float:
    """∂ log Ẑ/∂ε = (1 - 2Φ(z))/Ẑ."""
    z = y * mu / math.sqrt(v + 1.0 if kind == PROBIT else v)
    return -math.erf(z * math.sqrt(0.5)) * math.exp(-tilted(kind, flip, y, mu, v)[0])


@compiled_inside
def _logistic(m: float, v: float) -> tuple[float, float, float]:
    """Log p, a and U of p = E[σ(f)], f ~ N(m, v)."""
    if v <= NARROW_VARIANCE:
        if m >= -0.5 * v:
            return _logistic_narrow(m, v)
        log_p, a, U = _logistic_narrow(-m - v, v)
        return m + 0.5 * v + log_p, 1.0 - a, U
    if m <= 0.0:
        return _logistic_wide(m, v)
    log_q, a, U = _logistic_wide(-m, v)
    return _mirror(log_q, a, U)


@compiled_inside
def _mirror(log_q: float, a: float, U: float) -> tuple[float, float, float]:
    """Log p, a and U of p = 1 - q at mean -m, from those of q at m: p' = q', p'' = -q'' = -q(a² - U)."""
    q = math.exp(log_q)
    p = -math.expm1(log_q)
    slope = q * a / p
    return math.log1p(-q), slope, slope * slope + q * (a * a - U) / p


@compiled_inside
def _logistic_narrow(c: float, v: float) -> tuple[float, float, float]:
    """Log p, a and U at mean c >= -v/2, for v <= 25/16: sums over σ."""
    s = math.sqrt(v)
    p, p_bar, both, square = 0.0, 0.0, 0.0, 0.0  # sums of σ, σ̄, σσ̄ and σ²σ̄
    for j in range(1 - NARROW_T.size, NARROW_T.size):
        weight = NARROW_WEIGHTS[abs(j)]
        x = c + s * (NARROW_T[j] if j >= 0 else -NARROW_T[-j])
        e = math.exp(-abs(x))
        small = e / (1.0 + e)
        large = 1.0 / (1.0 + e)
        sigma, bar = (large, small) if x >= 0.0 else (small, large)
        p += weight * sigma
        p_bar += weight * bar
        both += weight * small * large
        square += weight * small * large * sigma
    a = both / p  # E[σ̄] under the weights σN/p
    mean_both = square / p
    # var σ = E[σ] E[σ̄] - E[σσ̄], with E[σ] = 1 - a; by its own sum it would be no more accurate
    U = 2.0 * mean_both - a * (1.0 - a)
    return math.log(p) if p < 0.5 else math.log1p(-p_bar), a, U


@compiled_inside
def _logistic_wide(m: float, v: float) -> tuple[float, float, float]:
    """Log p, a and U at mean m <= 0, for v > 25/16: by identities from a mean in [-v/2, 0]."""
    if m >= -0.5 * v:
        return _logistic_centre(m, v)
    if m < -1.5 * v - 2.0 * DIGITS:  # the mirror of p(m + v) = exp(m + 3v/2) is 1 to all digits
        q = math.exp(m + 1.5 * v)
        return m + 0.5 * v, 1.0 - q, q
    shifts = math.ceil(-m / v) - 1  # tilt and mirror together take m to m + v: until it lies in [-v, 0]
    b = m + shifts * v
    if b >= -0.5 * v:
        log_p, a, U = _logistic_centre(b, v)
    else:
        log_p, a, U = _logistic_centre(min(-b - v, 0.0), v)
        log_p, a = b + 0.5 * v + log_p, 1.0 - a
    for _ in range(shifts):
        log_p, a, U = _mirror(log_p, a, U)
        b -= v
        log_p, a = b + 0.5 * v + log_p, 1.0 - a
    return log_p, a, U


@compiled_inside
def _logistic_centre(c: float, v: float) -> tuple[float, float, float]:
    """Log p, a and U at mean -v/2 <= c <= 0, for v > 25/16: a probit and sums over the rest."""
    tilt = c / v
    exponent = 0.5 * c * tilt
    spread = v + PROBIT_VARIANCE
    z = c / math.sqrt(spread)
    log_phi, hazard, _, _ = probit_terms(1.0, z)
    p = math.exp(log_phi + exponent)  # the probit part, and its derivatives, times exp(c²/2v)
    slope = p * hazard / math.sqrt(spread)
    bend = -c / spread * slope
    # r part: N(-x; c, v) - N(x; c, v) = N(0; c, v)(left - right), with left, right = exp(∓x c/v - x²/2v)
    q = math.exp(-WIDE_STEP * WIDE_STEP / v)
    left_ratio = math.exp(-WIDE_STEP * (tilt + 0.5 * WIDE_STEP / v))
    right_ratio = math.exp(WIDE_STEP * (tilt - 0.5 * WIDE_STEP / v))
    left, right, zeroth, first, second = 1.0, 1.0, 0.0, 0.0, 0.0
    for j in range(n_wide_nodes(tilt, v)):
        left *= left_ratio
        right *= right_ratio
        left_ratio *= q
        right_ratio *= q
        weighted_left, weighted_right = WIDE_WEIGHTS[j] * left, WIDE_WEIGHTS[j] * right
        x = WIDE_STEP * (j + 1)
        up, down = -x / v - tilt, x / v - tilt  # d log N(∓x; c, v)/dc
        zeroth += weighted_left - weighted_right
        first += up * weighted_left - down * weighted_right
        second += up * up * weighted_left - down * down * weighted_right
    scale = 1.0 / (_SQRT_2PI * math.sqrt(v))
    p += scale * zeroth
    a = (slope + scale * first) / p
    return math.log(p) - exponent, a, a * a - (bend + scale * (second - zeroth / v)) / p
