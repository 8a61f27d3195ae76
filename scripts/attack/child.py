"""The process that is interrupted: it does what it is told, line by line, and says how it ended.

Each line on stdin is a task as JSON.  "ready" on stdout says that the signal may come, and that the call takes so many
seconds; once the signal was sent, there is a file named task["sent"]; then follows a report as JSON.
"""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import functools
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hmcgp import GPClassifier, GPRegressor, find_map
from hmcgp.optimize import find_modes
from hmcgp.samplers.chains import checkpoint as checkpoints
from hmcgp.samplers.chains.record import Record

COLD = 3.0  # seconds in which a first fit may be interrupted while compiled code is loaded
HANGS = 300.0  # seconds for one task; then all threads are shown, and the process ends
CHAINS = 2


class Progress:
    """How far the chains are, by what they write down."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget earlier runs."""
        self.kept = self.finished = 0

    def watch(self) -> None:
        """Look on whenever a chain writes a draw."""
        add = Record.add

        def watched(record: Record, *draw: Any) -> None:
            add(record, *draw)
            self.kept = max(self.kept, record.kept)
            self.finished += record.finished

        Record.add = watched  # type: ignore[assignment, method-assign]


progress = Progress()


def say(what: Any) -> None:
    """Write one line."""
    print(what if isinstance(what, str) else json.dumps(what), flush=True)


@functools.cache
def table(seed: int, n: int) -> tuple[Any, Any]:
    """Rows with two labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=n) > 0.0, 1, 0)


def estimator(task: dict[str, Any], *, path: str | None = None) -> Any:
    """The estimator of a task, not fitted."""
    kind = GPRegressor if task["numbers"] else GPClassifier
    more = {} if task["numbers"] else {"evidence": task["evidence"]}
    return kind(
        sampler=task["sampler"], draws=task["draws"], tune=task["tune"], chains=CHAINS, n_jobs=task["n_jobs"],
        random_state=task["seed"], progressbar=False, checkpoint=path, **more,
    )  # fmt: skip


class Reference:
    """What a run that nobody interrupts gives."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.X, self.y = table(task["seed"], task["n"])
        begin = time.monotonic()
        self.gp = estimator(task).fit(self.X, self.y)
        self.seconds = time.monotonic() - begin


@functools.cache
def reference(text: str) -> Reference:
    """The reference of a task, as JSON, made once."""
    return Reference(json.loads(text))


def reference_of(task: dict[str, Any]) -> Reference:
    plain = {key: task[key] for key in ("numbers", "evidence", "sampler", "draws", "tune", "n_jobs", "seed", "n")}
    return reference(json.dumps(plain))


def predictions(gp: Any, X: Any) -> Any:
    return gp.predict_proba(X) if isinstance(gp, GPClassifier) else np.stack(gp.predict(X, return_std=True))


def action_of(task: dict[str, Any]) -> tuple[Any, Any, Any]:
    """What is interrupted, the estimator that it belongs to, and what it gives when it is not."""
    ref = reference_of(task) if task["action"] != "fit" or not task["cold"] else None
    if task["action"] == "fit":
        gp = estimator(task, path=task["path"])
        X, y = table(task["seed"], task["n"])
        if task["refit"] and ref is not None:  # an earlier fit, which must survive
            gp.__dict__.update(copy.copy(ref.gp).__dict__ | gp.get_params())
        return lambda: gp.fit(X, y), gp, ref
    assert ref is not None
    many = np.vstack([ref.X] * task["copies"])
    actions: dict[str, Callable[[], Any]] = {
        "predict": lambda: predictions(ref.gp, many),
        "loo": lambda: ref.gp.loo().pointwise,
        "find_map": lambda: find_map(ref.gp.model_, n_restarts=20, random_state=1, n_jobs=task["n_jobs"]).position,
        "find_modes": lambda: find_modes(ref.gp.model_, n_restarts=12, random_state=1, n_jobs=task["n_jobs"]).positions,
    }
    whole = actions[task["action"]]
    begin = time.monotonic()
    expected = whole()
    task["expected_seconds"] = time.monotonic() - begin
    return whole, ref.gp, expected


