"""Evidence of regression under a low-rank covariance; symbols as in `structure` and `evidence.exact`.

    y = f + e,   f ~ N(0, C),   e_i ~ N(0, s_i/ω_i),   w_i = ω_i/s_i,   α = (C + W⁻¹)⁻¹ y = (I + WC)⁻¹ W y

    log Z = -½ y'α - ½ log|I + WC| + ½ Σ (ω_i log(1/s_i) - ω_i log 2π),     G = ½(αα' - R),

and ∂ log Z/∂s_i = G_ii/ω_i + ½ (1 - ω_i)/s_i: the weights ω multiply log likelihoods, N(y; f, s)^ω.  Columns of y that
share C and the noise add up.  Nothing iterates, and the gradient is exact.

Titsias' bound (2009) is of the dense model: with C = VV' alone, and t = diag K - diag VV' the variance that the
inducing inputs leave,

    log Z(VV') - ½ k Σ w_i t_i  <=  log Z(K),

so that the cotangent of t is -½ kw in the place of that of d, and ½ k t_i ω_i/s_i² joins the derivative in the noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hmcgp.errors import NotPositiveDefinite
from hmcgp.evidence.exact.factorisation import is_known
from hmcgp.evidence.low_rank.posterior import InducingPosterior, LowRankPosterior
from hmcgp.evidence.low_rank.structure import LowRank
from hmcgp.evidence.protocols import Evidence
from hmcgp.likelihoods import NoisyNumbers
from hmcgp.numerics.constants import EPS, LOG_2PI
from hmcgp.runtime.typing import Array


def gaussian_evidence(
    C: LowRank, y: Array, likelihood: NoisyNumbers, gradient: bool, variational: bool = False
) -> Evidence:
    """Evidence of numbers y, of shape (n,) or (n, k), under f ~ N(0, C) and Gaussian noise; or Titsias' bound."""
    n, left = len(y), C.d
    if variational:
        C = replace(C, d=np.zeros(n))
    noise, weights = likelihood.row_noise(n), likelihood.row_weights(n)
    w, Y = weights / noise, y.reshape(n, -1)
    sites, k = C.conditioned(w), Y.shape[1]
    solutions = [sites.respond(w * column) for column in Y.T]
    alpha, f = (np.stack(parts, axis=1) for parts in zip(*solutions, strict=True))
    log_z = -0.5 * (float(np.vdot(Y, alpha)) + k * sites.log_det) - 0.5 * k * float(weights @ (np.log(noise) + LOG_2PI))
    if variational:
        log_z -= 0.5 * k * float(w @ left)
    # entries of C and pivots of A are known to a relative eps (as of the dense one in `exact.factorisation`)
    reach = np.sqrt(C.variances + 1.0 / w) @ np.abs(alpha)
    if not is_known(log_z, 0.5 * EPS * (float(reach @ reach) + k * sites.cancellation)):
        raise NotPositiveDefinite(
            f"Exact: the noise (least {noise.min():.1e}) is so small beside the prior variance (largest "
            f"{C.variances.max():.1e}) that rounding eats log Z."
        )
    dK, dlik = None, np.empty(0)
    if gradient:
        solved = sites.solved_rows()
        variances = solved.variances
        dnoise = sites.pull_back_diagonal(0.5 * alpha, alpha, solved, k) / weights + 0.5 * k * (1.0 - weights) / noise
        if variational:
            dnoise += 0.5 * k * left * w / noise
        dlik = likelihood.pull_back(dnoise)
        dK = sites.pull_back(0.5 * alpha, alpha, solved, k, -0.5 * k * w if variational else None)
    else:
        variances = sites.variances()
    alpha, f = alpha.reshape(y.shape), f.reshape(y.shape)
    inducing = InducingPosterior.of(sites, alpha)
    posterior = LowRankPosterior(inducing.L, inducing.L_A, inducing.weight, f, alpha, w, variances)
    return Evidence(log_z, dK, dlik, posterior, 0, 0.0)
