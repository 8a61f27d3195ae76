"""Regression, BLAS on one thread: ours against scikit-learn and LAPACK, and the iterative solver against Cholesky.

Times are of the processor, the best of several turns: what else the machine does counts little.  Targets are drawn from
the prior (squared exponential, one length scale for each of 8 inputs, of which two matter much), and evidence and
gradient are evaluated there.  The gradient is with respect to the logs of all 10 hyperparameters.  Beside the plain
errors of the iterative solver stands what they do to the posterior: by how many of its standard deviations they shift
it, √(e'H⁻¹e) with e the error of the gradient and H the curvature of the log evidence.

    python -m scripts.benchmarks.regression benchmark.json     draw what the section `solvers` found
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from hmcgp import Model, find_map, sample
from hmcgp.evidence import Exact, Iterative
from hmcgp.kernels import SquaredExponential
from hmcgp.numerics.lapack import cholesky_inplace
from hmcgp.samplers import HMC
from scripts.benchmarks.evidence import in_turns, lapack_floor, peak_arrays, verdict

LENGTH_SCALES = np.array([1.0, 2.0, 4.0, 8.0, 20.0, 20.0, 20.0, 20.0])
TARGETS = {200: 4.0, 1000: None, 2000: 2.0}  # n: scikit-learn / ours, at least
AGREEMENT = 1e-8
SOLVER_SIZES = [500, 1000, 2000, 4000, 8000]
SOLVERS = {"cholesky": Exact(), "iterative": Iterative()}
NOISES = (0.1, 0.01)
SEEDS = 3  # of the iterative solver, whose errors are averaged
HMC_ROWS, HMC_DRAWS, STEP_SIZE = 1500, 30, 0.3


def problem(n: int, noise: float) -> tuple[Model, Any]:
    """A model of targets drawn from its prior, and the hyperparameters they were drawn with."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, len(LENGTH_SCALES)))
    L = SquaredExponential(1.0, LENGTH_SCALES, ard=True)(X)
    L[np.diag_indices(n)] += noise
    assert cholesky_inplace(L)
    y = np.tril(L) @ rng.normal(size=n)
    theta = np.concatenate([[1.0], LENGTH_SCALES, [noise]])
    return Model(X, y, kernel=SquaredExponential(ard=True), likelihood="gaussian"), theta


def relative(ours: Any, theirs: Any) -> float:
    return float(np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs)))


def against_scikit_learn(n: int) -> dict[str, Any]:
    """Log evidence and its gradient: ours, scikit-learn's, and the two LAPACK calls that cannot be avoided."""
    model, theta = problem(n, 0.1)
    theirs = GaussianProcessRegressor(
        ConstantKernel(theta[0]) * RBF(theta[1:-1]) + WhiteKernel(theta[-1]), alpha=0.0, optimizer=None
    ).fit(model.X, model.y)
    log_theta = theirs.kernel_.theta

    def scikit_learn() -> Any:
        return theirs.log_marginal_likelihood(log_theta, eval_gradient=True, clone_kernel=False)

    floor, time_lapack = lapack_floor(model.kernel_at(theta)(model.X) + 0.1 * np.eye(n), time.process_time)
    best = in_turns(
        {"ours": lambda: model.log_evidence(theta), "lapack": time_lapack, "scikit_learn": scikit_learn},
        seconds=5.0,
        clock=time.process_time,
    )
    (log_z, grad), (their_log_z, their_grad) = model.log_evidence(theta), scikit_learn()
    return {
        "n": n,
        "inputs": model.X.shape[1],
        "ours_ms": 1e3 * best["ours"],
        "scikit_learn_ms": 1e3 * best["scikit_learn"],
        "dpotrf_ms": 1e3 * floor["dpotrf"],
        "dpotri_ms": 1e3 * floor["dpotri"],
        "scikit_learn_over_ours": best["scikit_learn"] / best["ours"],
        "ours_over_floor": best["ours"] / (floor["dpotrf"] + floor["dpotri"]),
        "log_z_difference": relative(log_z, their_log_z),
        "gradient_difference": relative(grad * theta, their_grad),
    }


