"""Inducing inputs: time and error of an evaluation beside dense matrices, whole fits beside other classifiers, memory.

    python -m scripts.benchmarks.inducing                         # evaluations, n = 500 to 10,000: four minutes
    python -m scripts.benchmarks.inducing evaluations --rows 100000 --inducing 100 200     # 1 minute, below 2 GB
    python -m scripts.benchmarks.inducing fit                     # MAP fits of 10,000 rows, against other classifiers
    python -m scripts.benchmarks.inducing fit --sampler surrogate --inducing 100     # integrated; or --sampler hmc
    python -m scripts.benchmarks.inducing large                   # MAP of 100,000 rows, and what a draw of HMC costs
    python -m scripts.benchmarks.inducing regression              # numbers, against the iterative solver at 8,000 rows
    python -m scripts.benchmarks.inducing predictions             # 100,000 new rows, 100 draws, m = 200
    python -m scripts.benchmarks.inducing blocks                  # rows in blocks: time of a block, size of a message

Eight inputs, of which four matter; labels by a logistic of a smooth function.  Inducing inputs are chosen as
`GPClassifier(inducing=m)` chooses them.  An evaluation is log Z and its gradient, warm from one a leapfrog step away,
one core, BLAS on one thread, in time on the processor; errors are against the dense model where it fits, at
hyperparameters near the most probable ones.  Where dense ones are skipped, the change to twice as many inducing
inputs stands in.
"""

from __future__ import annotations

import argparse
import importlib.util
import pickle
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from hmcgp import GPClassifier, Model, RowBlocks, SpreadModel, find_map
from hmcgp.evidence import Exact, Iterative
from hmcgp.evidence.low_rank import spread as spread_sums
from hmcgp.model import block_work
from hmcgp.model.inducing import pivoted_inputs, spread_inputs, with_inducing
from hmcgp.posterior.predict import latent_moments, probabilities
from hmcgp.runtime.blas_threads import single_blas_thread

MOST_DENSE = 4000  # rows for which the dense model is computed
STEP = 0.02  # in unconstrained coordinates, of a leapfrog
NEW_ROWS = 10_000  # held out


def latent(X: Any) -> Any:
    """Function behind labels and numbers."""
    return 2.0 * np.sin(1.5 * X[:, 0]) + X[:, 1] + 0.5 * X[:, 2] * X[:, 3]


def problem(n: int, seed: int | None = None) -> tuple[Any, Any]:
    """Inputs and labels -1 and +1 of n rows."""
    rng = np.random.default_rng(n if seed is None else seed)
    X = rng.normal(size=(n, 8))
    return X, np.where(latent(X) + rng.logistic(size=n) > 0.0, 1.0, -1.0)


