"""Measure the figures that more than one page quotes, and write them to one file and into the pages.

    python -m scripts.benchmarks.figures                          measure all (about half an hour of one core)
    python -m scripts.benchmarks.figures --only evaluations       measure one group, keep the others
    python -m scripts.benchmarks.figures --write-pages            only rewrite the pages from the file

`figures.json` holds each figure with its value, the text that pages quote, and the machine, date and versions of the
run that measured it.  In a page, a figure stands between two comments, which GitHub and Sphinx do not show,

    <!--fig:predict_100k_rows-->23 s<!--/fig-->

and the text between them is rewritten from the file.  Docstrings quote the same texts without comments; `QUOTES` lists
them.  `tests/scripts/test_figures.py` compares pages and docstrings with the file.

Times are processor seconds with one BLAS thread and one worker, so that other jobs matter less; measure on an idle
machine all the same: memory bandwidth and caches are shared.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from hmcgp import GPClassifier, GPRegressor, Model, datasets
from hmcgp.runtime.typing import Array
from scripts.benchmarks import regression
from scripts.benchmarks.evidence import KERNEL, in_turns, problem, theta_of
from scripts.benchmarks.predictions import CALLS, seconds, table

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("figures.json")
MARKER = re.compile(r"(<!--fig:(\w+)-->)(.*?)(<!--/fig-->)")
QUOTES = {  # texts of figures in files other than Markdown pages, which have no markers
    "hmcgp/estimators/classifier.py": [
        "auto_probability_rms", "auto_probability_max", "auto_interval_rms", "auto_interval_max"
    ],
    "hmcgp/posterior/compression.py": [
        "auto_probability_rms", "auto_probability_max", "auto_interval_rms", "auto_interval_max"
    ],
    "hmcgp/estimators/regressor.py": ["auto_mean_max", "auto_mean_interval_max"],
    "hmcgp/estimators/default_sampler.py": ["hmc_evaluations", "surrogate_evaluations", "surrogate_gradients"],
}  # fmt: skip
LIBRARIES = ("hmcgp", "numpy", "scipy", "numba", "scikit-learn")
SIZES = {"laplace": (80, 200, 532, 1000, 2000), "cholesky": (200, 1000, 2000)}  # rows of the tables of evaluations
BUSY = 0.5  # load average above which a run warns

FIRST_FIT = """
import time, warnings
warnings.simplefilter("ignore")
import hmcgp
begin = time.process_time()
pima = hmcgp.datasets.load_pima()
X, y = pima.data[pima.train], pima.target[pima.train]
hmcgp.GPClassifier(random_state=1, n_jobs=1, progressbar=False).fit(X, y).predict_proba(X)
print(time.process_time() - begin)
"""


class Figure(NamedTuple):
    """One measured quantity."""

    value: Any  # a number, or the smallest and the largest of several
    text: str  # that pages quote
    what: str  # that was measured


# -- texts ------------------------------------------------------------------------------------------------------------


def rounded(x: float, digits: int = 2) -> float:
    """Round to a number of significant digits."""
    return float(f"{x:.{digits}g}")


def duration(s: float, digits: int = 2) -> str:
    """Text of a time: 0.14 ms, 47 ms, 0.43 s, 23 s."""
    return f"{rounded(1e3 * s, digits):g} ms" if s < 0.1 else f"{rounded(s, digits):g} s"


def count_range(counts: list[int]) -> str:
    """Text of some counts: 2,000, or 10,000 to 19,000."""
    low, high = (f"{int(rounded(c)):,}" for c in (min(counts), max(counts)))
    return low if low == high else f"{low} to {high}"


def bound(x: float) -> str:
    """Text of an upper bound: rounded up to one significant digit."""
    unit = 10.0 ** np.floor(np.log10(x))
    return f"{np.ceil(x / unit - 1e-9) * unit:.6g}"


# -- measurements -----------------------------------------------------------------------------------------------------


@cache
def reference_tables() -> dict[str, tuple[Array, Any, Array]]:
    """Training inputs, labels and new inputs by name: tables with a few hundred rows, of 5 to 10 inputs."""
    found = {}
    for name, columns, step in (
        ("crabs", slice(None), 2),
        ("breast_cancer", slice(None), 4),
        ("ionosphere", slice(2, 10), 2),
        ("sonar", slice(None, None, 6), 2),
        ("thyroid", slice(None), 2),
    ):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        X, y = np.asarray(X, dtype=float)[:, columns], np.asarray(y)
        whole = ~np.isnan(X).any(axis=1)
        X, y = X[whole], y[whole]
        found[name] = X[::step], y[::step], X[1::step]
    pima: Any = datasets.load_pima()
    X, y = pima.data.to_numpy(), np.asarray(pima.target)
    found["pima"] = X[pima.train], y[pima.train], X[~pima.train]
    return found


@cache
def fit(name: str, **settings: Any) -> Any:
    """Fit of a reference table with the default settings but for these."""
    X, y, _ = reference_tables()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GPClassifier(random_state=1, n_jobs=1, progressbar=False, **settings).fit(X, y)


def measure_evaluations() -> dict[str, Figure]:
    """Evaluations of the log posterior and its gradient in fits with default settings."""
    hmc, surrogate, gradients = {}, {}, {}
    for name in ("crabs", "pima", "ionosphere", "sonar"):
        trace = fit(name, sampler="hmc", refine=None).sampling_trace_
        hmc[name] = int(trace.stats["n_steps"].sum() + trace.warmup_stats["n_steps"].sum())
    for name in ("pima", "ionosphere"):
        note = fit(name).sampling_trace_.note
        counts = re.search(r"(\d+) evaluations with and (\d+) without gradient", note)
        if counts is None:
            raise RuntimeError(f"the default fit of {name} did not use the surrogate: {note}")
        gradients[name], surrogate[name] = int(counts[1]), int(counts[1]) + int(counts[2])
    return {
        "hmc_evaluations": Figure(
            hmc, count_range(list(hmc.values())), "evaluations of log evidence and gradient in a fit by HMC, 4 chains"
        ),
        "surrogate_evaluations": Figure(
            surrogate, count_range(list(surrogate.values())), "the same by the surrogate, with and without gradient"
        ),
        "surrogate_gradients": Figure(
            gradients, count_range(list(gradients.values())), "evaluations with gradient in a fit by the surrogate"
        ),
    }


def measure_compilation() -> dict[str, Figure]:
    """Processor seconds that the first default fit and prediction spend on compilation: empty against filled cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        runs = [
            float(subprocess.run(
                [sys.executable, "-c", FIRST_FIT], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout)
            for _ in range(2)
        ]  # fmt: skip
    spent = runs[0] - runs[1]
    what = "compilation in the first default fit and prediction (Pima, 200 rows), processor time"
    return {"compile_first_fit": Figure(spent, duration(spent), what)}


def prediction_times(n: int) -> tuple[float, float]:
    """Processor time of 100,000 rows with the first call, and of one row after it, at n training rows, one worker."""
    X, y, X_new = table(n, 100_000)
    gp = GPClassifier(draws=60, tune=30, chains=2, random_state=1, n_jobs=1, progressbar=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # predictions take as long under the draws of short chains
        gp.fit(X, y)
    first, _ = seconds(lambda: gp.predict_proba(X_new[:1]))
    one = float(np.median([seconds(lambda: gp.predict_proba(X_new[:1]))[0] for _ in range(CALLS)]))
    many, _ = seconds(lambda: gp.predict_proba(X_new))
    return first + many, one


def measure_predictions() -> dict[str, Figure]:
    """Processor time of predictions at 200 and 1,000 training rows."""
    found = {}
    for n in (200, 1000):
        many, one = prediction_times(n)
        rows = f"at {n:,} training rows, 6 inputs"
        found[f"predict_100k_rows_{n}"] = Figure(
            many, duration(many), f"prediction of 100,000 rows with the first call, {rows}"
        )
        found[f"predict_one_row_{n}"] = Figure(one, duration(one, 1), f"prediction of one row after the first, {rows}")
    return found


def laplace_time(n: int) -> tuple[float, str]:
    """Processor time of a warm evaluation by Laplace's approximation, and the name of the table."""
    X, y, data = problem(n)
    model, theta = Model(X, y, kernel=KERNEL), theta_of(X.shape[1])
    nearby = theta * np.exp(0.1 * np.resize([1.0, -1.0], theta.size))  # one leapfrog step away
    start = model.posterior(nearby)[1].posterior.start
    calls = {"warm": lambda: model.log_evidence(theta, start)}
    return in_turns(calls, seconds=3.0, clock=time.process_time)["warm"], data


def cholesky_time(n: int) -> float:
    """Processor time of an evaluation of exact regression."""
    model, theta = regression.problem(n, 0.1)
    return in_turns({"exact": lambda: model.log_evidence(theta)}, seconds=3.0, clock=time.process_time)["exact"]


def measure_evaluation_times() -> dict[str, Figure]:
    """Processor time of one evaluation of log evidence and gradient, by rows."""
    found = {}
    for n in SIZES["laplace"]:
        best, data = laplace_time(n)
        found[f"laplace_warm_{n}"] = Figure(best, duration(best), f"classification by Laplace, warm, {data}, n = {n}")
    for n in SIZES["cholesky"]:
        best = cholesky_time(n)
        found[f"cholesky_{n}"] = Figure(best, duration(best), f"regression by a Cholesky factorisation, n = {n}")
    return found


def measure_prediction_draws() -> dict[str, Figure]:
    """Differences between `predict_draws="auto"` and the 500 draws that it chooses from, at new rows."""
    errors: dict[str, dict[str, Array]] = {"probability": {}, "interval": {}}
    for name in reference_tables():
        gp, X = fit(name), reference_tables()[name][2]
        auto = gp.predict_proba(X), gp.predict_proba_interval(X)
        gp.set_params(predict_draws=500)
        full = gp.predict_proba(X), gp.predict_proba_interval(X)
        gp.set_params(predict_draws="auto")
        errors["probability"][name], errors["interval"][name] = auto[0] - full[0], auto[1] - full[1]
    found = {}
    for kind, what in (("probability", "class probabilities"), ("interval", "ends of 90 % intervals")):
        rms = {name: float(np.sqrt(np.mean(e**2))) for name, e in errors[kind].items()}
        largest = {name: float(np.abs(e).max()) for name, e in errors[kind].items()}
        found[f"auto_{kind}_rms"] = Figure(rms, bound(max(rms.values())), f"root mean square difference of {what}")
        found[f"auto_{kind}_max"] = Figure(largest, bound(max(largest.values())), f"largest difference of {what}")
    return found | measure_regression_draws()


def measure_regression_draws() -> dict[str, Figure]:
    """The same differences of means and ends of intervals in regression, over the predictive standard deviation."""
    mean, ends = {}, {}
    for name, step in (("motorcycle", 2), ("yacht", 3)):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
        gp, X = GPRegressor(random_state=1, n_jobs=1, progressbar=False).fit(X[::step], y[::step]), X[1::step]
        auto = gp.predict(X), gp.predict_interval(X)
        gp.set_params(predict_draws=500)
        full, sd = gp.predict(X, return_std=True)
        mean[name] = float(np.max(np.abs(auto[0] - full) / sd))
        ends[name] = float(np.max(np.abs(auto[1] - gp.predict_interval(X)) / sd[:, None]))
    what = "in regression, in predictive standard deviations"
    return {
        "auto_mean_max": Figure(mean, bound(max(mean.values())), f"largest difference of means {what}"),
        "auto_mean_interval_max": Figure(
            ends, bound(max(ends.values())), f"largest difference of ends of 90 % intervals {what}"
        ),
    }


GROUPS: dict[str, Callable[[], dict[str, Figure]]] = {
    "evaluations": measure_evaluations,
    "compilation": measure_compilation,
    "predictions": measure_predictions,
    "evaluation_times": measure_evaluation_times,
    "prediction_draws": measure_prediction_draws,
}


# -- file and pages ---------------------------------------------------------------------------------------------------


def load() -> dict[str, Any]:
    """Content of the file: `runs`, and `figures` by key."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return {"runs": {}, "figures": {}, **found}


def texts() -> dict[str, str]:
    """Text of each figure by key."""
    return {key: figure["text"] for key, figure in load()["figures"].items()}


def pages() -> list[Path]:
    """Markdown pages of the repository."""
    found = (path for folder in ("hmcgp", "scripts") for path in sorted((ROOT / folder).rglob("*.md")))
    return [ROOT / "README.md", *(path for path in found if "build" not in path.relative_to(ROOT).parts)]


def quoting(text: str, quoted: dict[str, str]) -> str:
    """Page with the texts of figures between its markers; figures that were not measured stay as they are."""
    return MARKER.sub(lambda match: f"{match[1]}{quoted.get(match[2], match[3])}{match[4]}", text)


def write_pages() -> list[Path]:
    """Rewrite the figures in all pages, and return the pages that changed."""
    changed, quoted = [], texts()
    for path in pages():
        before = path.read_text(encoding="utf-8")
        after = quoting(before, quoted)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


def run_details() -> dict[str, Any]:
    """Machine, date, load and versions of a run."""
    processor = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = re.findall(r"model name\s*: (.*)", information.read_text(encoding="utf-8"))
        processor = names[0] if names else processor
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "processor": processor,
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }


def measure(groups: list[str]) -> None:
    """Measure some groups, and write the file after each."""
    for group in groups:
        details = run_details()
        if details["load_average"] > BUSY:
            print(f"load average {details['load_average']}: this machine is busy, measure again when it is not.")
        with threadpool_limits(1):
            found = GROUPS[group]()
        content = load()
        content["runs"][group] = details
        kept = {key: figure for key, figure in content["figures"].items() if figure["group"] != group}
        content["figures"] = kept | {key: {"group": group, **figure._asdict()} for key, figure in found.items()}
        FILE.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        for key, figure in found.items():
            print(f"{key}: {figure.text} ({figure.what}; {figure.value})", flush=True)


def main() -> None:
    """Measure, write the file, and rewrite the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), help="groups to measure; default: all")
    parser.add_argument("--write-pages", action="store_true", help="measure nothing, rewrite the pages from the file")
    options = parser.parse_args()
    if not options.write_pages:
        measure(options.only or list(GROUPS))
    for path in write_pages():
        print(f"rewrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
