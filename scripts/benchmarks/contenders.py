"""One contender in a process of its own: started by `samplers.py`, which reads the JSON it prints.

    python contenders.py run hmc input.npz output.npz --tune 500 --draws 500 --seed 0
    python contenders.py check blackjax input.npz

Its own process, because compilation, threads and peak memory are the process's.  `input.npz` holds X, y and the peers'
starting points; `output.npz` gets the draws.  On one core the process is pinned to it, whatever threads it starts.

`check` compares a peer's log density and gradient with ours, and fails where they differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from typing import Any

import numpy as np

from scripts.benchmarks import peers

PEERS = {"blackjax": ("jax", "blackjax"), "pymc": ("pymc",)}  # what each needs
TOLERANCE = 1e-6
JOINT: dict[str, dict[str, Any]] = {  # settings of `sample_jointly`
    "joint": {},
    "joint-single": {"n_vectors": 1},
    "joint-ep": {"evidence": "ep"},
}


def missing(peer: str) -> list[str]:
    """Packages that a peer needs and that are not installed."""
    return [name for name in PEERS[peer] if importlib.util.find_spec(name) is None]


def paper_model(X: Any, y: Any, kind: Any = None) -> Any:
    """Our model of the paper."""
    from hmcgp import Model
    from hmcgp.kernels import SquaredExponential
    from hmcgp.priors import LogNormal

    kernel = SquaredExponential(LogNormal(*peers.PRIOR_VARIANCE), LogNormal(*peers.PRIOR_LENGTH_SCALE), ard=True)
    return (Model if kind is None else kind)(X, y, kernel=kernel)


# -- ours ------------------------------------------------------------------------------------------------------------


def run_ours(X: Any, y: Any, starts: Any, *, sampler: str, tune: int, draws: int, seed: int, cores: int) -> peers.Run:
    """Our own sampler, from starts of its own (draws from the prior, as the peers').

    Chains take turns on a core, so the clock cannot tell warm-up from draws within one call: a first call makes the
    warm-up and one draw, a second one goes on from its checkpoint.
    """
    from hmcgp import Model, sample

    class Counted(Model):
        evaluations = 0

        def evaluate(self, u: Any, carry: object = None, gradient: bool = True) -> Any:
            self.evaluations += 1
            return super().evaluate(u, carry, gradient)

    model = paper_model(X, y, Counted)
    begin = time.perf_counter()
    model.evaluate(starts[0], model.evaluate(starts[0]).carry)  # compiles, or loads what was compiled before
    compile_s = time.perf_counter() - begin
    model.evaluations = 0
    with tempfile.TemporaryDirectory() as folder:

        def run(n: int) -> tuple[Any, float, float]:
            begin, cpu = time.perf_counter(), time.process_time()
            trace = sample(
                model,
                sampler,
                draws=n,
                tune=tune,
                chains=len(starts),
                random_state=seed,
                n_jobs=cores,
                progressbar=False,
                checkpoint=folder,
            )
            return trace, time.perf_counter() - begin, time.process_time() - cpu

        _, warm_up_s, warm_up_cpu_s = run(1)
        trace, sampling_s, sampling_cpu_s = run(draws)
    n_draws = int(trace.stats["n_steps"].sum())
    return peers.Run(
        trace.unconstrained,
        compile_s,
        warm_up_s,
        sampling_s,
        warm_up_s + sampling_s,
        warm_up_cpu_s + sampling_cpu_s,
        model.evaluations - n_draws,
        n_draws,
        int(trace.stats["diverging"].sum()),
    )


def run_joint(
    X: Any, y: Any, starts: Any, *, tune: int, draws: int, seed: int, evidence: str = "laplace", n_vectors: int = 16
) -> peers.Run:
    """Our sampler of hyperparameters and latent values; its time is divided by leapfrog steps, as PyMC's is."""
    from hmcgp import sample_jointly

    model = paper_model(X, y).with_evidence(evidence)

    def run(tune: int, draws: int, chains: int) -> Any:
        return sample_jointly(
            model, tune=tune, draws=draws, chains=chains, n_vectors=n_vectors, random_state=seed, n_jobs=1,
            progressbar=False,
        ).trace  # fmt: skip

    begin = time.perf_counter()
    run(2, 2, 1)  # compiles, or loads what was compiled before
    compile_s = time.perf_counter() - begin
    begin, cpu = time.perf_counter(), time.process_time()
    trace = run(tune, draws, len(starts))
    run_s, run_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    n_warmup, n_draws = (int(stats["n_steps"].sum()) for stats in (trace.warmup_stats, trace.stats))
    share = n_draws / (n_warmup + n_draws)
    divergences = int(trace.stats["diverging"].sum())
    times = compile_s, run_s * (1.0 - share), run_s * share, run_s, run_cpu_s
    return peers.Run(trace.unconstrained, *times, n_warmup, n_draws, divergences)


# -- is it the same density? -----------------------------------------------------------------------------------------


def check_blackjax(X: Any, y: Any, starts: Any) -> dict[str, float]:
    """Compare the JAX density with ours at draws from the prior, and nearer to the data."""
    import jax

    model, theirs = paper_model(X, y), jax.value_and_grad(peers.jax_logdensity(X, y))
    points = [*starts, *(0.3 * start + 0.7 for start in starts)]
    ours = [model.logdensity_and_grad(u) for u in points]
    return compare(ours, [jax.jit(theirs)(u) for u in points])


def check_pymc(X: Any, y: Any, starts: Any) -> dict[str, float]:
    """Compare PyMC's density of (u, z) with one made of our kernel, likelihood and prior; gradients by differences."""
    model, latent = paper_model(X, y), peers.pymc_model(X, y)
    value, grad = latent.compile_logp(), latent.compile_dlogp()
    d, n = X.shape[1], X.shape[0]
    rng = np.random.default_rng(0)

    def ours(x: Any) -> float:
        u, z = x[: 1 + d], x[1 + d :]
        K = model.kernel_at(model.constrain(u))(model.X)
        f = np.linalg.cholesky(K + peers.JITTER * np.exp(u[0]) * np.eye(n)) @ z
        return float(model.log_prior(u)[0] + model.likelihood.log_prob(model.y, f).sum() - 0.5 * z @ z)

    def theirs(x: Any) -> dict[str, Any]:
        return {"log_variance": np.array(x[0]), "log_length_scale": x[1 : 1 + d], "z": x[1 + d :]}

    points = [np.concatenate([0.3 * u + 0.7, rng.normal(size=n)]) for u in starts]
    directions = [*np.eye(1 + d + n)[: 1 + d], *(rng.normal(size=(3, 1 + d + n)) / np.sqrt(n))]
    h = 1e-3  # differences of fourth order: an error of h^4, and of rounding / h
    first, second = [], []
    for x in points:
        slopes = [
            (8.0 * (ours(x + h * v) - ours(x - h * v)) - ours(x + 2.0 * h * v) + ours(x - 2.0 * h * v)) / (12.0 * h)
            for v in directions
        ]
        first.append((ours(x), np.array(slopes)))
        second.append((float(value(theirs(x))), np.array([grad(theirs(x)) @ v for v in directions])))
    return compare(first, second)


def compare(ours: list[Any], theirs: list[Any]) -> dict[str, float]:
    """Largest errors of differences of log densities, and of gradients, relative to the larger of 1 and their size."""
    value, other = (np.array([float(v) for v, _ in side]) for side in (ours, theirs))
    first, second = (value - value[0], other - other[0])
    values = np.max(np.abs(first - second) / np.maximum(1.0, np.abs(first)))
    gradients = max(
        np.max(np.abs(g - np.asarray(h))) / max(1.0, np.max(np.abs(g)))
        for (_, g), (_, h) in zip(ours, theirs, strict=True)
    )
    return {"values": float(values), "gradients": float(gradients)}


# -- the process -----------------------------------------------------------------------------------------------------


def peak_mb() -> float | None:
    """Peak resident memory of this process in MB; None where it cannot be asked."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024.0 if sys.platform != "darwin" else 1024.0**2)


def run(options: argparse.Namespace) -> dict[str, Any]:
    if options.cores == 1 and hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[options.core % len(allowed)]})
    data = dict(np.load(options.input))
    data["starts"] = data["starts"][options.chains]
    given = {"tune": options.tune, "draws": options.draws, "seed": options.seed}
    clock = time.perf_counter()
    if options.contender.startswith("blackjax"):
        import blackjax  # noqa: F401

        found = _run_after(clock, peers.run_blackjax, data, given, diagonal=options.contender.endswith("diagonal"))
    elif options.contender == "pymc":
        import pymc  # noqa: F401

        found = _run_after(clock, peers.run_pymc, data, given)
    elif options.contender in JOINT:
        import hmcgp

        found = _run_after(clock, run_joint, data, given, **JOINT[options.contender])
    else:
        import hmcgp  # noqa: F401

        found = _run_after(clock, run_ours, data, given, sampler=options.contender, cores=options.cores)
    result, import_s = found
    np.savez(options.output, draws=result.draws)
    return {**result._asdict(), "draws": None, "import_s": import_s, "peak_mb": peak_mb()}


def _run_after(
    clock: float, function: Any, data: Any, given: dict[str, int], **settings: Any
) -> tuple[peers.Run, float]:
    import_s = time.perf_counter() - clock
    return function(data["X"], data["y"], data["starts"], **given, **settings), import_s


def check(options: argparse.Namespace) -> dict[str, float]:
    data = np.load(options.input)
    function = {"blackjax": check_blackjax, "pymc": check_pymc}[options.contender]
    errors = function(data["X"], data["y"], data["starts"])
    if not max(errors.values()) <= TOLERANCE:
        sys.exit(f"{options.contender} samples another density than we do: relative errors {errors} > {TOLERANCE:g}")
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["run", "check"])
    parser.add_argument("contender", help="a sampler of ours, joint, blackjax-dense, blackjax-diagonal or pymc")
    parser.add_argument("input")
    parser.add_argument("output", nargs="?")
    for name, default in (("tune", 500), ("draws", 500), ("seed", 0), ("cores", 1), ("core", -1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--chains", type=int, nargs="+", default=[0, 1, 2, 3])
    options = parser.parse_args()
    print(json.dumps(run(options) if options.action == "run" else check(options)))


if __name__ == "__main__":
    main()