def seconds(model: Model, u: Any, repeats: int = 3) -> float:
    """Processor time of a warm evaluation with its gradient, the best of some."""
    first, best = model.evaluate(u), np.inf
    for k in range(repeats):
        begin = time.process_time()
        model.evaluate(u + STEP * (-1) ** k, first.carry)
        best = min(best, time.process_time() - begin)
    return float(best)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Result of a call, and its time on the processor, over all threads."""
    begin = time.process_time()
    return work(), time.process_time() - begin


# -- evaluations -----------------------------------------------------------------------------------------------------


def evaluations(arguments: argparse.Namespace) -> None:
    """Time and error of evaluations against n and m, dense beside low rank."""
    for n in arguments.rows or [500, 1000, 2000, 4000, 10_000]:
        rows_of_table(n, sorted(arguments.inducing or [50, 100, 200, 400]))


def rows_of_table(n: int, numbers: list[int]) -> None:
    """Print a line for the dense model, if it is computed, and one for each number of inducing inputs."""
    X, y = problem(n)
    dense = Model(X, y)
    pilot, pilot_time = timed(
        lambda: find_map(with_inducing(dense, spread_inputs(X, 50)), n_restarts=1, random_state=0, n_jobs=1, maxiter=30)
    )
    most = max(numbers) if n <= MOST_DENSE else 2 * max(numbers)
    Z, choice_time = timed(lambda: pivoted_inputs(dense.kernel_at(pilot.parameters), X, min(most, n)))
    print(f"n = {n:,}: pilot {pilot_time:.1f} s, choice of {len(Z)} inputs {choice_time:.1f} s")
    u, new = pilot.position, problem(n + 1)[0][:500]
    theta = pilot.parameters[None]
    exact = dense if n <= MOST_DENSE else with_inducing(dense, Z)
    reference, p = exact.posterior(theta[0])[1].log_z, probabilities(exact, theta, new, n_jobs=1)
    mean, variance = latent_moments(exact, theta, new)
    if n <= MOST_DENSE:
        print(f"  dense    {1e3 * seconds(dense, u):9.1f} ms", flush=True)
    for m in [m for m in numbers if m < n]:
        model = with_inducing(dense, Z[:m])
        error = model.posterior(theta[0])[1].log_z - reference
        q = probabilities(model, theta, new, n_jobs=1)
        shift = (latent_moments(model, theta, new)[0] - mean) / np.sqrt(variance)
        print(
            f"  m = {m:4d} {1e3 * seconds(model, u):9.1f} ms   log Z {error:+8.3f} of {reference:.0f}   "
            f"probabilities {np.sqrt(np.mean((p - q) ** 2)):.4f} (largest {np.abs(p - q).max():.4f})   "
            f"latent means {np.sqrt(np.mean(shift**2)):.3f} sd",
            flush=True,
        )


# -- fits ------------------------------------------------------------------------------------------------------------


def fit(arguments: argparse.Namespace) -> None:
    """Fits of 10,000 rows: log loss at held-out rows and time on the processor, beside other classifiers."""
    n = (arguments.rows or [10_000])[0]
    (X, y), (X_new, y_new) = problem(n), problem(NEW_ROWS, seed=1)
    best = log_loss(y_new, 1.0 / (1.0 + np.exp(-latent(X_new))))
    print(f"n = {n:,}, {NEW_ROWS:,} held out; log loss of the truth {best:.4f}", flush=True)
    contenders: dict[str, Any] = {
        "logistic regression": LogisticRegression(),
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0),
    }
    for m in arguments.inducing or [100, 200, 400]:
        settings: dict[str, Any] = {"inducing": m, "sampler": arguments.sampler, "chains": arguments.chains}
        settings |= {"random_state": 0, "progressbar": False}
        contenders[f"{arguments.sampler}, inducing={m}"] = GPClassifier(**settings)
    for name, classifier in contenders.items():
        report_fit(name, classifier, X, y, X_new, y_new)
    if importlib.util.find_spec("gpboost") is None:
        print("gpboost: not installed")
    elif arguments.gpboost:
        p, spent = timed(lambda: gpboost_probabilities(X, y, X_new))
        print(f"GPBoost, Vecchia       log loss {log_loss(y_new, p):.4f}   fit and predict {spent:8.1f} s", flush=True)


def report_fit(name: str, classifier: Any, X: Any, y: Any, X_new: Any, y_new: Any) -> None:
    """Print log loss and time of a classifier."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _, spent = timed(lambda: classifier.fit(X, y))
        p, predicting = timed(lambda: classifier.predict_proba(X_new)[:, 1])
    more = f"   {classifier.inducing_error_}" if isinstance(classifier, GPClassifier) else ""
    said = "".join(f"\n    {type(w.message).__name__}: {str(w.message)[:110]}" for w in told)
    print(f"{name:22s} log loss {log_loss(y_new, p):.4f}   fit {spent:8.1f} s, predict {predicting:6.1f} s{more}{said}")
    print(f"    peak memory so far {peak_gigabytes():.2f} GB", flush=True)


def gpboost_probabilities(X: Any, y: Any, X_new: Any) -> Any:
    """Probabilities of GPBoost's Vecchia approximation, with its defaults."""
    import gpboost

    settings = {"cov_function": "gaussian_ard", "likelihood": "bernoulli_logit", "gp_approx": "vecchia"}
    model = gpboost.GPModel(gp_coords=X, **settings)
    model.fit(y=(y + 1.0) / 2.0)
    return model.predict(gp_coords_pred=X_new, predict_response=True)["mu"]


def large(arguments: argparse.Namespace) -> None:
    """MAP of 100,000 rows, and what a draw of HMC costs."""
    n, m = (arguments.rows or [100_000])[0], (arguments.inducing or [200])[0]
    (X, y), (X_new, y_new) = problem(n), problem(NEW_ROWS, seed=1)
    gp = GPClassifier(inducing=m, sampler="map", refine=None, random_state=0)
    report_fit(f"MAP, inducing={m}", gp, X, y, X_new, y_new)
    each = seconds(gp.model_, gp.model_.unconstrain(gp.trace_.flat[0]), repeats=2)
    print(f"n = {n:,}, m = {m}: a warm evaluation takes {each:.2f} s; a draw of HMC, of about ten, {10 * each:.0f} s;")
    print(f"one chain of 100 + 100 draws {2000 * each / 3600:.1f} hours")


