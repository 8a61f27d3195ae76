"""The exact posterior of hyperparameters and latent values: `sample_jointly` against PyMC's NUTS on all latent values.

    python -m scripts.benchmarks.joint                             ESS per second of processor time, crabs and Pima
    python -m scripts.benchmarks.joint --no-peers                  ours alone: the default, one vector, guided by EP
    python -m scripts.benchmarks.joint --reference --draws 2500    a long run, printed as JSON for later comparison
    python -m scripts.benchmarks.joint --agreement --draws 2000    against weighted draws, `refine="exact"`: 15 minutes

Model, priors and processes are those of `samplers.py`; PyMC needs the packages named there.  ESS is the smallest bulk
ESS over the hyperparameters; the time of a run is divided between warm-up and draws by leapfrog steps, for both.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

from hmcgp import GPClassifier, sample_jointly
from hmcgp.numerics import chain_statistics
from hmcgp.reporting import convergence, diagnostics
from hmcgp.samplers import Trace
from scripts.benchmarks import contenders, samplers
from scripts.benchmarks.evidence import verdict
from scripts.papers.barber_williams import errors

TARGET = 5.0  # our effective draws per second of processor time over PyMC's
FIGURES = {"ess_per_cpu_s": "draws only", "ess_per_cpu_s_with_warmup": "with warm-up"}


def compare(name: str, *, tune: int, draws: int, seeds: int, with_peers: bool) -> list[dict[str, Any]]:
    """Run all contenders on one data set and report; returns a row for each."""
    entries = list(contenders.JOINT)
    with tempfile.TemporaryDirectory() as folder:
        arena = samplers.Arena(name, Path(folder), tune=tune, draws=draws)
        if with_peers and samplers.installed("pymc"):
            print(f"{name}: pymc's density is ours; relative errors {arena.check('pymc')}", flush=True)
            entries.append("pymc")
        table: dict[str, dict[str, Any]] = {}
        for entry in entries:
            rows = [
                {**arena.run(entry, seed), "n_draws": samplers.CHAINS * draws}
                for seed in range(seeds if entry != "pymc" else 1)
            ]
            row = samplers.summarise(rows)
            cpu = float(np.mean([r["run_cpu_s"] for r in rows]))
            table[entry] = {**row, "ess_per_cpu_s_with_warmup": row["ess"] / cpu, "cpu_s": cpu}
            print(
                f"{name}, {entry}: ESS {row['ess']:.0f}, R-hat {row['r_hat']:.3f}, {row['divergences']} divergences, "
                f"{cpu:.1f} s of processor time with warm-up; ESS/s {table[entry]['ess_per_cpu_s']:.2f}, with warm-up "
                f"{table[entry]['ess_per_cpu_s_with_warmup']:.2f}",
                flush=True,
            )
    if "pymc" in table:
        for key, meaning in FIGURES.items():
            ratio = table["joint"][key] / table["pymc"][key]
            print(f"{name}: ESS/s, joint / pymc, {meaning}: {verdict(ratio, TARGET, at_least=True)}", flush=True)
    return list(table.values())


def reference(name: str, *, tune: int, draws: int, seed: int) -> dict[str, Any]:
    """Moments of the hyperparameters and test probabilities of a long run, guided by EP."""
    split = samplers.DATA[name]()
    model = contenders.paper_model(split.X, split.y).with_evidence("ep")
    joint = sample_jointly(model, tune=tune, draws=draws, random_state=seed)
    table = diagnostics.summary(joint.trace)
    u = joint.trace.unconstrained
    p = joint.predict_proba(split.X_test)
    halves = [
        type(joint)(model, _chains(joint.trace, part), joint.latent[part]).predict_proba(split.X_test)[:, 1]
        for part in (slice(0, None, 2), slice(1, None, 2))
    ]
    return {
        "data": name,
        "draws": list(u.shape[:2]),
        "names": joint.trace.names,
        "u_mean": u.mean(axis=(0, 1)).round(4).tolist(),
        "u_sd": u.std(axis=(0, 1)).round(4).tolist(),
        "u_mcse": [round(float(c.std() / np.sqrt(chain_statistics.ess_bulk(c))), 4) for c in np.moveaxis(u, 2, 0)],
        "r_hat": round(float(table["r_hat"].max()), 4),
        "ess_bulk": round(float(table["ess_bulk"].min())),
        "errors": errors(p, split.y_test),
        "log_loss": round(log_loss(split.y_test, p), 5),
        "rms_between_halves": round(float(np.sqrt(np.mean((halves[0] - halves[1]) ** 2))), 5),
        "test_probabilities": p[:, 1].round(4).tolist(),
    }


def agreement(name: str, *, tune: int, draws: int, seed: int) -> None:
    """Print how far joint draws and `refine="exact"` are apart: test probabilities, and posterior means in sd.

    Both are exact but for Monte Carlo error, which is printed beside: of the difference of two means, in sd.
    """
    split = samplers.DATA[name]()
    chains: dict[str, Any] = {"chains": samplers.CHAINS, "tune": tune, "draws": draws}
    gp = GPClassifier(
        contenders.paper_model(split.X, split.y).kernel, refine="exact", standardize=False, random_state=seed,
        predict_draws=samplers.CHAINS * draws, **chains,
    ).fit(split.X, split.y)  # fmt: skip
    joint = sample_jointly(gp.model_.with_evidence("ep"), random_state=seed + 1, **chains)
    p, q = gp.predict_proba(split.X_test)[:, 1], joint.predict_proba(split.X_test)[:, 1]
    print(f"{name}: {gp.refinement_}\n{name}: test probabilities differ by {np.sqrt(np.mean((p - q) ** 2)):.4f} rms")
    weight = gp.trace_.weight.reshape(gp.trace_.draws.shape[:2])
    for k, parameter in enumerate(joint.trace.names):
        u, v = gp.trace_.unconstrained[:, :, k], joint.trace.unconstrained[:, :, k]
        shift = (np.average(u, weights=weight) - v.mean()) / v.std()
        error = np.sqrt(1.0 / convergence.weighted_ess(u, weight)[0] + 1.0 / convergence.ess(v)[0])
        print(f"{name}: {parameter}: means differ by {shift:+.3f} sd (Monte Carlo error {error:.3f})", flush=True)


def _chains(trace: Trace, part: slice) -> Trace:
    return replace(trace, draws=trace.draws[part], unconstrained=trace.unconstrained[part])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(samplers.DATA)
    parser.add_argument("--data", nargs="+", choices=names, default=names)
    parser.add_argument("--tune", type=int, default=500)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=1, help="of ours; PyMC runs once")
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    parser.add_argument("--reference", action="store_true", help="print the posterior of a long run instead")
    parser.add_argument("--agreement", action="store_true", help='compare with refine="exact" instead')
    options = parser.parse_args()
    for name in options.data:
        if options.reference:
            print(json.dumps(reference(name, tune=options.tune, draws=options.draws, seed=0)), flush=True)
        elif options.agreement:
            agreement(name, tune=options.tune, draws=options.draws, seed=0)
        else:
            compare(name, tune=options.tune, draws=options.draws, seeds=options.seeds, with_peers=not options.no_peers)


if __name__ == "__main__":
    main()
