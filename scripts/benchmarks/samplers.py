"""Effective draws per second and per gradient: ours against BlackJAX on the same density and PyMC on the latent values.

The model is that of Barber & Williams (1997), squared exponential with one length scale per input, logistic, Laplace;
4 chains of 500 + 500 draws, one after another on one core, each contender in a process of its own (`contenders.py`).
ESS is the smallest bulk ESS over the hyperparameters.  The contenders take turns, seed by seed; the first seed finds
every cache of compiled code empty, the later ones find what it left there.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hmcgp import sample
from hmcgp.numerics import chain_statistics
from scripts.benchmarks import contenders
from scripts.papers import barber_williams as paper

ROOT = Path(__file__).parents[2]
CHAINS = 4
TARGETS = {"blackjax": 3.0, "pymc": 50.0}  # our effective draws per second over theirs
DATA = {"crabs": lambda: paper.crabs_splits(1)[0], "pima": paper.pima}


def default_sampler() -> str:
    """The name of our default sampler, whatever it is today."""
    default = inspect.signature(sample).parameters["sampler"].default
    return str(getattr(default, "name", default))


def our_samplers() -> list[str]:
    return list(dict.fromkeys([default_sampler(), "hmc", "nuts"]))


class Arena:
    """A data set on disk, and one cache of compiled code per contender."""

    def __init__(self, name: str, folder: Path, *, tune: int, draws: int) -> None:
        self.name, self.folder, self.counts = name, folder / name, {"tune": tune, "draws": draws}
        self.folder.mkdir()
        self.input = self.folder / "input.npz"
        split = DATA[name]()
        X, y = np.asarray(split.X, dtype=float), np.asarray(split.y, dtype=float)
        model = contenders.paper_model(X, y)
        starts = np.stack([model.initial(rng) for rng in np.random.default_rng(0).spawn(CHAINS)])
        np.savez(self.input, X=X, y=y, starts=starts)

    def command(self, action: str, contender: str, *arguments: Any) -> subprocess.Popen[str]:
        cache = self.folder / f"cache-{contender}"
        threads = dict.fromkeys(["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"], "1")
        caches = {
            "NUMBA_CACHE_DIR": str(cache / "numba"),
            "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "PYTENSOR_FLAGS": f"base_compiledir={cache / 'pytensor'}",
            "JAX_PLATFORMS": "cpu",
        }
        line = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "scripts.benchmarks.contenders",
            action,
            contender,
            str(self.input),
        ]
        return subprocess.Popen(
            line + [str(a) for a in arguments],
            cwd=ROOT,
            env={**os.environ, **threads, **caches},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def check(self, peer: str) -> dict[str, float]:
        return read(self.command("check", peer))

    def start(self, contender: str, seed: int, output: Path, *options: Any) -> subprocess.Popen[str]:
        counts = [f"--{key}={value}" for key, value in self.counts.items()]
        return self.command("run", contender, output, *counts, f"--seed={seed}", *options)

    def run(self, contender: str, seed: int) -> dict[str, Any]:
        """One contender on one core, all chains."""
        output = self.folder / "draws.npz"
        found = read(self.start(contender, seed, output))
        row = {"data": self.name, "contender": contender, "seed": seed, **found}
        return {**row, **judge(np.load(output)["draws"])}

    def run_on_two_cores(self, contender: str, seed: int) -> dict[str, Any]:
        """Ours in two threads; a peer in two processes, half of the chains each, the slower one counts."""
        halves = [[0, 1, 2, 3]] if not contender.startswith("blackjax") else [[0, 2], [1, 3]]
        outputs = [self.folder / f"draws-{k}.npz" for k in range(len(halves))]
        one = len(halves) > 1
        started = [
            self.start(contender, seed + 1000 * k, out, f"--cores={1 if one else 2}", f"--core={k}", "--chains", *half)
            for k, (half, out) in enumerate(zip(halves, outputs, strict=True))
        ]
        found = [read(process) for process in started]
        draws = np.concatenate([np.load(out)["draws"] for out in outputs])
        run_s = max(row["run_s"] for row in found)
        return {"data": self.name, "contender": contender, "seed": seed, "run_s": run_s, **judge(draws)}


def read(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The JSON on the last line of a process; its errors are ours."""
    out, err = process.communicate()
    if process.returncode:
        sys.exit(f"a contender failed:\n{err[-2000:]}")
    return json.loads(out.splitlines()[-1])