def regression(arguments: argparse.Namespace) -> None:
    """Numbers: an evaluation through inducing inputs, beside the iterative solver."""
    n = (arguments.rows or [8000])[0]
    X, _ = problem(n)
    y = latent(X) + np.random.default_rng(1).normal(size=n)
    y = (y - y.mean()) / y.std()
    model = Model(X, y, likelihood="gaussian")
    pilot = find_map(with_inducing(model, spread_inputs(X, 50)), n_restarts=1, random_state=0, n_jobs=1, maxiter=30)
    u, Z = pilot.position, pivoted_inputs(model.kernel_at(pilot.parameters), X, 400)
    iterative = model.with_evidence(Iterative())
    found, spent = timed(lambda: iterative.evaluate(u))
    print(f"n = {n:,}: iterative {spent:.2f} s, log density {found.logdensity:.2f}", flush=True)
    for m in arguments.inducing or [100, 200, 400]:
        for name, provider in (("FITC", Exact()), ("Titsias", Exact(variational=True))):
            other = with_inducing(model, Z[:m]).with_evidence(provider)
            print(f"  m = {m:4d} {name:8s} {seconds(other, u):.3f} s, {other.evaluate(u).logdensity:.2f}", flush=True)


def predictions(arguments: argparse.Namespace) -> None:
    """Probabilities of 100,000 new rows, averaged over 100 draws, m = 200."""
    n, m = (arguments.rows or [10_000])[0], (arguments.inducing or [200])[0]
    X, y = problem(n)
    model = with_inducing(Model(X, y), spread_inputs(X, m))
    u = find_map(model, n_restarts=1, random_state=0, maxiter=20).position
    draws = np.array([model.constrain(u + 0.05 * np.random.default_rng(s).normal(size=len(u))) for s in range(100)])
    new = problem(100_000, seed=2)[0]
    _, solving = timed(lambda: probabilities(model, draws, new[:10]))
    _, both = timed(lambda: probabilities(model, draws, new))
    print(
        f"{len(new):,} rows, {len(draws)} draws, n = {n:,}, m = {m}: {both - solving:.1f} s of processor time, after "
        f"{solving:.1f} s for the latent posteriors of the draws, which a fitted estimator keeps"
    )


def blocks(arguments: argparse.Namespace) -> None:
    """Rows in blocks: time of each map for one block, size of its messages, and the plan for ten million rows."""
    n, m = (arguments.rows or [20_000])[0], (arguments.inducing or [500])[0]
    X, y = problem(n)
    model = SpreadModel(RowBlocks.of_arrays(X, y, rows=n), inducing=spread_inputs(X, m), n_jobs=1)
    theta, block = model.constrain(np.zeros(model.n_dim)), model._blocks[0]
    small = block._replace(key=(0, 0, 0), X=X[:50], y=y[:50])
    model_of_few = block_work.label_sums(small, theta, np.zeros(m))  # compiled before the clock starts
    block_work.pull_back(small, theta, spread_sums._factor(model_of_few.gram, np.zeros(m)), np.zeros(m))
    _, first = timed(lambda: block_work.prior(block, theta))
    sums, newton = timed(lambda: block_work.label_sums(block, theta, np.zeros(m)))
    found = model._solve(theta, None)[0]
    part, responding = timed(lambda: block_work.label_response(block, theta, found))
    back, pulling = timed(lambda: block_work.pull_back(block, theta, found, part))
    sizes = [len(pickle.dumps(message)) / 1e6 for message in (sums, (theta, found, part), back)]
    print(f"a block of {n:,} rows, m = {m}: covariances {first:.2f} s; a Newton step {newton:.2f} s; the gradient ")
    print(
        f"  {responding:.2f} + {pulling:.2f} s.  Messages: a Newton step {sizes[0]:.2f} MB up, {8e-6 * m:.3f} MB down; "
    )
    print(f"  the gradient {2 * sizes[1]:.2f} MB down, {sizes[2] + 8e-6 * m:.2f} MB up")
    steps, cores, n_blocks = 4, 64, 10_000_000 / n
    each = (first + steps * newton + responding + pulling) * n_blocks / cores
    up = (steps * sizes[0] + sizes[2]) * n_blocks
    print(f"10,000,000 rows on {cores} cores, {steps} Newton steps: {each:.0f} s of work on each core; ")
    print(f"  {up / 1e3:.1f} GB between workers, {up / n_blocks:.0f} MB of them to the model; ")
    print(f"  {8e-9 * 1e7 * m:.0f} GB of covariances, {8e-9 * 1e7 * m / cores:.2f} GB a core")


def peak_gigabytes() -> float:
    """Largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


FIGURES = {f.__name__: f for f in (evaluations, fit, large, regression, predictions, blocks)}


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=FIGURES, nargs="?", default="evaluations")
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--inducing", type=int, nargs="+")
    parser.add_argument("--gpboost", action="store_true", help="fit: GPBoost's Vecchia approximation as well")
    parser.add_argument("--sampler", default="map", help="fit: how the hyperparameters are integrated")
    parser.add_argument("--chains", type=int, default=4, help="fit: chains, where they are sampled")
    arguments = parser.parse_args()
    with single_blas_thread():
        FIGURES[arguments.figure](arguments)
    print(f"peak memory {peak_gigabytes():.2f} GB")


if __name__ == "__main__":
    main()
