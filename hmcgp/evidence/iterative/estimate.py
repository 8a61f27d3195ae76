"""The evidence of regression by products with K alone: O(n²) operations each, few of them (Gibbs & MacKay 1997).

    log Z = -½ y'C⁻¹y - ½ log|C| - ½ n log 2π,     C = K + diag s,     P ≈ C, of low rank (`preconditioner`)

**Quadratic form.**  Preconditioned conjugate gradients solve Cx = b.  For any x with residual r = b - Cx, Skilling's
bounds, in coordinates divided by √s where C = A + I with A positive semidefinite, become

    x'(b + r) ≤ b'C⁻¹b ≤ x'(b + r) + Σ r_i²/s_i,

and the iterations stop when they are closer than tol² b'P⁻¹b.

**Determinant.**  With u = P^½ ẑ, ẑ ~ N(0, I), and M = P^-½ C P^-½,

    log|C| = log|P| + tr log M = log|P| + n E[ẑ' log(M) ẑ / ẑ'ẑ]      (normalised: exact where M is a multiple of I).

The Lanczos process of M from ẑ is the conjugate-gradient iteration on Cx = z, z = P^½ẑ: its coefficients are the
tridiagonal T = U'CU with U'PU = I, u_1 = P⁻¹z/√(z'P⁻¹z), and ẑ' log(M) ẑ/ẑ'ẑ = e_1' log(T) e_1 =: φ by Gauss quadrature
(Golub & Meurant).  No square root of P is needed: z = W'ε + √s δ has covariance P, for standard normal ε and δ.

**Gradient.**  The estimate is a smooth function of K for fixed ε, δ and pivots, and this is *its* gradient, not another
estimate of the gradient of log|C|, so that HMC sees one function.  From log M = ∫ [1/(1+t) - (M + t)⁻¹] dt over t > 0,

    z'P^-½ log(M) P^-½z = ∫ [z'P⁻¹z/(1+t) - z'(C + tP)⁻¹z] dt,     (C + tP)⁻¹z = U (T + t)⁻¹ e_1 √(z'P⁻¹z),

and with T = QΘQ', c = Q'e_1, f[a, b] the divided difference of f, per probe and divided by z'P⁻¹z,

    ∂/∂C = U Q (cc' ∘ log[Θ, Θ]) Q' U'       ∂/∂P = U (φ e_1e_1' - Q (cc' ∘ (θ log θ)[Θ, Θ]) Q') U'
    ∂/∂z = 2 U (log(T) e_1 - φ e_1)/√(z'P⁻¹z),

of which the last two go on to K and s through P and z.  That holds for the limit of the iteration, from which it is as
far away as the solutions are: tol.  In the code, vectors are rows.  Several columns of targets are further right-hand
sides of the same products; their quadratic forms add up, and the determinant counts k times.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hmcgp.errors import NotPositiveDefinite
from hmcgp.evidence.exact.factorisation import LOST, columns_gradient_inplace, is_known, rounding_of_fit
from hmcgp.evidence.iterative import lanczos
from hmcgp.evidence.iterative.conjugate_gradients import Solved, conjugate_gradients
from hmcgp.evidence.iterative.lanczos import Probes, Spectrum
from hmcgp.evidence.iterative.preconditioner import Preconditioner, precondition
from hmcgp.evidence.protocols import Evidence
from hmcgp.evidence.status import needs_factor
from hmcgp.numerics.constants import LOG_2PI
from hmcgp.runtime.typing import Array


class Settings(NamedTuple):
    """Settings of `Iterative`, with a number for each."""

    probes: int
    rank: int
    seed: int
    tol: float
    max_products: int


@dataclass(frozen=True)
class IterativePosterior:
    """N(Kα, (K⁻¹ + diag(s)⁻¹)⁻¹), the posterior of the latent values, to the tolerance of its solutions.

    It cannot leave rows out: the diagonal of C⁻¹ would take n solutions, more than a factorisation.
    """

    f: Array  # (n,) mean, Kα = y - sα; (n, k) for k columns of targets
    alpha: Array  # (n,) C⁻¹ y, or (n, k)
    bracket: tuple[float, float]  # bounds on ½ y'C⁻¹y, added up over columns
    settings: Settings
    K: Array | None  # (n, n); None where the gradient was asked for, as of a posterior by a factor
    P: Preconditioner | None

    @property
    def start(self) -> Array:
        """The posterior mean; no solution needs it."""
        return self.f

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean k'α and variance k** - k'C⁻¹k at new inputs (see `Posterior.predict`)."""
        solved = self._solve(K_cross)
        explained = np.einsum("mn,nm->m", solved.X, K_cross) + np.einsum("mn,mn->m", solved.X, solved.residuals)
        return K_cross.T @ self.alpha, np.maximum(k_diag - explained, 0.0)

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Latent mean k'α and covariance K** - k'C⁻¹k at new inputs (see `SupportsJointPrediction`)."""
        solved = self._solve(K_cross)
        explained = solved.X @ (K_cross + solved.residuals.T)
        return K_cross.T @ self.alpha, K_new - 0.5 * (explained + explained.T)

    def _solve(self, K_cross: Array) -> Solved:
        K = needs_factor(self.K, "to predict")
        assert self.P is not None  # kept where K is
        B = np.ascontiguousarray(K_cross.T)
        return conjugate_gradients(K, self.P, B, self.settings.tol, self.settings.max_products)


def solve(K: Array, y: Array, noise: Array, settings: Settings, gradient: bool) -> tuple[Evidence, Array | None]:
    """Evidence of targets y under N(0, K + diag noise), K read in full, and its derivatives in the noise or None."""
    n, largest = len(y), np.max(np.diag(K))
    if not noise.min() > LOST * largest:
        raise NotPositiveDefinite(
            "Iterative needs noise in every row that is not lost beside the prior variance (least "
            f"noise {noise.min():.1e}, largest prior variance {largest:.1e})."
        )
    rng = np.random.default_rng(settings.seed)
    pivots = np.sort(rng.permutation(n)[: settings.rank])
    probes = Probes(rng.normal(size=(settings.probes, len(pivots))), rng.normal(size=(settings.probes, n)))
    P = precondition(K, noise, pivots)
    Y = np.atleast_2d(y.T)  # (k, n)
    k = len(Y)
    B = np.vstack([probes.vectors(P), Y])
    solved = conjugate_gradients(K, P, B, settings.tol, settings.max_products, keep=gradient)
    spectrum = Spectrum.of(solved.steps[:, :-k].T, solved.ratios[:, :-k].T)
    alpha = np.ascontiguousarray(solved.X[-k:].T)  # (n, k)
    lower = float(np.vdot(alpha.T, Y + solved.residuals[-k:]))
    log_determinant = P.log_determinant() + n * spectrum.log_first_column()[:, 0].mean()
    log_z = float(-0.5 * (lower + k * (log_determinant + n * LOG_2PI)))
    if not is_known(log_z, rounding_of_fit(K, noise, alpha)):
        raise NotPositiveDefinite(
            f"Iterative: rounding eats log Z (least noise {noise.min():.1e}, largest prior variance "
            f"{largest:.1e}); is the noise too small for rows that repeat with other targets?"
        )
    dK = dnoise = None
    if gradient:
        basis = np.stack([u[:-k] for u in solved.basis], axis=1)  # (m, J, n)
        dK, dnoise = lanczos.gradient(P, probes, spectrum, basis, solved.scale[:-k], 1e-3 * settings.tol)
        columns_gradient_inplace(dK, alpha)
        dnoise = 0.5 * ((alpha**2).sum(axis=1) - k * dnoise)
    bracket = (0.5 * lower, 0.5 * (lower + float(solved.width[-k:].sum())))
    kept = (None, None) if gradient else (K, P)
    alpha = alpha.reshape(y.shape)
    posterior = IterativePosterior(y - (noise * alpha.T).T, alpha, bracket, settings, *kept)
    residual = float(np.sqrt(np.max(solved.width / np.where(solved.scale > 0.0, solved.scale, 1.0))))
    return Evidence(log_z, dK, np.empty(0), posterior, len(solved.steps), residual), dnoise
