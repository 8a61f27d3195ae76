"""Memory that a model needs."""

from __future__ import annotations

from hmcgp.evidence import EvidenceProvider, SupportsWorkSpace
from hmcgp.kernels import Kernel
from hmcgp.kernels.per_class import PerClass
from hmcgp.runtime.memory import WorkSpace


def work_space(n: int, n_latents: int, evidence: EvidenceProvider, kernel: Kernel) -> WorkSpace:
    """Memory that an evaluation of n rows with its gradient takes, at least: n x n arrays."""
    matrices = evidence.matrices(n_latents) if isinstance(evidence, SupportsWorkSpace) else 2
    if isinstance(kernel, PerClass):
        matrices += 2 * n_latents  # a covariance and a cotangent for each
    what = f"{matrices} matrices of {n:,} x {n:,} numbers"

    def instead(nbytes: int) -> str:
        rows = int((nbytes / (8 * matrices)) ** 0.5)
        return f"take a random sample of at most {rows:,} rows (sampler='map' needs no less memory)"

    return WorkSpace(8 * matrices * n * n, what, instead)
