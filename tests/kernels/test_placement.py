"""Results do not depend on where arrays lie in memory: neither on their alignment nor on their distances.

A compiled loop that writes has a vectorised and a plain version, and looks at the distances between its arrays to
choose.  They must round alike, or draws would depend on the heap, and so on the number of threads.
"""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

import hmcgp
from hmcgp import Model, sample
from hmcgp.evidence import MultinomialEP, SoftmaxLaplace
from hmcgp.likelihoods import MultinomialProbit, Softmax
from hmcgp.numerics.sums import dot, total
from tests.helpers.checks import random_symmetric
from tests.helpers.evidence_contract import PAIRS, soft
from tests.helpers.kernels import KERNELS

SIZES = [5, 10, 17, 40]
TIMES = 50
SEVERAL = [(SoftmaxLaplace(), Softmax()), (MultinomialEP(), MultinomialProbit())]


class Scattered:
    """Copies of arrays at every alignment of 8 bytes modulo 64, some close together, in a heap that keeps changing."""

    def __init__(self, seed):
        self.rng, self.junk = np.random.default_rng(seed), []

    def __call__(self, *arrays):
        self.junk.append([np.empty(int(size)) for size in self.rng.integers(1, 400, size=5)])
        if len(self.junk) > 8:
            del self.junk[int(self.rng.integers(8))]
        pool, word, copies = np.empty(sum(a.size for a in arrays) + 64 * len(arrays)), 0, []
        for array in arrays:
            word += int(self.rng.integers(0, 40))
            copies.append(pool[word : word + array.size].reshape(array.shape))
            copies[-1][...] = array
            word += array.size
        return copies


def bits(*results):
    return b"".join(np.asarray(r, dtype=float).tobytes() for r in results)


def test_nothing_is_compiled_with_leave_to_reorder_sums():
    names = [m.name for m in pkgutil.walk_packages(hmcgp.__path__, "hmcgp.") if not m.name.endswith("__main__")]
    compiled = {
        f"{name}.{key}": value
        for name in names
        for key, value in vars(importlib.import_module(name)).items()
        if isinstance(value, CPUDispatcher)
    }
    assert len(compiled) > 100
    assert [name for name, function in compiled.items() if function.targetoptions.get("fastmath")] == []


@pytest.mark.parametrize("kernel", KERNELS, ids=[f"{i}-{type(k).__name__}" for i, k in enumerate(KERNELS)])
def test_kernels_do_not_depend_on_placement(kernel):
    scattered = Scattered(0)
    for n in SIZES:
        rng = np.random.default_rng(n)
        X, X2, G = rng.normal(size=(n, 3)), rng.normal(size=(4, 3)), random_symmetric(rng, n)
        found = set()
        for _ in range(TIMES):
            x, x2, g = scattered(X, X2, G)
            K, pullback = kernel.vjp(x)
            more = [kernel.input_vjp(x, g)] if kernel.has_input_vjp else []
            found.add(bits(K, pullback(g), kernel(x), kernel(x, x2), kernel.diag(x), *more))
        assert len(found) == 1, f"{len(found)} results at n = {n}"


@pytest.mark.parametrize(("provider", "likelihood"), [*PAIRS, *SEVERAL], ids=lambda value: type(value).__name__)
def test_providers_do_not_depend_on_placement(provider, likelihood):
    scattered = Scattered(1)
    for n in SIZES:
        rng = np.random.default_rng(n)
        X, labels = rng.normal(size=(n, 2)), rng.permutation(n) % 3
        y = labels.astype(float) if isinstance(likelihood, Softmax | MultinomialProbit) else np.sign(labels - 0.5)
        K = soft(1.3 * np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=2)), likelihood)
        found = set()
        for _ in range(TIMES):
            evidence = provider(*scattered(K, y), likelihood)
            found.add(bits(evidence.log_z, evidence.dK, evidence.dlik, evidence.posterior.start))
        assert len(found) == 1, f"{len(found)} results at n = {n}"


@pytest.mark.parametrize("n", range(20))
def test_sums_in_a_fixed_order_leave_nothing_out(n):
    x, y = np.arange(1.0, n + 1.0), 2.0 ** np.arange(n)  # all sums are exact
    assert total(x) == n * (n + 1) / 2
    assert dot(x, y) == float(sum((i + 1) * 2**i for i in range(n)))


def test_small_models_draw_alike_on_one_thread_and_on_two():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(10, 2))
    model = Model(X, np.where(X[:, 0] + 0.5 * rng.normal(size=10) > 0.0, 1.0, -1.0))
    found = set()
    for run in range(12):
        trace = sample(model, draws=40, tune=40, chains=2, random_state=3, n_jobs=1 + run % 2, progressbar=False)
        found.add(trace.draws.tobytes())
    assert len(found) == 1, f"{len(found)} different traces in 12 runs"
