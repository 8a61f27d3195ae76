"""Several outputs: the covariance of their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp.errors import InvalidInput
from hmcgp.kernels import Coregional, SquaredExponential, check_gradient
from hmcgp.model import Model

RNG = np.random.default_rng(3)
NUMBERS = np.repeat([0.0, 1.0, 2.0], 5)[:, None]
X = np.column_stack([RNG.normal(size=15), NUMBERS])


def test_matrix_is_b():
    kernel = Coregional(3, [1.0, 2.0, 0.5], [0.3, -1.0, 0.7])
    L = np.array([[1.0, 0.0, 0.0], [0.3, 2.0, 0.0], [-1.0, 0.7, 0.5]])
    np.testing.assert_allclose(kernel.covariance(), L @ L.T, rtol=1e-14)
    np.testing.assert_allclose(kernel(np.arange(3.0)[:, None]), L @ L.T, rtol=1e-14)
    K = (SquaredExponential(1.0, 0.8).on(0) * kernel.on(1))(X)
    C = SquaredExponential(1.0, 0.8)(X[:, :1])
    expected = np.repeat(np.repeat(L @ L.T, 5, axis=0), 5, axis=1) * C
    np.testing.assert_allclose(K, expected, rtol=1e-13)


@pytest.mark.parametrize("kernel", [Coregional(3), Coregional(3, 0.7, 0.2), Coregional(3, [1.0, 2.0, 0.5])], ids=str)
def test_gradient(kernel):
    check_gradient(SquaredExponential(1.0).on(0) * kernel.on(1), X)


def test_names_and_refusals():
    model = Model(
        X, RNG.normal(size=15), kernel=SquaredExponential(1.0).on(0) * Coregional(3).on(1), likelihood="gaussian"
    )
    assert model.names[1:4] == ["scale[0]", "scale[1]", "scale[2]"]
    assert model.names[4:7] == ["mixing[1,0]", "mixing[2,0]", "mixing[2,1]"]
    named = Coregional(3, outputs=["a", "b", "c"]).parameters(["x0"])
    assert [p.labels for p in named] == [("a", "b", "c"), ("b,a", "c,a", "c,b")]
    assert hash(Coregional(3, outputs=["a", "b", "c"])) == hash(Coregional(3, outputs=("a", "b", "c")))
    for names in (["a", "b"], ["a", "b", "a"]):
        with pytest.raises(InvalidInput, match="needs 3 different names"):
            Coregional(3, outputs=names)
    for bad in (1, 2.0, True):
        with pytest.raises(InvalidInput, match="n_outputs"):
            Coregional(bad)
    with pytest.raises(InvalidInput, match="numbered 0 to 1"):
        Coregional(2, 1.0, 0.5)(NUMBERS)
    with pytest.raises(InvalidInput, match="one column"):
        Coregional(3, 1.0, 0.5)(X)
