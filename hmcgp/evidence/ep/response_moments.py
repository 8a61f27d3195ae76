"""Compiled moments of the likelihood of a count or level times a Gaussian cavity (see `tilted_moments`).

A power of p is integrated by panels (`likelihoods.log_concave_average`).  Of ordered levels p itself has a closed form,

    Ẑ = Φ((b - μ)/√(1 + v)) - Φ((a - μ)/√(1 + v)),

the likelihood of cut points a/√(1 + v) and b/√(1 + v) at μ/√(1 + v), with its derivatives.  Constants of log p, which
do not depend on f, are left out (`likelihoods.terms`).
"""

import math

from hmcgp.evidence.ep.power_moments import tilted_power
from hmcgp.likelihoods.log_concave_average import tilted_integrals
from hmcgp.likelihoods.number_slopes import has_parameters, log_p_slopes
from hmcgp.likelihoods.terms import ORDINAL, ordinal_terms
from hmcgp.numerics.compiled import compiled_inside
from hmcgp.runtime.typing import Array


@compiled_inside
def _response_moments(
    kind: int, power: float, y: float, a: float, b: float, mu: float, v: float
) -> tuple[float, float, float]:
    """Log Ẑ, a = ∂ log Ẑ/∂μ and U = -∂²log Ẑ/∂μ² of p^power."""
    if kind == ORDINAL and power == 1.0:
        root = math.sqrt(1.0 + v)
        log_z, slope, U, _ = ordinal_terms(a / root, b / root, mu / root)
        return log_z, slope / root, U / (1.0 + v)
    log_z, shift, variance, _, _ = tilted_integrals(kind, y, a, b, mu, v, power, False)
    return log_z, shift / v, (1.0 - variance / v) / v


@compiled_inside
def tilted_row(
    kind: int, flip: float, power: float, y: Array, numbers: Array | None, i: int, mu: float, v: float
) -> tuple[float, float, float]:
    """Log Ẑ, a and U of row i, to this power, under the cavity N(mu, v).

    `numbers`, of shape (2, n), are those of `Likelihood.row_numbers`; None where y are labels.
    """
    if numbers is None:  # decided when this is compiled
        return tilted_power(kind, flip, power, y[i], mu, v)
    return _response_moments(kind, power, y[i], numbers[0, i], numbers[1, i], mu, v)


@compiled_inside
def number_slopes(kind: int, power: float, y: float, a: float, b: float, mu: float, v: float) -> tuple[float, float]:
    """Derivatives of log Ẑ of p^power in the numbers a and b of the row; 0 where there are no parameters."""
    if not has_parameters(kind):
        return 0.0, 0.0
    if kind == ORDINAL and power == 1.0:
        root = math.sqrt(1.0 + v)
        log_z, slope, _, _ = ordinal_terms(a / root, b / root, mu / root)
        of_a, of_b = log_p_slopes(kind, a / root, b / root, mu / root, log_z, slope)
        return of_a / root, of_b / root
    _, _, _, of_a, of_b = tilted_integrals(kind, y, a, b, mu, v, power, True)
    return power * of_a, power * of_b
