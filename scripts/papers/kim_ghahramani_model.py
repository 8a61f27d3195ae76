"""The model of Kim & Ghahramani (2006), for `kim_ghahramani.py`.

p(y | f) = ε + (1 - 2ε) H(y f), a step behind which a label is wrong with probability ε, and the covariance

    v0 exp(-½ Σ l_k d_k(x, x')) + v1 + v2 δ(x, x'),

d_k = (x_k - x'_k)² for continuous inputs and 1 - δ(x_k, x'_k) for discrete ones; its latent noise v2 makes the step
soft.  Only ratios of the variances matter behind a step: here v0 = 1.  EP integrates f; hyperparameters are at the
maximum of the evidence, sought in logarithms from the paper's starting points.

    m-soft   one l for each input          s-soft   one l for all          s-hard   one l for all, v2 = 1e-6

ε is adapted in all three.  The maximum is that of the posterior density under priors so wide that they only keep the
search from running off to infinity where an l or ε tends to 0: N(0, 10²) for logarithms, 0.1 log ε for ε.  HMC, which
the paper lacks, needs a posterior: there N(0, 3²) and ε ~ Beta(½, ½) on (0, ½).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hmcgp import Model, find_map
from hmcgp.kernels import Categorical, Constant, SquaredExponential, White
from hmcgp.likelihoods import LabelNoise
from hmcgp.posterior import predict
from hmcgp.priors import Beta, LogNormal

VARIANTS = {"m-soft": (True, True), "s-hard": (False, False), "s-soft": (False, True)}  # one l per input, v2 free
TINY = 1e-6  # v2 of the hard variants
CIRCLE_START = {"flip": 0.01, "constant": 1e-8, "white": 1e-6, "l": 0.1}
TABLE_START = {"flip": 1e-3, "constant": 1e-4, "white": 1e-3, "l": 0.05}  # theirs is ε = 0, which has no logarithm


def plain(name: str) -> str:
    """The kind of parameter that a name of the model's stands for."""
    if name == "variance":  # the only free one: that of the constant
        return "constant"
    return next(part for part in ("flip", "constant", "white", "length_scale", "weight") if part in name)


class Fitted(NamedTuple):
    """A model and its most probable hyperparameters."""

    model: Model
    theta: Any  # (p,)
    position: Any  # (p,), unconstrained
    evaluations: int
    columns: int  # continuous inputs, the first ones

    def value(self, name: str) -> float:
        """The value of "flip", "constant" or "white", where it is free."""
        return float(self.theta[[plain(each) for each in self.model.names].index(name)])

    @property
    def l(self) -> Any:  # noqa: E743 - the paper's letter
        """Inverse squared length scales of the continuous inputs and weights of the discrete ones, as in the paper."""
        kinds = np.array([plain(name) for name in self.model.names])
        scales, weights = self.theta[kinds == "length_scale"], self.theta[kinds == "weight"]
        return np.concatenate([scales**-2.0, 2.0 * weights])

    @property
    def log_evidence(self) -> float:
        return self.model.log_evidence(self.theta)[0]

    def start(self) -> dict[str, Any]:
        """Values to start another search from."""
        free = {plain(name): float(value) for name, value in zip(self.model.names, self.theta, strict=True)}
        return {"flip": 0.0, "white": TINY, **free, "l": self.l}

    def probabilities(self, X: Any) -> Any:
        return predict.probabilities(self.model, self.theta[None, :], X, n_jobs=1)

    def smooth_covariance(self, X: Any, X2: Any) -> Any:
        """Covariance without the latent noise v2, for a support vector machine."""
        return self.model.kernel_at(self.theta)(X, X2)  # White is 0 between two sets of rows


def build(
    X: Any, y: Any, *, ard: bool, soft: bool = True, flips: bool = True, n_continuous: int | None = None,
    flat: bool = True,
) -> Model:  # fmt: skip
    """The model for rows of which the first `n_continuous` inputs are numbers and the others codes."""
    wide = LogNormal(0.0, 10.0 if flat else 3.0)
    d = X.shape[1] if n_continuous is None else n_continuous
    if not ard and d < X.shape[1]:
        raise ValueError("one l for all: give rows with indicators, `Fold.spread`")
    smooth: Any = SquaredExponential(1.0, wide, ard=ard)
    if d < X.shape[1]:
        smooth = smooth.on(list(range(d))) * Categorical(wide, ard=True).on(list(range(d, X.shape[1])))
    kernel = smooth + Constant(wide) + White(wide if soft else TINY)
    flip = Beta(0.1, 0.1, upper=0.5) if flat else Beta(0.5, 0.5, upper=0.5)
    return Model(X, y, kernel=kernel, likelihood=LabelNoise(flip if flips else 0.0, link="step"), evidence="ep")


def position_of(model: Model, start: dict[str, Any], n_continuous: int) -> Any:
    """Unconstrained position of the paper's values."""
    kinds = np.array([plain(name) for name in model.names])
    values = np.empty(len(kinds))
    for kind in ("flip", "constant", "white"):
        values[kinds == kind] = np.clip(start[kind], 1e-4, 0.45) if kind == "flip" else start[kind]
    l = np.ravel(start["l"])  # noqa: E741 - the paper's letter
    values[kinds == "length_scale"] = (l if len(l) == 1 else l[:n_continuous]) ** -0.5
    values[kinds == "weight"] = (l if len(l) == 1 else l[n_continuous:]) / 2.0
    return model.unconstrain(values)


def climb(model: Model, start: dict[str, Any], n_continuous: int, method: str = "lbfgs") -> Fitted:
    """The maximum near a start, by L-BFGS or by their EM-EP."""
    u = position_of(model, start, n_continuous)
    found = find_map(model, method=method, n_restarts=1, start=u, n_jobs=1)
    return Fitted(model, found.parameters, found.position, found.evaluations, n_continuous)
