"""The peers of the benchmark sample the density that we sample."""

import numpy as np
import pytest

pytest.importorskip("jax")
from scripts.benchmarks import contenders


def test_jax_density_and_gradient_are_ours():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 2))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=25) > 0.0, 1.0, -1.0)
    model = contenders.paper_model(X, y)
    errors = contenders.check_blackjax(X, y, np.stack([model.initial(r) for r in rng.spawn(4)]))
    assert max(errors.values()) < contenders.TOLERANCE, errors
