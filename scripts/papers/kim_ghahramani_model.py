"""The model of Kim & Ghahramani (2006), for `kim_ghahramani.py`.

p(y | f) = ε + (1 - 2ε) H(y f), a step behind which a label is wrong with probability ε, and the covariance

    v0 exp(-½ Σ (x_k - x'_k)²/ℓ_k²) + v1 + v2 δ(x, x'),

whose latent noise v2 makes the step soft.  Only ratios of the variances matter behind a step: here v0 = 1.  EP
integrates f; EM-EP finds ε, v1, v2 and ℓ at the maximum of the evidence.  Ours is the maximum of the posterior density
of log ℓ, log v1, log v2, all N(0, 3²), and logit 2ε, ε ~ Beta(½, ½) on (0, ½): nearly flat, but enough to keep the
length scale of an irrelevant input finite.  L-BFGS finds it; EM-EP ends at the same place after 20 to 100 times as many
evaluations, as that script shows on some of the data.

    s-soft   one length scale, ε learned        m-soft   one length scale per input, ε learned
    s-hard   one length scale, ε = 0
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hmcgp import Model, find_map
from hmcgp.kernels import Constant, SquaredExponential, White
from hmcgp.likelihoods import LabelNoise
from hmcgp.posterior import predict
from hmcgp.priors import Beta, LogNormal

VARIANTS = {"s-soft": (False, True), "m-soft": (True, True), "s-hard": (False, False)}  # ard, ε learned
WIDE, FLIP = LogNormal(0.0, 3.0), Beta(0.5, 0.5, upper=0.5)


class Fitted(NamedTuple):
    """A model and its most probable hyperparameters."""

    model: Model
    theta: Any  # (p,)
    position: Any  # (p,), unconstrained

    def value(self, name: str) -> float:
        return float(self.theta[self.model.names.index(name)])

    @property
    def length_scales(self) -> Any:
        return self.theta[[name.startswith("length_scale") for name in self.model.names]]

    @property
    def log_evidence(self) -> float:
        return self.model.log_evidence(self.theta)[0]

    def probabilities(self, X: Any) -> Any:
        return predict.probabilities(self.model, self.theta[None, :], X)


def build(X: Any, y: Any, variant: str) -> tuple[Model, Any]:
    """The model, and a smooth place to start: ℓ = √d, little noise."""
    ard, soft = VARIANTS[variant]
    kernel = SquaredExponential(1.0, WIDE, ard=ard) + Constant(WIDE) + White(WIDE)
    model = Model(X, y, kernel=kernel, likelihood=LabelNoise(FLIP if soft else 0.0, link="step"), evidence="ep")
    start = {"length_scale": np.sqrt(model.X.shape[1]), "constant.variance": 1.0, "white.variance": 0.1}
    return model, model.unconstrain({**start, "flip": 0.05} if soft else start)


def fit(X: Any, y: Any, variant: str, seed: int = 0) -> Fitted:
    """Maximise by L-BFGS, from the smooth start and from a draw of the prior."""
    model, start = build(X, y, variant)
    found = find_map(model, n_restarts=2, start=start, random_state=seed, n_jobs=1)
    return Fitted(model, found.parameters, found.position)


class Climbs(NamedTuple):
    """EM-EP, as in the paper, and L-BFGS, from the same start."""

    difference: float  # of the log densities at which they end
    em_ep: int  # evaluations of the density or of EM's surrogate
    lbfgs: int


def climbs(X: Any, y: Any, variant: str) -> Climbs:
    model, start = build(X, y, variant)
    em, direct = (find_map(model, method=method, n_restarts=1, start=start, n_jobs=1) for method in ("em-ep", "lbfgs"))
    return Climbs(em.logdensity - direct.logdensity, em.evaluations, direct.evaluations)
