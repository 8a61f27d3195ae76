"""Real signals at random moments: Ctrl-C keeps the draws or changes nothing, and a killed run goes on."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.attack.cases import Case
from scripts.attack.trees import Rng, chance, pick

TASKS_EACH = 8  # before a child is replaced
ACTIONS = ["fit", "fit", "fit", "fit", "predict", "loo", "find_map", "find_modes"]


class ChildDied(Exception):
    """The child ended without a report."""


class Child:
    """A process that does tasks."""

    def __init__(self, *, aloud: bool = False) -> None:
        root = str(Path(__file__).parents[2])
        paths = [root, *(p for p in sys.path if p)]  # the child sees what we see
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  closed by `end`
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scripts.attack.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=None if aloud else self.errors, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            encoding="utf-8",
        )  # fmt: skip
        self.tasks = 0
        atexit.register(self.end)

    def tell(self, what: str) -> None:
        """Write a line to the child."""
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Read a line from the child."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            last = " | ".join(self.errors.read().splitlines()[:6])
            raise ChildDied(f"the process ended with code {self.process.returncode}: {last[:500]}")
        return line

    def start(self, task: dict[str, Any]) -> float:
        """Give it a task; return, when it is ready, how long it expects to take."""
        self.tasks += 1
        self.tell(json.dumps(task))
        return float(self.hear().split()[1])

    def end(self) -> None:
        """End the process."""
        atexit.unregister(self.end)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                stream.close()


class Nursery:
    """The child that is warm, if there is one."""

    def __init__(self) -> None:
        self.child: Child | None = None

    def get(self, *, cold: bool, aloud: bool) -> Child:
        """A child, a new one if it must not have run anything yet."""
        if self.child is not None and (cold or self.child.tasks >= TASKS_EACH):
            self.drop()
        self.child = self.child or Child(aloud=aloud)
        return self.child

    def drop(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.end()
            self.child = None


_nursery = Nursery()


def random_task(rng: Rng, folder: str) -> dict[str, Any]:
    """A task that takes a second or so."""
    action = pick(rng, ACTIONS)
    numbers = chance(rng, 0.25)
    sampler = pick(rng, ["hmc", "hmc", "nuts", "metropolis", "jumps", "map"]) if action == "fit" else "hmc"
    longer = 20 if sampler == "metropolis" else 1
    in_fit = action == "fit"
    task = {
        "kind": "interrupt", "action": action, "numbers": numbers, "sampler": sampler,
        "evidence": pick(rng, ["laplace", "laplace", "ep"]), "n": int(rng.integers(25, 60)),
        "draws": longer * (60 if in_fit else 30), "tune": longer * 30, "n_jobs": int(rng.integers(1, 3)),
        "seed": int(rng.integers(5)), "copies": 40, "refit": chance(rng, 0.3),
        "cold": in_fit and chance(rng, 0.1), "path": None,
        "sent": str(Path(folder) / "sent"),
    }  # fmt: skip
    if in_fit and sampler != "map" and chance(rng, 0.5):
        task["path"] = str(Path(folder) / "run.nc")
    return task


def attempt(case: Case) -> None:
    """Interrupt a call, or kill a run and go on with it."""
    rng = case.rng
    with tempfile.TemporaryDirectory() as folder:
        task = random_task(rng, folder)
        kill = chance(rng, 0.2)
        if kill:
            task |= {"kind": "victim", "action": "fit", "path": str(Path(folder) / "run.nc"), "refit": False}
            task["sampler"] = "hmc" if task["sampler"] == "map" else task["sampler"]
        moment = float(rng.random())
        case.note("kill" if kill else "interrupt", task, f"at {moment:.3f} of the time it takes")
        what = f"{'SIGKILL' if kill else 'SIGINT'} in {task['action']} ({task['sampler']}, n_jobs={task['n_jobs']}"
        what += ", checkpoint)" if task["path"] else ")"
        try:
            report = _killed(task, moment, case) if kill else _interrupted(task, moment, case)
        except (ChildDied, BrokenPipeError) as error:
            _nursery.drop()
            case.count("died")
            case.breaks(what, error)
            return
        case.note(report)
        case.count(report["outcome"])
        for promise in report["broken"]:
            case.breaks(f"{what}: {promise}")
        if report["broken"]:
            _nursery.drop()


def _interrupted(task: dict[str, Any], moment: float, case: Case) -> dict[str, Any]:
    child = _nursery.get(cold=bool(task["cold"]), aloud=case.aloud)
    seconds = child.start(task)
    time.sleep(moment * seconds)
    child.process.send_signal(signal.SIGINT)
    Path(task["sent"]).touch()
    return json.loads(child.hear())


def _killed(task: dict[str, Any], moment: float, case: Case) -> dict[str, Any]:
    child = _nursery.get(cold=False, aloud=case.aloud)
    child.start(task)
    begin = time.monotonic()
    while not Path(task["path"]).exists() and time.monotonic() < begin + 60.0:
        time.sleep(0.005)
    time.sleep(moment)
    child.process.kill()
    _nursery.drop()
    child = _nursery.get(cold=False, aloud=case.aloud)
    child.tell(json.dumps(task | {"kind": "resume"}))
    report = json.loads(child.hear())
    return report | {"outcome": f"killed, {report['outcome']}"}
