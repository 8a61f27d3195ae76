"""Kernels of the study, built by hand so that their names keep their meaning whatever the default becomes.

    se               s exp(-r²/2), one length scale per input: the default
    narrow+linear    the same + Σ_k v x_k x'_k + c, with a narrower prior of the length scales
    matern+linear    with Matérn 3/2 in place of the squared exponential

For d quantities, log length_scale ~ N(½ + ½ log d, 1) in `se` and N(½ + ½ log d, ½) in the others, log v ~ N(-log d, 2)
and log c ~ N(1, 2), all for standardised inputs.  Categories multiply the first term by a categorical kernel, as in the
default.  Of several classes, each has a kernel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hmcgp.kernels import Categorical, Constant, Kernel, Linear, Matern, SquaredExponential
from hmcgp.priors import LogNormal
from scripts.study.tables import Table


def kernel_of(name: str, table: Table) -> Kernel | list[Kernel]:
    """Kernel of a name in `KERNELS` for the columns and classes of a table."""
    categories = [i for i, column in enumerate(table.X) if column in table.categories]
    quantities = [i for i in range(table.X.shape[1]) if i not in categories]
    kernel = KERNELS[name](quantities, categories)
    return kernel if table.n_classes == 2 else [kernel] * table.n_classes


def _plain(quantities: list[int], categories: list[int]) -> Kernel:
    return _by_category(SquaredExponential(ard=True), quantities, categories)


def _with_line(base: type[Kernel]) -> Callable[[list[int], list[int]], Kernel]:
    def build(quantities: list[int], categories: list[int]) -> Kernel:
        offset = Constant(LogNormal(1.0, 2.0), standardized=True)
        if not quantities:
            return _by_category(Constant(), quantities, categories) + offset
        log_d = math.log(len(quantities))
        length_scale = LogNormal(0.5 + 0.5 * log_d, 0.5)
        curved = _by_category(base(length_scale=length_scale, ard=True, standardized=True), quantities, categories)
        return curved + Linear(LogNormal(-log_d, 2.0), standardized=True).on(quantities) + offset

    return build


def _by_category(kernel: Kernel, quantities: list[int], categories: list[int]) -> Kernel:
    """A function of the quantities for each category, which resemble each other."""
    of_quantities = kernel.on(quantities) if quantities else Constant()
    return of_quantities * Categorical(ard=True).on(categories) if categories else of_quantities


KERNELS: dict[str, Callable[[list[int], list[int]], Kernel]] = {
    "se": _plain,
    "narrow+linear": _with_line(SquaredExponential),
    "matern+linear": _with_line(Matern),
}
