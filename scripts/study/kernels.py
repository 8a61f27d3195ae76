"""Kernels of the study, built by hand so that their names keep their meaning whatever the default becomes.

For d quantities and standardised inputs, with s ~ LogNormal(2, 2) the variance of the first term and N(mean, variance):

    se               s exp(-r²/2), log ℓ_k ~ N(½ + ½ log d, 1): the default of 0.1
    se+linear        the same + v x·x' + c, log v ~ N(-log d, 2²), log c ~ N(1, 2²)
    narrow+linear    with log ℓ_k ~ N(½ + ½ log d, ½²)
    matern+linear    and Matérn 3/2 in place of the squared exponential
    one+linear       one length scale for all inputs, log ℓ ~ N(½ + ½ log d, 1)
    pooled           as `se`, with log ℓ_k = m + δ_k, m ~ N(½ + ½ log d, 1), δ_k ~ N(0, ½²)
    pooled+linear    both
    tight+linear     with δ_k ~ N(0, ¼²)
    both             as `pooled`, with m ~ N(½ + ½ log d, 0.4²), δ_k ~ N(0, 0.3²); both+linear has the line
    narrow           as `narrow+linear`, without the line
    …+effects        as …+linear, with e Σ_k [x_k = x'_k] over the categories, log e ~ N(0, 2²)
    …+fixed          as …+effects, with the variance of the offset fixed at 9
    smooth           as narrow+fixed, with log e ~ N(-log m, 2²) for m columns of categories: the default
    full             as matern+fixed, with the same

Categories multiply the first term by a categorical kernel, as in the default.  Of several classes each has a kernel of
its own, unless `/shared` follows the name; `full` and `smooth` are always shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hmcgp.kernels import Categorical, CategoryEffects, Constant, Kernel, Linear, Matern, SquaredExponential
from hmcgp.priors import LogNormal, PooledLogNormal, Prior
from scripts.study.tables import Table

_OFFSET = LogNormal(1.0, 2.0)


def _alike(log_c: float) -> Prior:
    return LogNormal(0.0, 2.0)


def _shared_out(log_c: float) -> Prior:
    return LogNormal(-log_c, 2.0)


def _normal(log_d: float, sd: float = 1.0) -> Prior:
    return LogNormal(0.5 + 0.5 * log_d, sd)


def _pooled(log_d: float, sigma: float = 1.0, within: float = 0.5) -> Prior:
    return PooledLogNormal(0.5 + 0.5 * log_d, sigma, within)


def _kernel(
    length_scale: Callable[[float], Prior],
    *,
    base: type[Any] = SquaredExponential,
    ard: bool = True,
    line: bool = True,
    effects: Callable[[float], Prior] | None = None,
    offset: Prior | float = _OFFSET,
) -> Callable[[list[int], list[int]], Kernel]:
    """Kernel of the quantities and categories in these columns."""

    def build(quantities: list[int], categories: list[int]) -> Kernel:
        log_d = math.log(max(len(quantities), 1))
        curved: Kernel = Constant()
        if quantities:
            curved = base(length_scale=length_scale(log_d), ard=ard, standardized=True).on(quantities)
        if categories:
            curved = curved * Categorical(ard=True).on(categories)
        if not line:
            return curved
        if quantities:
            curved = curved + Linear(LogNormal(-log_d, 2.0), standardized=True).on(quantities)
        if categories and effects:
            curved = curved + CategoryEffects(effects(math.log(len(categories)))).on(categories)
        return curved + Constant(offset, standardized=True)

    return build


KERNELS: dict[str, Callable[[list[int], list[int]], Kernel]] = {
    "se": _kernel(_normal, line=False),
    "se+linear": _kernel(_normal),
    "narrow+linear": _kernel(lambda log_d: _normal(log_d, 0.5)),
    "matern+linear": _kernel(lambda log_d: _normal(log_d, 0.5), base=Matern),
    "one+linear": _kernel(_normal, ard=False),
    "pooled": _kernel(_pooled, line=False),
    "pooled+linear": _kernel(_pooled),
    "tight+linear": _kernel(lambda log_d: _pooled(log_d, within=0.25)),
    "both": _kernel(lambda log_d: _pooled(log_d, 0.4, 0.3), line=False),
    "both+linear": _kernel(lambda log_d: _pooled(log_d, 0.4, 0.3)),
    "narrow+effects": _kernel(lambda log_d: _normal(log_d, 0.5), effects=_alike),
    "matern+effects": _kernel(lambda log_d: _normal(log_d, 0.5), base=Matern, effects=_alike),
    "narrow+fixed": _kernel(lambda log_d: _normal(log_d, 0.5), effects=_alike, offset=9.0),
    "matern+fixed": _kernel(lambda log_d: _normal(log_d, 0.5), base=Matern, effects=_alike, offset=9.0),
    "full": _kernel(lambda log_d: _normal(log_d, 0.5), base=Matern, effects=_shared_out, offset=9.0),
    "smooth": _kernel(lambda log_d: _normal(log_d, 0.5), effects=_shared_out, offset=9.0),
    "pooled+effects": _kernel(_pooled, effects=_alike),
    "both+effects": _kernel(lambda log_d: _pooled(log_d, 0.4, 0.3), effects=_alike),
    "narrow": _kernel(lambda log_d: _normal(log_d, 0.5), line=False),
}

#: Kernels of the study's own contenders; the others were compared before, by `kernel_choice.py`.
STUDIED = ("se", "matern+linear", "full", "smooth")


def kernel_of(name: str, table: Table) -> Kernel | list[Kernel]:
    """Kernel of a name in `KERNELS` for the columns and classes of a table; `name/shared`: one for all classes."""
    categories = [i for i, column in enumerate(table.X) if column in table.categories]
    quantities = [i for i in range(table.X.shape[1]) if i not in categories]
    plain, _, shared = name.partition("/")
    kernel = KERNELS[plain](quantities, categories)
    return kernel if shared or plain in ("full", "smooth") or table.n_classes == 2 else [kernel] * table.n_classes