def judge(draws: Any) -> dict[str, float]:
    columns = [draws[:, :, j] for j in range(draws.shape[2])]
    return {"ess": min(map(chain_statistics.ess_bulk, columns)), "r_hat": max(map(chain_statistics.rhat, columns))}


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Averages over the seeds of one contender on one data set."""

    def mean(key: str) -> float:
        return float(np.mean([row[key] for row in rows]))

    ess, run = mean("ess"), mean("warmup_s") + mean("sampling_s")
    first, later = rows[0]["compile_s"], [row["compile_s"] for row in rows[1:]]
    per_second = [row["ess"] / row["sampling_s"] for row in rows]
    return {
        "data": rows[0]["data"],
        "contender": rows[0]["contender"],
        "seeds": len(rows),
        "ess": ess,
        "r_hat": max(row["r_hat"] for row in rows),
        "divergences": sum(row["divergences"] for row in rows),
        "warmup_s": mean("warmup_s"),
        "sampling_s": mean("sampling_s"),
        "compile_first_s": first,
        "compile_later_s": float(np.mean(later)) if later else None,
        "ms_per_evaluation": 1e3 * mean("sampling_s") / mean("evaluations_draws"),
        "evaluations_per_draw": mean("evaluations_draws") / rows[0]["n_draws"],
        "ess_per_s": ess / mean("sampling_s"),
        "ess_per_s_range": [min(per_second), max(per_second)],
        "ess_per_cpu_s": ess / (mean("sampling_s") * mean("run_cpu_s") / mean("run_s")),
        "ess_per_s_with_warmup": ess / run,
        "ess_per_s_first_run": ess / (run + first),
        "ess_per_s_later_run": ess / (run + float(np.mean(later))) if later else None,
        "ess_per_gradient": ess / mean("evaluations_draws"),
        "ess_per_gradient_with_warmup": ess / (mean("evaluations_draws") + mean("evaluations_warmup")),
        "peak_mb": None if rows[0]["peak_mb"] is None else max(row["peak_mb"] for row in rows),
        "clock_over_cpu": mean("run_s") / mean("run_cpu_s"),
    }


def measure(
    names: list[str], *, tune: int, draws: int, seeds: int, pymc_seeds: int, with_peers: bool = True
) -> dict[str, Any]:
    """Run and report everything; returns the figures."""
    figures: dict[str, Any] = {"default": default_sampler(), "runs": [], "summary": [], "two_cores": [], "ratios": []}
    theirs = [peer for peer in contenders.PEERS if with_peers and installed(peer)]
    print(
        f"\n{CHAINS} chains x ({tune} + {draws}), one after another on one core; our default is {figures['default']!r}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            arena = Arena(name, Path(folder), tune=tune, draws=draws)
            for peer in theirs:
                errors = arena.check(peer)
                print(
                    f"{name}: {peer}'s density is ours; relative errors: "
                    + ", ".join(f"{k} {v:.0e}" for k, v in errors.items())
                )
            entries = dict.fromkeys(our_samplers(), seeds)
            if "blackjax" in theirs:
                entries |= {"blackjax-dense": seeds, "blackjax-diagonal": seeds}
            if "pymc" in theirs:
                entries["pymc"] = pymc_seeds
            rows: dict[str, list[dict[str, Any]]] = {entry: [] for entry in entries}
            for seed in range(seeds):
                for entry in [e for e, count in entries.items() if seed < count]:
                    row = arena.run(entry, seed)
                    rows[entry].append({**row, "n_draws": CHAINS * draws})
                    print(f"  {name}, {entry}, seed {seed}: ESS {row['ess']:.0f}, {row['run_s']:.1f} s", flush=True)
            table = {entry: summarise(found) for entry, found in rows.items() if found}
            figures["runs"] += [row for found in rows.values() for row in found]
            figures["summary"] += list(table.values())
            report(table)
            figures["ratios"] += report_ratios(name, table)
            if len(available_cores()) >= 2:
                figures["two_cores"] += two_cores(arena, table)
    return figures


def installed(peer: str) -> bool:
    lacking = contenders.missing(peer)
    if lacking:
        print(f"{peer} is left out: {', '.join(lacking)} not installed (pip install 'hmcgp[bench]')")
    return not lacking


def available_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def better_blackjax(table: dict[str, dict[str, Any]]) -> str | None:
    """The metric that serves BlackJAX best."""
    entries = [entry for entry in table if entry.startswith("blackjax")]
    return max(entries, key=lambda entry: table[entry]["ess_per_s"]) if entries else None


def two_cores(arena: Arena, table: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Both cores, warm-up included (chains side by side have no common end of it)."""
    entries = [default_sampler(), *filter(None, [better_blackjax(table)])]
    rows = [arena.run_on_two_cores(entry, 0) for entry in entries]
    for row in rows:
        row["ess_per_s_with_warmup"] = row["ess"] / row["run_s"]
    text = ", ".join(f"{row['contender']} {row['ess_per_s_with_warmup']:.1f} in {row['run_s']:.1f} s" for row in rows)
    ratio = (
        f"; ratio {rows[0]['ess_per_s_with_warmup'] / rows[1]['ess_per_s_with_warmup']:.2f}" if len(rows) > 1 else ""
    )
    print(f"{arena.name}: two cores, ESS/s with warm-up, seed 0: {text}{ratio}", flush=True)
    return rows


