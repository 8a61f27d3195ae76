"""The command line: run sections, print counts, and replay a case."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence

from scripts.attack import __doc__ as description
from scripts.attack.cases import SECTIONS, Report, run_case
from scripts.attack.models import POINTS
from scripts.attack.pool import run_cases


class Tally:
    """Counts of one section."""

    def __init__(self, section: str, seed: int) -> None:
        self.section, self.seed = section, seed
        self.outcomes: Counter[str] = Counter()
        self.cases = self.promises = 0
        self.begin, self.seconds = time.monotonic(), 0.0

    def add(self, report: Report) -> None:
        """Count a report, and print each broken promise with the argument that replays it."""
        self.cases += 1
        self.seconds = time.monotonic() - self.begin
        self.outcomes += report.outcomes
        self.promises += len(report.broken)
        for what in report.broken:
            print(f"BROKEN {what}   --replay {report.section}:{self.seed}:{report.number}", flush=True)

    def __str__(self) -> str:
        """Two lines of a table."""
        counts = ", ".join(f"{name} {n}" for name, n in self.outcomes.most_common())
        return (
            f"{self.section:<12}{self.cases:>8}{sum(self.outcomes.values()):>8}{self.promises:>8}{self.seconds:>9.0f}\n"
            f"    {counts}"
        )


HEADER = f"{'section':<12}{'cases':>8}{'tried':>8}{'broken':>8}{'seconds':>9}"


def run_section(section: str, seed: int, n_cases: int, jobs: int) -> Tally:
    """Run the cases of a section, and count."""
    tally = Tally(section, seed)
    for report in run_cases(section, seed, range(n_cases), jobs):
        tally.add(report)
    return tally


def replay(place: str) -> int:
    """Run one case again, aloud."""
    section, seed, index = place.split(":")
    report = run_case(section, int(seed), int(index), aloud=True)
    print(", ".join(f"{name} {n}" for name, n in report.outcomes.items()))
    print(f"{len(report.broken)} broken promises")
    return int(bool(report.broken))


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="attack", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluations", type=int, default=20000, help="points, ten of each model (default 20000)")
    parser.add_argument("--fits", type=int, default=300)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--interrupts", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--replay", metavar="SECTION:SEED:INDEX", help="one case again, and nothing else")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a promise was broken, else 0."""
    options = parse_options(arguments)
    if options.replay:
        return replay(options.replay)
    cases = {
        "models": -(-options.evaluations // POINTS),
        "fits": options.fits,
        "files": options.files,
        "interrupts": options.interrupts,
    }
    tallies = [run_section(section, options.seed, cases[section], options.jobs) for section in options.sections]
    print(HEADER, *tallies, sep="\n")
    promises = sum(tally.promises for tally in tallies)
    print(f"{promises} broken promises")
    return int(promises > 0)
