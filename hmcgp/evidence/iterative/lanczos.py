"""Lanczos quadrature of a log determinant, and the gradient of that estimate (derived in `estimate`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hmcgp.evidence.iterative.preconditioner import Preconditioner
from hmcgp.numerics.lapack import gram
from hmcgp.runtime.typing import Array


class Probes(NamedTuple):
    """Standard normal numbers, and the vectors z = W'ε + √s δ of covariance P that they become."""

    epsilon: Array  # (m, k)
    delta: Array  # (m, n)

    def vectors(self, P: Preconditioner) -> Array:
        """One z per row, of shape (m, n)."""
        return self.epsilon @ P.W + np.sqrt(P.noise) * self.delta


class Spectrum(NamedTuple):
    """T = QΘQ' of every probe."""

    theta: Array  # (m, J) Ritz values
    Q: Array  # (m, J, J)

    @classmethod
    def of(cls, steps: Array, ratios: Array) -> Spectrum:
        """From the coefficients γ and β of conjugate gradients, each of shape (m, J)."""
        J = steps.shape[1]
        T, i = np.zeros((len(steps), J, J)), np.arange(J)
        T[:, i, i] = 1.0 / steps
        T[:, i[1:], i[1:]] += ratios[:, :-1] / steps[:, :-1]
        T[:, i[1:], i[:-1]] = -np.sqrt(ratios[:, :-1]) / steps[:, :-1]  # eigh reads the lower triangle
        return cls(*np.linalg.eigh(T))

    def log_first_column(self) -> Array:
        """log(T) e_1, of shape (m, J); its first entry is φ."""
        return np.einsum("mij,mj,mj->mi", self.Q, np.log(self.theta), self.Q[:, 0])

    def in_krylov_space(self, differences: Array) -> Array:
        """Q (cc' ∘ differences) Q', of shape (m, J, J)."""
        A = self.Q * self.Q[:, :1]
        return A @ differences @ A.transpose(0, 2, 1)

    def log_differences(self) -> Array:
        """log[θ_a, θ_b] = log(θ_a/θ_b)/(θ_a - θ_b), and 1/θ_a where they are the same."""
        a, b = self.theta[:, :, None], self.theta[:, None, :]
        x = (a - b) / b
        return np.divide(np.log1p(x), x, out=np.ones_like(x), where=x != 0.0) / b


def gradient(
    P: Preconditioner, probes: Probes, spectrum: Spectrum, basis: Array, scale: Array, precision: float
) -> tuple[Array, Array]:
    """Derivatives of log|P| + n mean φ in K, of which the lower triangle is an estimate of C⁻¹, and in the noise.

    `basis`, of shape (m, J, n), holds U of every probe, and `scale` its z'P⁻¹z; directions of ∂φ/∂C of a relative size
    below `precision` are left out.
    """
    m, J, n = basis.shape
    weight = n / m
    slopes = spectrum.log_differences()
    first = spectrum.log_first_column()  # (m, J)
    Y = np.sqrt(weight) * _roots(spectrum.in_krylov_space(slopes), basis, precision)  # ∂/∂C = Y'Y

    # ∂/∂P = P⁻¹ + U'V, with (θ log θ)[a, b] = log a + b log[a, b]
    inP = -spectrum.in_krylov_space(np.log(spectrum.theta)[:, :, None] + spectrum.theta[:, None, :] * slopes)
    inP[:, 0, 0] += first[:, 0]
    U, V = basis.reshape(m * J, n), (weight * inP @ basis).reshape(m * J, n)
    first[:, 0] = 0.0
    dz = (2.0 * weight / np.sqrt(scale))[:, None] * np.einsum("mj,mjn->mn", first, basis)

    dW = 2.0 * (P.factor_solve() + (P.W @ U.T) @ V) + probes.epsilon.T @ dz
    dnoise = P.inverse_diagonal() + np.einsum("rn,rn->n", U, V) + np.einsum("rn,rn->n", Y, Y)
    dnoise += 0.5 * np.einsum("mn,mn->n", dz, probes.delta) / np.sqrt(P.noise)
    dK, rows = gram(Y), P.pull_back(dW)
    dK[P.pivots] += rows
    dK[:, P.pivots] += rows.T
    return dK, dnoise


def _roots(A: Array, basis: Array, precision: float) -> Array:
    """Rows Y with Y'Y = Σ U'AU over the probes, of which few are needed: log is smooth."""
    values, vectors = np.linalg.eigh(A)
    values = np.maximum(values, 0.0)
    keep = values > precision * values.max(axis=1, keepdims=True)
    roots = np.sqrt(values)[:, None, :] * vectors  # (m, J, J)
    return np.concatenate([root[:, k].T @ U for root, k, U in zip(roots, keep, basis, strict=True)])
