"""Memory of an evaluation of a model."""

from hmcgp.evidence import EvidenceProvider, SupportsWorkSpace
from hmcgp.kernels import Kernel
from hmcgp.kernels.per_class import PerClass
from hmcgp.runtime.memory import WorkSpace
from hmcgp.runtime.typing import Array


def work_space(
    X: Array, inducing: Array | None, n_latents: int, kernel: Kernel, evidence: EvidenceProvider
) -> WorkSpace:
    """Memory that an evaluation with its gradient takes, at least, for rows X of n_latents functions each."""
    n = len(X)
    if inducing is not None:
        return _low_rank(n, len(inducing), len(kernel.kernels) if isinstance(kernel, PerClass) else 1)
    matrices = evidence.matrices(n_latents) if isinstance(evidence, SupportsWorkSpace) else 2
    if isinstance(kernel, PerClass):
        matrices += 2 * n_latents  # a covariance and a cotangent for each

    def instead(nbytes: int) -> str:
        rows = int((nbytes / (8 * matrices)) ** 0.5)
        sample = f"take inducing inputs, or a random sample of at most {rows:,} rows"
        return f"{sample} (sampler='map' needs no less memory)"

    return WorkSpace(8 * matrices * n * n, f"{matrices} matrices of {n:,} x {n:,} numbers", instead)


_LOW_RANK_ARRAYS = 4  # of n x m numbers: covariances with the inducing inputs, V, the cotangent, and a product of them


def _low_rank(n: int, m: int, n_kernels: int) -> WorkSpace:
    """Memory that an evaluation with its gradient takes, at least, for n rows and m inducing inputs."""
    arrays = _LOW_RANK_ARRAYS * n_kernels

    def instead(nbytes: int) -> str:
        return f"take at most {max(nbytes // (8 * arrays * n), 1):,} inducing inputs"

    return WorkSpace(8 * arrays * n * m, f"{arrays} matrices of {n:,} x {m:,} numbers", instead)