def state(gp: Any) -> Any:
    """What must be as it was after an interrupt: attributes, by identity."""
    return {key: id(value) for key, value in gp.__dict__.items()}


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Run a task that is interrupted; return outcome and broken promises."""
    action, gp, expected = action_of(task)
    before, broken, returned = state(gp), [], None
    raised: BaseException | None = None
    seconds = task.get("expected_seconds") or (COLD if expected is None else expected.seconds)
    progress.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        say(f"ready {seconds}")
        try:
            returned = action()
        except KeyboardInterrupt as error:
            raised = error
        except BaseException as error:
            raised = error
            broken.append(f"{type(error).__name__}: {error} {_where(error)}")
        late = _signal_still_comes(task)
    told = [str(w.message) for w in caught]
    if task["action"] == "fit":
        outcome = _judge_fit(task, gp, raised, before, told, broken)
    else:
        outcome = _judge(task, gp, raised, before, returned, expected, late, broken)
    return {"outcome": "too late" if late and not broken else outcome, "broken": broken}


def _signal_still_comes(task: dict[str, Any]) -> bool:
    """Wait until the signal was sent; return whether it came only now."""
    try:
        while not Path(task["sent"]).exists():
            time.sleep(0.002)
        time.sleep(0.05)
    except KeyboardInterrupt:
        return True
    return False


def _judge_fit(task: dict[str, Any], gp: Any, raised: Any, before: Any, told: list[str], broken: list[str]) -> str:
    ref = reference_of(task)
    whole = ref.gp.trace_
    if raised is not None:
        outcome = "raised" if isinstance(raised, KeyboardInterrupt) else "another exception"
        if state(gp) != before:
            broken.append(f"after {type(raised).__name__} the estimator is not as it was")
        if progress.kept and progress.finished < CHAINS:  # later, a complete run is reported on
            broken.append(f"{type(raised).__name__} threw away {progress.kept} draws of a chain")
    else:
        trace = gp.trace_
        outcome = "draws kept" if trace.interrupted else "complete"
        if trace.interrupted and not any("interrupted" in message and "kept" in message for message in told):
            broken.append(f"draws were kept without the warning; it said {told}")
        if not _is_part(trace.unconstrained, whole.unconstrained):
            broken.append("the draws kept are not those of a run that was not interrupted")
        if not np.isfinite(predictions(gp, ref.X)).all():
            broken.append("predictions of the draws kept are not finite")
    if task["path"]:
        broken.extend(resume(task))
    return outcome


def _is_part(kept: Any, whole: Any) -> bool:
    """Whether each chain that was kept is the beginning of a chain of the whole run."""
    n = kept.shape[1]
    return all(any(np.array_equal(chain, other[:n]) for other in whole) for chain in kept)


def resume(task: dict[str, Any]) -> list[str]:
    """Go on from a checkpoint; return what is wrong with the draws."""
    ref = reference_of(task)
    try:
        gp = estimator(task, path=task["path"]).fit(ref.X, ref.y)
    except Exception as error:
        return [f"the run could not go on: {type(error).__name__}: {error}"]
    whole, broken = ref.gp.trace_, []
    for name in ("unconstrained", "warmup_unconstrained"):
        if not np.array_equal(getattr(gp.trace_, name), getattr(whole, name)):
            broken.append(f"the run that went on has other draws ({name}) than one that was not stopped")
    left = [p.name for p in Path(task["path"]).parent.glob(".*") if p.name.endswith(".tmp")]
    return broken + ([f"{left} were left behind"] if left else [])


def _judge(
    task: dict[str, Any], gp: Any, raised: Any, before: Any, returned: Any, expected: Any, late: bool, broken: list[str]
) -> str:
    if raised is None and not np.array_equal(returned, expected):
        broken.append("an interrupted call returned another result")
    elif raised is None and not late:
        broken.append("Ctrl-C was swallowed: neither raised nor told")
    if set(state(gp)) != set(before):
        broken.append(f"the estimator has changed: {set(state(gp)) ^ set(before)}")
    again = action_of(task)[2]
    if not np.array_equal(again, expected):
        broken.append("the call gives another result after an interrupt")
    return "complete" if raised is None else "raised" if isinstance(raised, KeyboardInterrupt) else "another exception"


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-1:]
    return "".join(f"({Path(f.filename).name}:{f.lineno}, {f.name})" for f in frames)


def work(task: dict[str, Any]) -> dict[str, Any]:
    """Do one task."""
    if task["kind"] == "interrupt":
        return run(task)
    if task["kind"] == "victim":  # killed while it runs
        X, y = table(task["seed"], task["n"])
        say("ready 0")
        estimator(task, path=task["path"]).fit(X, y)
        return {"outcome": "killed too late", "broken": []}
    return {"outcome": "resumed", "broken": resume(task)}


def main() -> None:
    """Do tasks until stdin ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this process has inherited
    for name, value in {"INTERVAL": 0.05, "SHARE": 1.0}.items():  # checkpoints that are written often
        assert hasattr(checkpoints, name), f"hmcgp.samplers.chains.checkpoint.{name} is gone"
        setattr(checkpoints, name, value)
    progress.watch()
    while line := sys.stdin.readline():
        faulthandler.dump_traceback_later(HANGS, exit=True)
        try:
            with contextlib.suppress(OSError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                report = work(json.loads(line))
        except BaseException as error:
            report = {"outcome": "lost", "broken": [f"{type(error).__name__} outside of the call: {error}"]}
            traceback.print_exc()
        faulthandler.cancel_dump_traceback_later()
        say(report)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
