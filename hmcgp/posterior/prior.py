"""Functions drawn from the prior: hyperparameters from theirs, then the latent function given them.

θ ~ p(θ),     f ~ N(0, K_θ)
"""

from __future__ import annotations

import numpy as np

from hmcgp.errors import NotPositiveDefinite
from hmcgp.kernels import Kernel, contract
from hmcgp.likelihoods import Classes
from hmcgp.model import Model
from hmcgp.posterior.joint import covariance_root
from hmcgp.runtime.typing import Array

_ATTEMPTS = 20  # at hyperparameters whose covariance overflows, before another set is drawn no more


def prior_functions(rng: np.random.Generator, model: Model, X: Array, n: int) -> tuple[Array, Array]:
    """Hyperparameters, of shape (n, p), and latent values at inputs scaled as the model's, (n, m) or (n, m, C)."""
    thetas, functions = [], []
    several = model.likelihood.count(model.y) if isinstance(model.likelihood, Classes) else 0
    columns = model.y.shape[1] if model.y.ndim == 2 else several
    for _ in range(n):
        theta, K = _covariance(rng, model, X)
        if K.ndim == 3:  # a kernel for each class
            f = np.stack([covariance_root(part) @ rng.standard_normal(len(X)) for part in K], axis=1)
        else:
            f = covariance_root(K) @ rng.standard_normal((len(X), columns) if columns else len(X))
        thetas.append(theta)
        functions.append(f)
    return np.array(thetas), np.array(functions)


def _covariance(rng: np.random.Generator, model: Model, X: Array) -> tuple[Array, Array]:
    """Hyperparameters drawn from their prior at which the covariance of the rows of X is finite."""
    for _ in range(_ATTEMPTS):
        theta = model.constrain(model.initial(rng))
        kernel: Kernel = model.kernel_at(theta)
        with np.errstate(all="ignore"):
            K = contract.covariance(kernel, X)
        if np.isfinite(K).all():
            return theta, K
    raise NotPositiveDefinite(f"the prior covariance overflows at {_ATTEMPTS} draws of the hyperparameters.")
