"""A fit that cannot fit into the memory is refused before it starts, with what would do instead."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from hmcgp import GPClassifier, GPRegressor, find_map, sample
from hmcgp.errors import InvalidInput
from hmcgp.model import Model
from hmcgp.optimize import find_modes
from hmcgp.runtime import memory
from tests.helpers.densities import correlated_gaussian

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20_000, 1))
Y = X[:, 0] + RNG.normal(size=20_000)
QUICK: dict[str, Any] = {"draws": 5, "tune": 5, "random_state": 0, "progressbar": False}


@pytest.fixture
def free(monkeypatch):
    """Say how much memory is free; and let nothing be evaluated."""

    def set_to(nbytes):
        monkeypatch.setattr(memory, "available_memory", lambda: nbytes)

    return set_to


@pytest.fixture
def no_evaluation(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("evaluated")

    monkeypatch.setattr(Model, "evaluate", refuse)


@pytest.mark.parametrize("sampler", ["hmc", "nuts", "map", "jumps"])
@pytest.mark.parametrize(("estimator", "y"), [(GPRegressor, Y), (GPClassifier, Y > 0.0)])
def test_too_many_rows(sampler, estimator, y, free, no_evaluation):
    free(4_000_000_000)
    message = (
        r"at least 6.4 GB of memory \(2 matrices of 20,000 x 20,000 numbers, 6.4 GB\), and 4 GB are free: take "
        r"inducing inputs, or a random sample of at most 15,\d+ rows \(sampler='map' needs no less memory\)"
    )
    with pytest.raises(InvalidInput, match=message):
        estimator(sampler=sampler, n_jobs=1, inducing=None).fit(X, y)


def test_fewer_workers_that_would_do(free, no_evaluation):
    model = Model(X[:100], np.sign(Y[:100]))
    assert model.work_space.nbytes == 160_000
    free(500_000)
    message = r"at least 64\d kB of memory \(2 matrices.*, 160 kB for each of 4 workers\), and 500 kB are free: n_jobs="
    with pytest.raises(InvalidInput, match=message):
        sample(model, n_jobs=4, **QUICK)
    with pytest.raises(
        InvalidInput, match=r"n_jobs=3 needs 480 kB; or take inducing inputs, or a random sample of at most \d+ rows"
    ):
        find_map(model, n_jobs=4)
    with pytest.raises(InvalidInput, match="n_jobs=3"):
        find_modes(model, n_jobs=4)


def test_what_may_fit_is_not_refused(free):
    model = Model(X[:100], np.sign(Y[:100]))
    for nbytes in (None, 10 * 160_000, 160_000):  # the last: counted low, and not clearly too little
        free(nbytes)
        assert sample(model, n_jobs=1, **(QUICK | {"chains": 1})).n_draws == 5


@pytest.mark.parametrize("counts", [{"draws": 10**9}, {"tune": 10**9}, {"chains": 10**9}, {"draws": 10**30}])
def test_too_many_draws(counts, free):
    free(2 * 10**10)
    message = r"draws, warm-up and all chains together, take .* and 20 GB of memory are free: keep fewer than [\d,]+\."
    with pytest.raises(InvalidInput, match=message):
        sample(correlated_gaussian(), "hmc", **(QUICK | counts))


def test_workers_of_a_cluster_have_memory_of_their_own(free, monkeypatch):
    free(200_000)
    monkeypatch.setattr(memory, "on_cluster", lambda: True)
    assert sample(Model(X[:100], np.sign(Y[:100])), n_jobs=4, **QUICK).n_draws == 5


def tree(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


MEMINFO = "MemTotal:  9000 kB\nMemAvailable:  4000 kB\nSwapFree:  1000 kB\n"
STAT = "anon 5\ninactive_file 100\ntotal_inactive_file 100\n"


def test_memory_of_the_machine(tmp_path):
    tree(tmp_path, {"proc/meminfo": MEMINFO})
    assert memory.available_memory(tmp_path) == 5000 * 1024
    (tmp_path / "proc/meminfo").write_text("MemTotal:  9000 kB\n", encoding="utf-8")
    assert memory.available_memory(tmp_path) is None
    assert (memory.available_memory() or 0) > 10**6


def test_the_least_limit_above_the_process_counts(tmp_path):
    tree(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "1:cpu:/\n0::/user/job\n"})
    for place, limit, used in (("", "max", 10), ("user/", "2000000", 300_000), ("user/job/", "max", 20)):
        folder = f"sys/fs/cgroup/{place}memory."
        tree(tmp_path, {f"{folder}max": f"{limit}\n", f"{folder}current": f"{used}\n", f"{folder}stat": STAT})
    assert memory.available_memory(tmp_path) == 2_000_000 - 300_000 + 100


def test_the_older_control_groups(tmp_path):
    tree(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "4:cpuset,memory:/docker/abc\n"})
    folder = "sys/fs/cgroup/memory/memory."  # in a container, that of the group is mounted as the root
    tree(tmp_path, {f"{folder}limit_in_bytes": "1000000", f"{folder}usage_in_bytes": "900", f"{folder}stat": STAT})
    assert memory.available_memory(tmp_path) == 1_000_000 - 900 + 100


MEASURE = """
import numpy as np
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.kernels import SquaredExponential
from hmcgp.model import Model
rng = np.random.default_rng(0)
def peak():
    return 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
def model(n):
    X = rng.normal(size=(n, 2))
    f = X[:, 0] + 0.3 * rng.normal(size=n)
    y = {targets}
    return Model(X, y, {options})
with single_blas_thread():
    small = model(30)
    u = small.unconstrain(np.full(small.n_dim, 0.4))
    small.evaluate(u)
    large = model({n})
    open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far, which may be that of the compiler
    before = peak()
    assert large.evaluate(u).failure == 0
    print(peak() - before)
    print(large.work_space.nbytes)
"""
CASES = {
    "exact": ("f", "likelihood='gaussian'", 2500),
    "iterative": ("f", "likelihood='gaussian', evidence='iterative'", 2500),
    "laplace": ("np.sign(f)", "evidence='laplace'", 2500),
    "ep": ("np.sign(f)", "likelihood='probit', evidence='ep'", 2000),
    "tap": ("np.sign(f)", "likelihood='probit', evidence='tap'", 1500),
    "naive": ("np.sign(f)", "likelihood='label_noise', evidence='naive'", 1500),
    "lower": ("np.sign(f)", "evidence='lower'", 2000),
    "softmax": ("np.digitize(f, [-0.5, 0.5]).astype(float)", "likelihood='softmax'", 1200),
    "a kernel each": (
        "np.digitize(f, [-0.5, 0.5]).astype(float)", "likelihood='softmax', kernel=[SquaredExponential()] * 3", 1200
    ),
    "multinomial": ("np.digitize(f, [-0.5, 0.5]).astype(float)", "likelihood='multinomial_probit'", 900),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_said_to_be_needed_is_needed(name):
    """No more than is taken, or a run that fits would be refused; and at least a third of it, or the check is idle."""
    targets, options, n = CASES[name]
    code = MEASURE.format(targets=targets, options=options, n=n)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    taken, said = map(int, done.stdout.split())
    assert taken / 3.0 < said < memory.MARGIN * taken
