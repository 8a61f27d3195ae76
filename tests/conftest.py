import os

import matplotlib as mpl
import pytest

pytest.register_assert_rewrite("tests.helpers")

mpl.use("Agg")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def session_watch():
    """Watch of everything that this process writes, from the first test on."""
    from tests.helpers.outside_writes import allowed_folders, watching

    with watching(allowed_folders()) as watch:
        yield watch


@pytest.fixture(autouse=True)
def no_writes_outside(session_watch):
    """Fail a test that writes outside the checkout, the temporary folders and the caches of libraries."""
    yield
    outside = session_watch.taken()
    assert not outside, f"written outside the checkout and the temporary folders: {outside}"


@pytest.fixture
def clean_pyplot():
    """Close all figures after a test, which must have left the global settings alone."""
    import matplotlib.pyplot as plt

    before = dict(mpl.rcParams)
    yield
    plt.close("all")
    assert dict(mpl.rcParams) == before


@pytest.fixture(scope="session")
def thyroid():
    """A third of new thyroid, three classes: inputs and labels."""
    import numpy as np

    from hmcgp import datasets

    X, y = datasets.load_thyroid(return_X_y=True)
    return X[::3].reset_index(drop=True), np.asarray(y)[::3]


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(items):
    """Leave to CI the checks of scikit-learn that repeat the longest one, with other memory or by HMC."""
    for item in items:
        if "check_classifiers_train" in item.name and ("readonly_memmap=True" in item.name or "HMC(" in item.name):
            item.add_marker(pytest.mark.slow)
