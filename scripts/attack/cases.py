"""One case of the attack, and what is reported of it."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

SECTIONS = ("models", "fits", "files", "interrupts")


class Report(NamedTuple):
    """Outcomes of one case, and the promises that were broken in it."""

    section: str
    number: int
    outcomes: Counter[str]
    broken: list[str]


class Case:
    """One case: its random numbers, and a record of what happened.

    Parameters
    ----------
    section : str
        One of `SECTIONS`.
    seed, index : int
        All that the random numbers depend on, beside the section.
    aloud : bool
        Print notes and tracebacks: a replay.
    """

    def __init__(self, section: str, seed: int, index: int, *, aloud: bool = False) -> None:
        self.section, self.seed, self.index, self.aloud = section, seed, index, aloud
        self.rng = np.random.default_rng(np.random.SeedSequence([seed, SECTIONS.index(section), index]))
        self.outcomes: Counter[str] = Counter()
        self.broken: list[str] = []

    def count(self, outcome: str) -> None:
        """Count one outcome."""
        self.outcomes[outcome] += 1

    def note(self, *what: Any) -> None:
        """Print something in a replay."""
        if self.aloud:
            print(*what, sep="\n", flush=True)

    def breaks(self, promise: str, error: BaseException | None = None) -> None:
        """Record a broken promise, in one line."""
        if error is not None:
            promise = f"{promise}: {described(error)}"
            if self.aloud:
                traceback.print_exception(error)
        self.broken.append(" ".join(promise.split()))
        self.note(f"BROKEN: {self.broken[-1]}")

    @property
    def report(self) -> Report:
        """The record."""
        return Report(self.section, self.index, self.outcomes, self.broken)


def described(error: BaseException) -> str:
    """Return type, message and origin of an error, in one line."""
    text = " ".join(str(error).split())
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}, {frame.name})" for frame in last)
    return f"{type(error).__name__}: {text[:200]}{where}"


def attempt_of(section: str) -> Callable[[Case], None]:
    """Return the function that runs a case of a section."""
    return import_module(f"scripts.attack.{section}").attempt


def run_case(section: str, seed: int, index: int, *, aloud: bool = False) -> Report:
    """Run one case; whatever it raises is a broken promise."""
    case = Case(section, seed, index, aloud=aloud)
    try:
        attempt_of(section)(case)
    except Exception as error:
        case.breaks("an exception that no check expected", error)
    return case.report
