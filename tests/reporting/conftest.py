from __future__ import annotations

import pytest

from hmcgp import GPRegressor, kernels
from tests.helpers.saved import X, Y, fit, quick


@pytest.fixture(scope="module")
def fitted():
    return fit(quick(GPRegressor, kernel=kernels.SquaredExponential(ard=True)), X, Y)


@pytest.fixture
def path(fitted, tmp_path):
    fitted.save(tmp_path / "gp")
    return tmp_path / "gp"