def report() -> list[dict[str, Any]]:
    print("regression: log Z + gradient, SE-ARD, 8 inputs, Cholesky; one core, processor time")
    rows = []
    for n, target in TARGETS.items():
        rows.append(row := against_scikit_learn(n))
        worst = max(row["log_z_difference"], row["gradient_difference"])
        print(
            f"{n:5d}  ours {row['ours_ms']:8.3f} ms  scikit-learn {row['scikit_learn_ms']:8.2f} ms  "
            f"ratio {verdict(row['scikit_learn_over_ours'], target, at_least=True)}  "
            f"dpotrf {row['dpotrf_ms']:.3f} + dpotri {row['dpotri_ms']:.3f} ms, "
            f"ours / both {row['ours_over_floor']:.2f}  "
            f"differences: log Z {row['log_z_difference']:.1e}, gradient {row['gradient_difference']:.1e} "
            f"(≤ {AGREEMENT:g} {'met' if worst <= AGREEMENT else 'NOT MET'})",
            flush=True,
        )
    return rows


def curvature(model: Model, theta: Any) -> Any:
    """Minus the second derivatives of the log evidence in log theta, by differences of its gradient."""
    h = 1e-3
    here = model.log_evidence(theta)[1] * theta
    moved = [theta * np.exp(h * direction) for direction in np.eye(len(theta))]
    H = np.array([here - model.log_evidence(there)[1] * there for there in moved]) / h
    return 0.5 * (H + H.T)


PREPARE = """
from scripts.benchmarks.regression import SOLVERS, problem
def prepare(n):
    model, theta = problem(n, 0.1)
    model = model.with_evidence(SOLVERS["{solver}"])
    return lambda: model.log_evidence(theta)
"""


def compare_solvers(n: int, noise: float) -> dict[str, Any]:
    """Time of log evidence and gradient by both solvers, and the errors of the iterative one."""
    model, theta = problem(n, noise)
    iterative = [model.with_evidence(Iterative(seed=seed)) for seed in range(SEEDS)]
    found: dict[Any, Any] = {}

    def evaluate(name: Any, m: Model) -> None:
        found[name] = m._log_evidence(theta, None)

    best = in_turns(
        {"cholesky": partial(evaluate, "cholesky", model), "iterative": partial(evaluate, 0, iterative[0])},
        seconds=1.0,
        least=1 if n > 4000 else 3,
        clock=time.process_time,
    )
    for seed in range(1, SEEDS):
        evaluate(seed, iterative[seed])
    exact, grad = found.pop("cholesky")
    errors = np.array([(g - grad) * theta for _, g in found.values()])  # (seeds, p)
    H = curvature(iterative[0], theta)
    shifts = np.einsum("sp,sp->s", errors, np.linalg.solve(H, errors.T).T)
    return {
        "n": n,
        "noise": noise,
        "cholesky_s": best["cholesky"],
        "iterative_s": best["iterative"],
        "cholesky_over_iterative": best["cholesky"] / best["iterative"],
        "products": found[0][0].n_iter,
        "log_z": exact.log_z,
        "log_z_error": rms([e.log_z - exact.log_z for e, _ in found.values()]),
        "gradient": float(np.linalg.norm(grad * theta)),
        "gradient_error": rms(np.linalg.norm(errors, axis=1)),
        "posterior_shift_sd": rms(np.sqrt(np.maximum(shifts, 0.0))),
    }


def rms(x: Any) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


def crossover(rows: list[dict[str, Any]]) -> float | None:
    """The n from which on the iterative solver is the faster one, between sizes in proportion to their logs."""
    log_n = np.log([row["n"] for row in rows])
    gain = np.log([row["cholesky_over_iterative"] for row in rows])
    slower = np.flatnonzero(gain < 0.0)
    if not len(slower) or slower[-1] == len(rows) - 1:
        return None
    i = slower[-1]
    return float(np.exp(np.interp(0.0, gain[i : i + 2], log_n[i : i + 2])))


