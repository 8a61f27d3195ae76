"""What a user gets without a setting: whether the chains converge, and whether two cores take half the time."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

import numpy as np

from hmcgp import GPClassifier, Model, datasets, sample
from hmcgp.reporting import diagnostics
from scripts.benchmarks.evidence import in_turns, verdict
from scripts.papers import barber_williams as paper

TWO_CORES_TARGET = 0.55  # of the time on one
SEED = 1


def tables() -> dict[str, tuple[Any, Any]]:
    """Inputs and labels: all rows, of Pima the published training rows."""
    pima = datasets.load_pima()
    return {
        "crabs": datasets.load_crabs(return_X_y=True),
        "pima": (pima.data[pima.train], pima.target[pima.train]),
        "ionosphere": datasets.load_ionosphere(return_X_y=True),
        "sonar": datasets.load_sonar(return_X_y=True),
    }


def default_fit(name: str) -> dict[str, Any]:
    """`GPClassifier(random_state=1).fit(X, y)` and what it says about itself."""
    X, y = tables()[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.perf_counter()
        gp = GPClassifier(random_state=SEED, progressbar=False).fit(X, y)
        seconds = time.perf_counter() - begin
    summary, trace = gp.summary(), gp.trace_
    return {
        "data": name,
        "rows": X.shape[0],
        "inputs": X.shape[1],
        "sampler": trace.sampler,
        "r_hat": float(summary["r_hat"].max()),
        "worst": str(summary["r_hat"].idxmax()),
        "ess": float(summary["ess_bulk"].min()),
        "ess_tail": float(summary["ess_tail"].min()),
        "divergences": int(trace.stats["diverging"].sum()),
        "evaluations_per_draw": float(trace.stats["n_steps"].mean()),
        "seconds": seconds,
        "findings": [finding.kind for finding in diagnostics.check(trace)],
        "warnings": [f"{w.category.__name__}: {w.message}" for w in caught],
    }


def report_defaults(rows: list[str]) -> list[dict[str, Any]]:
    print(f"\nGPClassifier(random_state={SEED}).fit(X, y), nothing else set, all {os.cpu_count()} cores")
    print(
        f"{'':<11} {'rows':>5} {'inputs':>6} {'sampler':>8} {'R-hat':>7} {'ESS':>6} {'tail':>6} {'div.':>5} "
        f"{'eval/draw':>9} {'seconds':>8}  says"
    )
    found = []
    for name in rows:
        row = default_fit(name)
        found.append(row)
        print(
            f"{name:<11} {row['rows']:5d} {row['inputs']:6d} {row['sampler']:>8} {row['r_hat']:7.3f} {row['ess']:6.0f} "
            f"{row['ess_tail']:6.0f} {row['divergences']:5d} {row['evaluations_per_draw']:9.1f} {row['seconds']:8.1f}  "
            + (", ".join(row["findings"]) or "nothing"),
            flush=True,
        )
        for text in row["warnings"]:
            print(f"            {text[:240]}")
    return found


def two_cores(tune: int = 100, draws: int = 100) -> dict[str, Any] | None:
    """Four chains on Pima in two threads over the same chains one after another, in turns."""
    if (os.cpu_count() or 1) < 2:
        print("two cores: there is one only")
        return None
    split = paper.pima()
    model = Model(split.X, split.y, kernel=paper.KERNEL)

    def run(n_jobs: int) -> Any:
        return sample(model, draws=draws, tune=tune, chains=4, random_state=0, n_jobs=n_jobs, progressbar=False).draws

    same = bool(np.array_equal(run(1), run(2)))
    best = in_turns({"one": lambda: run(1), "two": lambda: run(2)}, seconds=20.0)
    ratio = best["two"] / best["one"]
    print(
        f"\n4 chains at n = {len(split.y)}: two cores / one {verdict(ratio, TWO_CORES_TARGET, at_least=False)} "
        f"({best['two']:.2f} s, {best['one']:.2f} s); the draws are {'the same' if same else 'NOT the same'}",
        flush=True,
    )
    return {"n": len(split.y), "one_s": best["one"], "two_s": best["two"], "ratio": ratio, "same_draws": same}
