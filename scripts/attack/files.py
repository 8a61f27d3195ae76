"""Damaged files: refused with InvalidInput, soon, or as good as the sound one; and never run as code."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hmcgp import GPClassifier, GPRegressor
from hmcgp.errors import InvalidInput
from scripts.attack import damage
from scripts.attack.cases import Case
from scripts.attack.fits import equal, predictions, same_draws
from scripts.attack.trees import chance, pick

SOON = 5.0  # seconds of processor time in which a file of a few kilobytes is read or refused
QUICK: dict[str, Any] = {"tune": 20, "chains": 2, "n_jobs": 1, "random_state": 3, "progressbar": False}


class Sound(NamedTuple):
    """A sound file, how to read it, and what comes out."""

    path: Path
    is_archive: bool
    read: Callable[[Path], Any]
    fitted: Any
    new: Any
    others: dict[str, Callable[[Path], Any]]  # runs that are not that of the file


def table(n: int = 16, d: int = 2) -> tuple[Any, Any]:
    """A few rows with two labels."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, d))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0.0, "yes", "no")


def frame(n: int = 18) -> tuple[Any, Any]:
    """Rows with a category, and three labels."""
    X, _ = table(n)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": ["u", "v", "w"] * (n // 3)}), np.arange(n) % 3


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="hmcgp-attack-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _saved(name: str, gp: Any, X: Any, y: Any) -> Sound:
    path = _folder() / f"{name}.hmcgp"
    gp.fit(X, y).save(path)
    return Sound(path, True, type(gp).load, gp, X[:4], {})


def _checkpointed(name: str, estimator: Any, X: Any, y: Any) -> Sound:
    """A checkpoint of a run with more draws to come."""
    path = _folder() / f"{name}.nc"
    estimator(draws=10, checkpoint=path, **QUICK).fit(X, y)

    def resume(file: Path, X: Any = X, y: Any = y, **changes: Any) -> Any:
        return estimator(draws=25, checkpoint=file, **(QUICK | changes)).fit(X, y)

    others: dict[str, Callable[[Path], Any]] = {
        "permuted rows": partial(resume, X=X[::-1], y=y[::-1]),
        "another label": partial(resume, y=np.roll(y, 1)),
        "another seed": partial(resume, random_state=4),
        "columns exchanged": partial(resume, X=X[:, ::-1]),
    }
    if estimator is GPClassifier:
        others["labels exchanged"] = partial(resume, y=np.where(y == "yes", "no", "yes"))
    return Sound(path, False, resume, estimator(draws=25, **QUICK).fit(X, y), X[:4], others)


@functools.cache
def sound(kind: str) -> Sound:
    """Write one of the files that cases damage."""
    X, y = table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "classifier":
            return _saved(kind, GPClassifier(draws=20, **QUICK), X, y)
        if kind == "classes":
            return _saved(kind, GPClassifier(draws=8, **QUICK), *frame())
        if kind == "regressor":
            return _saved(kind, GPRegressor(draws=20, sampler="nuts", **QUICK), X, X[:, 0] ** 2)
        if kind == "map":
            return _saved(kind, GPClassifier(sampler="map", likelihood="probit", evidence="ep", **QUICK), X, y)
        if kind == "checkpoint":
            return _checkpointed(kind, GPClassifier, X, y)
        return _checkpointed(kind, GPRegressor, X, X[:, 0] ** 2)


KINDS = ("classifier", "classes", "regressor", "map", "checkpoint", "checkpoint of numbers")


def attempt(case: Case) -> None:
    """Damage a file, and read it."""
    rng = case.rng
    kind = pick(rng, KINDS)
    original = sound(kind)
    if original.others and chance(rng, 0.2):
        attempt_another_run(case, kind, original)
        return
    with tempfile.TemporaryDirectory() as folder:
        path, canary = Path(folder) / original.path.name, Path(folder) / "canary"
        kinds = damage.OF_BYTES | (damage.OF_ARCHIVES if original.is_archive else {})
        name = pick(rng, sorted(kinds))
        content = original.path.read_bytes()
        path.write_bytes(kinds[name](rng, content, canary))
        what = f"{kind}, {name}"
        case.note(what, f"{len(content)} bytes, now {path.stat().st_size}")
        begin = time.process_time()
        outcome, result, error = read(original, path)
        seconds = time.process_time() - begin
        case.note(f"{outcome} after {seconds:.2f} s: {error or ''}")
        case.count(outcome)
        if canary.exists():
            case.breaks(f"{what}: the file ran code")
        if seconds > SOON and outcome != "as before":
            case.breaks(f"{what}: {outcome} only after {seconds:.0f} s")
        if outcome == "another exception":
            case.breaks(f"{what}", error)
        elif outcome == "something else":
            case.breaks(f"{what}: it was read as {result}")


def attempt_another_run(case: Case, kind: str, original: Sound) -> None:
    """Give the checkpoint of one run to another."""
    name = pick(case.rng, sorted(original.others))
    case.note(f"{kind}, {name}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copy(original.path, folder))
        outcome, _, error = read(original._replace(read=original.others[name]), path)
        if outcome == "refused" and path.read_bytes() != original.path.read_bytes():
            case.breaks(f"{kind}, {name}: refused, and changed all the same")
    case.count("another run refused" if outcome == "refused" else outcome)
    if outcome != "refused":
        case.breaks(f"{kind} of another run ({name}): {outcome}", error)


def read(original: Sound, path: Path) -> tuple[str, Any, Exception | None]:
    """Read a file; return the outcome, what came out of it, and the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = original.read(path)
        except InvalidInput as error:
            return ("refused", None, error) if str(error).strip() else ("another exception", None, error)
        except Exception as error:
            return "another exception", None, error
        try:
            same = same_results(original, result)
        except Exception as error:
            return "something else", f"an estimator that fails with {type(error).__name__}: {error}", None
        return ("as before", result, None) if same else ("something else", _told(result), None)


def same_results(original: Sound, result: Any) -> bool:
    """Whether an estimator is the original one, by its draws, its predictions and its settings."""
    fitted = original.fitted
    return (
        type(result) is type(fitted)
        and same_draws(fitted, result)
        and np.array_equal(fitted.trace_.draws, result.trace_.draws)
        and equal(predictions(fitted, original.new), predictions(result, original.new))
        and (not original.is_archive or repr(fitted.get_params()) == repr(result.get_params()))
    )


def _told(result: Any) -> str:
    trace = getattr(result, "trace_", None)
    return f"another {type(result).__name__} ({trace})"