COLUMNS = {
    "seeds": ("seeds", "d"),
    "ess": ("ESS", ".0f"),
    "r_hat": ("R-hat", ".3f"),
    "divergences": ("div.", "d"),
    "compile_first_s": ("compile", ".1f"),
    "compile_later_s": ("cached", ".1f"),
    "warmup_s": ("warm-up", ".1f"),
    "sampling_s": ("draws", ".1f"),
    "ms_per_evaluation": ("ms/eval", ".3f"),
    "evaluations_per_draw": ("eval/draw", ".1f"),
    "ess_per_s": ("ESS/s", ".1f"),
    "ess_per_cpu_s": ("cpu", ".1f"),
    "ess_per_s_first_run": ("all, first", ".1f"),
    "ess_per_s_later_run": ("all, later", ".1f"),
    "ess_per_gradient": ("ESS/grad", ".4f"),
    "ess_per_gradient_with_warmup": ("+ warm-up", ".4f"),
    "peak_mb": ("peak MB", ".0f"),
}


def report(table: dict[str, dict[str, Any]]) -> None:
    widths = [max(len(title) + 2, 8) for title, _ in COLUMNS.values()]
    name = next(iter(table.values()))["data"]
    print(f"\n{name:<18}" + "".join(f"{title:>{w}}" for (title, _), w in zip(COLUMNS.values(), widths, strict=True)))
    for entry, row in table.items():
        cells = ["-" if row[key] is None else format(row[key], form) for key, (_, form) in COLUMNS.items()]
        print(f"{entry:<18}" + "".join(f"{cell:>{w}}" for cell, w in zip(cells, widths, strict=True)))
    busy = max(row["clock_over_cpu"] for row in table.values())
    if busy > 1.1:
        print(f"the machine was busy with other work: clock time up to {busy:.2f} times processor time")


RATIOS = {
    "ess_per_s": "draws only",
    "ess_per_cpu_s": "draws only, processor time",
    "ess_per_s_first_run": "with warm-up and compilation, first run",
    "ess_per_s_later_run": "the same, a later run",
}


def report_ratios(name: str, table: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Our effective draws per second over the peers', and per gradient over BlackJAX's."""
    from scripts.benchmarks.evidence import verdict

    found: list[dict[str, Any]] = []
    best = better_blackjax(table)
    for peer, entry in (("blackjax", best), ("pymc", "pymc" if "pymc" in table else None)):
        if entry is None:
            continue
        for ours in our_samplers():
            for key, meaning in RATIOS.items():
                if table[ours][key] is None or table[entry][key] is None:
                    continue
                ratio = table[ours][key] / table[entry][key]
                target = TARGETS[peer] if ours == default_sampler() else None
                found.append(
                    {"data": name, "ours": ours, "peer": entry, "figure": key, "ratio": ratio, "target": target}
                )
                print(f"{name}: ESS/s, {ours} / {entry}, {meaning}: {verdict(ratio, target, at_least=True)}")
    if best is not None:
        for ours in our_samplers():
            for key in ("ess_per_gradient", "ess_per_gradient_with_warmup"):
                top = max(table[entry][key] for entry in table if entry.startswith("blackjax"))
                found.append(
                    {"data": name, "ours": ours, "peer": "blackjax", "figure": key, "ratio": table[ours][key] / top}
                )
                print(f"{name}: {key.replace('_', ' ')}, {ours} / blackjax (its better): {table[ours][key] / top:.2f}")
    sys.stdout.flush()
    return found
