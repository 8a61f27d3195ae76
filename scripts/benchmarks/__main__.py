"""Ratios measured in one run: ours against scikit-learn, LAPACK, BlackJAX and PyMC, and one core against two.

    python -m scripts.benchmarks                                   everything: about an hour, most of it the peers'
    python -m scripts.benchmarks --sections evidence trajectory    a part of it
    python -m scripts.benchmarks --sections samplers --no-peers    our samplers alone

Sections: `evidence`, `trajectory`, `start_up`, `averages` and `providers` (one evaluation, and EP's against Laplace's,
`evidence.py`), `softmax` (several classes against two, `softmax.py`), `regression` (against
scikit-learn) and `solvers` (iterative against Cholesky; `regression.py`), `samplers` (effective draws per
second and per gradient, `samplers.py`), `defaults`, `cores` (`defaults.py`).
The peers need `pip install -c scripts/constraints.txt -e '.[bench]'` (Python 3.11: PyMC wants arviz 0.2x); without
them they are left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from collections.abc import Callable
from typing import Any

from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from scripts.benchmarks import defaults, evidence, regression, samplers, softmax


def print_line(name: str, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    figures = measure()
    print(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in figures.items()), flush=True)
    return figures


def one_thread(measure: Callable[[], Any]) -> Any:
    with threadpool_limits(1):
        return measure()


def sections(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """What can be measured, by name, in the order of the run."""
    single: dict[str, Callable[[], dict[str, float]]] = {
        "trajectory": evidence.trajectory,
        "start_up": evidence.start_up,
        "averages": evidence.averages,
    }
    return {
        "evidence": lambda: one_thread(lambda: evidence.report(options.sizes)),
        **{name: lambda n=name, f=f: one_thread(lambda: print_line(n, f)) for name, f in single.items()},  # type: ignore[misc]
        "providers": lambda: one_thread(evidence.report_providers),
        "softmax": lambda: one_thread(softmax.report),
        "regression": lambda: one_thread(regression.report),
        "solvers": lambda: one_thread(lambda: regression.report_solvers(options.solver_sizes)),
        "cores": defaults.two_cores,
        "samplers": lambda: samplers.measure(
            options.data,
            tune=options.tune,
            draws=options.draws,
            seeds=options.seeds,
            pymc_seeds=options.pymc_seeds,
            with_peers=not options.no_peers,
        ),
        "defaults": lambda: defaults.report_defaults(options.tables),
    }


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(sections(argparse.Namespace()))
    sizes, data = list(evidence.TARGETS), list(samplers.DATA)
    tables = list(defaults.tables())
    parser.add_argument("--json", default="benchmark.json", help="file for the figures (default benchmark.json)")
    parser.add_argument("--sections", nargs="+", choices=names, default=names, help="what to measure (default all)")
    parser.add_argument("--sizes", type=int, nargs="+", choices=sizes, default=sizes, help="evidence: which n")
    parser.add_argument(
        "--solver-sizes",
        type=int,
        nargs="+",
        default=regression.SOLVER_SIZES,
        help="solvers: which n (default %(default)s)",
    )
    parser.add_argument("--data", nargs="+", choices=data, default=data, help="samplers: which data")
    parser.add_argument("--seeds", type=int, default=3, help="samplers: runs to average (default 3)")
    parser.add_argument("--pymc-seeds", type=int, default=1, help="samplers: those of PyMC, which is slow (default 1)")
    parser.add_argument("--tune", type=int, default=500, help="samplers: warm-up draws per chain (default 500)")
    parser.add_argument("--draws", type=int, default=500, help="samplers: draws per chain (default 500)")
    parser.add_argument("--no-peers", action="store_true", help="samplers: ours only")
    parser.add_argument("--tables", nargs="+", choices=tables, default=tables, help="defaults: which data")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    warnings.simplefilter("ignore", ConvergenceWarning)
    figures: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine()}
    for name, measure in sections(options).items():
        if name in options.sections:
            figures[name] = measure()
            with open(options.json, "w", encoding="utf-8") as file:  # after every section: an hour is long
                json.dump(figures, file, indent=1)
    print(f"written to {options.json}")


if __name__ == "__main__":
    main()
