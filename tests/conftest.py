import os

import matplotlib as mpl
import pytest

mpl.use("Agg")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture
def clean_pyplot():
    """Close all figures after a test, which must have left the global settings alone."""
    import matplotlib.pyplot as plt

    before = dict(mpl.rcParams)
    yield
    plt.close("all")
    assert dict(mpl.rcParams) == before
