"""The errors and warnings this package raises on purpose.

Numerical trouble (`NotPositiveDefinite`, `NotConverged`) is raised by the room that meets it and
caught in one place, `hmcgp.model`, where it becomes a rejected proposal and a count.
`InvalidInput` and `MissingPackage` reach the user, before any sampling starts.

Every warning derives from `HmcgpWarning`, and its class says what it is about; only those about the
convergence of chains are scikit-learn's `ConvergenceWarning`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)
_records: ContextVar[tuple[list[str], ...]] = ContextVar("hmcgp_warning_records", default=())


class HmcgpError(Exception):
    """Base class of every error raised on purpose by hmcgp."""


class NotPositiveDefinite(HmcgpError):
    """A matrix that must be positive definite is not, to working precision."""


class NotConverged(HmcgpError):
    """An inner solver used up its iterations before its residual was small."""


class InvalidInput(HmcgpError, ValueError):
    """Data or settings that cannot be used; the message says what to change."""


class MissingPackage(HmcgpError, ImportError):
    """An optional package is not installed; the message has the command that installs it."""


class HmcgpWarning(UserWarning):
    """Base class of the warnings of hmcgp: the answer stands, but something deserves a look."""


class DataWarning(HmcgpWarning):
    """The table has constant columns, copies of rows, odd categories or scales, or too few rows."""


class ApproximationWarning(HmcgpWarning):
    """A solver failed at some proposals, or weighted draws stand in for a fit that was not made."""


class InterruptedWarning(HmcgpWarning):
    """A run ended early, by Ctrl-C, `max_time` or the loss of its workers, and kept its draws."""


class CheckpointWarning(HmcgpWarning):
    """A checkpoint cannot be written or locked, or other versions of the libraries have begun it."""


@contextmanager
def recorded_warnings() -> Iterator[list[str]]:
    """Collect the messages of `warn_user` in the block, each once, whatever the user's warning filters show.

    Blocks may be nested: a message goes to all of them.
    """
    messages: list[str] = []
    token = _records.set((*_records.get(), messages))
    try:
        yield messages
    finally:
        _records.reset(token)


def warn_user(message: str | Warning, category: type[Warning]) -> None:
    """Warn at the line of the user's code that called into this package, however deep the cause lies.

    Parameters
    ----------
    message : str or Warning
        What happened, the likely cause, and what to do.
    category : type
        As in `warnings.warn`.
    """
    for messages in _records.get():
        if str(message) not in messages:
            messages.append(str(message))
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
