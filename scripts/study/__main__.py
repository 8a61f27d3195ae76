"""Command line of the study."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.study import __doc__ as description
from scripts.study import contenders, run, tables
from scripts.study.forecast import Chains

RESULTS = Path(__file__).with_name("results.csv")
QUICK_TABLES = ("crabs", "iris")
QUICK_CHAINS = Chains(1, 40, 40)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=tables.NAMES, metavar="TABLE")
    parser.add_argument("--contenders", nargs="+", choices=contenders.NAMES, metavar="CONTENDER")
    parser.add_argument("--repeats", type=int, nargs="+", metavar="R", help="which of 1 to 5")
    parser.add_argument("--folds", type=int, nargs="+", metavar="F", default=[1, 2], help="which of 1 and 2")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="two tables, six contenders, one repeat, short chains")
    return parser


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    quick = given.quick
    if quick and given.output == RESULTS:
        _parser().error("--quick needs an --output of its own: its chains are too short for results.csv")
    repeats = given.repeats or ([1] if quick else range(1, tables.REPEATS + 1))
    failed = run.run(
        given.output,
        given.tables or (QUICK_TABLES if quick else tables.NAMES),
        given.contenders or (contenders.QUICK if quick else contenders.NAMES),
        [(repeat, fold) for repeat in repeats for fold in given.folds],
        QUICK_CHAINS if quick else Chains(),
        given.jobs,
    )
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
