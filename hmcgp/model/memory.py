"""Memory of an evaluation of a model."""

from hmcgp.evidence import EvidenceProvider, SupportsWorkSpace
from hmcgp.kernels import Kernel
from hmcgp.kernels.per_class import PerClass
from hmcgp.runtime.memory import WorkSpace


def work_space(n: int, n_latents: int, kernel: Kernel, evidence: EvidenceProvider) -> WorkSpace:
    """Memory that an evaluation with its gradient takes, at least, for n rows of n_latents functions each."""
    matrices = evidence.matrices(n_latents) if isinstance(evidence, SupportsWorkSpace) else 2
    if isinstance(kernel, PerClass):
        matrices += 2 * n_latents  # a covariance and a cotangent for each

    def instead(nbytes: int) -> str:
        rows = int((nbytes / (8 * matrices)) ** 0.5)
        return f"take a random sample of at most {rows:,} rows (sampler='map' needs no less memory)"

    return WorkSpace(8 * matrices * n * n, f"{matrices} matrices of {n:,} x {n:,} numbers", instead)
