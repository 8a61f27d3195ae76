"""Warm starts: solutions of any shape are interpolated, and the oldest forgotten."""

import numpy as np
import pytest

from hmcgp.model.warm_start import carry_on, start_at


@pytest.mark.parametrize("shape", [(6,), (6, 2)])
def test_starts_have_the_shape_of_solutions(shape):
    """Regression with several columns of targets has solutions of shape (n, k)."""
    carry, rng = None, np.random.default_rng(0)
    assert start_at(np.zeros(3), carry) is None
    for k in range(1, 6):
        u = rng.normal(size=3)
        solution = np.full(shape, u.sum())
        carry = carry_on(carry, u, solution, 4)
        assert len(carry[1]) == len(carry[2]) == min(k, 4)
        start = start_at(u, carry)
        assert start.shape == shape
        np.testing.assert_allclose(start, solution, atol=1e-3)