def report_solvers(sizes: list[int]) -> dict[str, Any]:
    print("solvers: log Z + gradient, SE-ARD, 8 inputs, default settings; one core, processor time")
    print(f"errors of the iterative solver, root mean square of {SEEDS} seeds; the gradient in log theta")
    rows, crossovers = [], {}
    for noise in NOISES:
        group = []
        for n in sizes:
            group.append(row := compare_solvers(n, noise))
            print(
                f"{n:5d}  noise {noise:4.2f}  Cholesky {row['cholesky_s']:8.4f} s  "
                f"iterative {row['iterative_s']:8.4f} s ({row['products']:2d} products)  "
                f"ratio {row['cholesky_over_iterative']:5.2f}  "
                f"error: log Z {row['log_z_error']:6.3f} of {row['log_z']:.0f}, "
                f"gradient {row['gradient_error']:6.3f} of {row['gradient']:.1f}, "
                f"shifts the posterior by {row['posterior_shift_sd']:.3f} sd",
                flush=True,
            )
        crossovers[str(noise)] = n_pays = crossover(group)
        print(f"       noise {noise:4.2f}  the iterative solver pays from n = {n_pays or float('nan'):.0f}", flush=True)
        rows += group
    memory = {s: peak_arrays(2000, PREPARE.replace("{solver}", s)) for s in ("cholesky", "iterative")}
    print("       peak memory at n = 2000 in n×n arrays: " + ", ".join(f"{s} {m:.2f}" for s, m in memory.items() if m))
    return {"rows": rows, "crossover": crossovers, "peak_arrays": memory, "hmc": report_hmc()}


def report_hmc() -> list[dict[str, Any]]:
    """HMC with both solvers from the same start, with the same step size, metric and random numbers."""
    model, theta = problem(HMC_ROWS, 0.1)
    mode = find_map(model, start=model.unconstrain(theta), n_restarts=1, random_state=0)
    covariance = np.linalg.inv(curvature(model, mode.parameters))
    hmc = HMC(step_size=STEP_SIZE, n_steps=5, jitter=0.0, metric=covariance)
    print(f"HMC at n = {HMC_ROWS}: {HMC_DRAWS} trajectories of 5 steps of {STEP_SIZE}")
    rows = []
    for solver in ("cholesky", "iterative"):
        density = model.with_evidence(SOLVERS[solver])
        begin = time.process_time()
        trace = sample(
            density, hmc, draws=HMC_DRAWS, tune=0, chains=1, random_state=1, start=mode.position, progressbar=False
        )
        row = {
            "solver": solver,
            "acceptance": float(np.mean(trace.stats["acceptance_rate"])),
            "energy_error": rms(trace.stats["energy_error"]),
            "seconds": time.process_time() - begin,
        }
        rows.append(row)
        print(
            f"       {solver:<9}  acceptance {row['acceptance']:.3f}  energy error (rms) {row['energy_error']:.4f}  "
            f"{row['seconds']:.1f} s",
            flush=True,
        )
    return rows


def draw(path: str, output: Path) -> None:
    """Time against n by both solvers, and the errors of the iterative one (after MacKay 1998, fig. 7)."""
    import matplotlib.pyplot as plt

    from hmcgp.plots import style

    rows = json.loads(Path(path).read_text(encoding="utf-8"))["solvers"]["rows"]
    figure, (times, errors) = plt.subplots(1, 2, figsize=(11.0, 4.4), layout="constrained")
    for noise, line in zip(NOISES, ("o-", "s--"), strict=True):
        group = [row for row in rows if row["noise"] == noise]
        n = [row["n"] for row in group]
        for solver, colour in (("Cholesky", style.BLUE), ("iterative", style.VERMILION)):
            seconds = [row[f"{solver.lower()}_s"] for row in group]
            times.loglog(n, seconds, line, color=colour, label=f"{solver}, noise {noise}")
        for error, what, colour in (
            ("log_z_error", "log evidence, nats", style.CHAINS[2]),
            ("gradient_error", "gradient in log θ (its norm)", style.CHAINS[1]),
            ("posterior_shift_sd", "shift of the posterior in its sd", style.BLUE),
        ):
            label = what if noise == NOISES[0] else None  # dashes mean the same on both sides
            errors.loglog(n, [row[error] for row in group], line, color=colour, label=label)
    times.set(ylabel="seconds", title="Log evidence and gradient, one core")
    errors.set(title=f"Error of the iterative solver, root mean square of {SEEDS} seeds")
    errors.set_ylim(top=20.0)
    for ax in (times, errors):
        ax.set_xlabel("rows")
        ax.set_xticks(n, labels=[str(k) for k in n])
        ax.minorticks_off()
        ax.legend(fontsize="small", frameon=False)
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=80)
    print(output)


if __name__ == "__main__":
    draw(sys.argv[1], Path(__file__).parents[1] / "pictures" / "solvers.png")
