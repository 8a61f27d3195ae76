"""A checkpoint knows the data of its run: other values, another order of rows, or other names are another run."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from hmcgp import GPClassifier, GPRegressor, Model
from hmcgp.errors import InvalidInput
from hmcgp.runtime.fingerprint import digest
from hmcgp.samplers import sample
from tests.helpers.checkpoints import assert_same, gp_model


def test_digests_are_of_values_and_shape():
    x = np.array([[1.0, 0.0], [np.nan, 3.0]])
    odd_nan = np.array([0x7FF8000000000123], dtype=np.uint64).view(np.float64)[0]
    for same in ([[1, -0.0], [np.nan, 3]], np.asfortranarray(x), x.astype(np.float32), [[1.0, 0.0], [odd_nan, 3.0]]):
        assert digest(same) == digest(x)
    for other in (x.T, x.ravel(), x[::-1], np.nextafter(x, 2.0)):
        assert digest(other) != digest(x)
    assert np.isnan(x[1, 0])


def table(n=24):
    """A small table of names and numbers with two kinds of targets."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "c": rng.choice(["red", "blue"], n)})
    labels = np.where(frame["a"] + 0.5 * rng.normal(size=n) > 0.0, "yes", "no")
    return frame, labels, frame["a"].to_numpy() * 3.0 + rng.normal(size=n)


def fit(estimator, path, *args, **options):
    settings = {"draws": 10, "tune": 60, "chains": 2, "random_state": 1, "progressbar": False, "checkpoint": path}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of a run so short
        return estimator(**settings).fit(*args, **options)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """A fitted classifier, and the content of its checkpoint."""
    X, y, _ = table()
    path = tmp_path_factory.mktemp("first") / "run.nc"
    return fit(GPClassifier, path, X, y), path.read_bytes()


REVERSED = slice(None, None, -1)
SWAPPED = {"yes": "no", "no": "yes"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X[REVERSED], y[REVERSED]), r"X \(values or order of rows\), y \(values or order of rows\)\."),
        (lambda X, y: (X, np.array([SWAPPED[label] for label in y])), r"y \(values or order of rows\)\."),
        (lambda X, y: (X, np.char.add(y, "!")), r"list of classes is \['no!', 'yes!'\] here and \['no', 'yes'\] there"),
        (
            lambda X, y: (X.rename(columns={"b": "d"}), y),
            r"list of columns is \['a', 'd', 'c'\] here and \['a', 'b', 'c'\] there",
        ),
        (lambda X, y: (X[["b", "a", "c"]], y), r"X .*, list of columns is \['b', 'a', 'c'\] here"),
        (lambda X, y: (X.replace({"red": "rot"}), y), r"list of categories is .*'rot'.* here and .*'red'.* there"),
        (lambda X, y: (X.assign(b=2.0 * X["b"]), y), r"X \(values or order of rows\)\."),
        (lambda X, y: (X, y, np.arange(1.0, 25.0)), r"weights \(values or order of rows\)\."),
    ],
)
def test_a_checkpoint_of_other_data_is_refused(tmp_path, first_run, change, message):
    """Most of these have the very same log density, and would go on from the file without a word."""
    X, y, _ = table()
    path = tmp_path / "run.nc"
    path.write_bytes(first_run[1])
    with pytest.raises(InvalidInput, match=f"is of another run: the data are other: {message}"):
        fit(GPClassifier, path, *change(X, y))
    assert path.read_bytes() == first_run[1]


def test_a_checkpoint_of_the_same_data_is_read(tmp_path, first_run):
    X, y, _ = table()
    path = tmp_path / "run.nc"
    path.write_bytes(first_run[1])
    again = fit(GPClassifier, path, X.assign(c=X["c"].astype("category")), list(y), np.ones(len(y)))
    assert_same(first_run[0].trace_, again.trace_)
    assert path.read_bytes() == first_run[1]


def test_a_checkpoint_of_other_numbers_is_refused(tmp_path):
    X, _, y = table()
    path, noise = tmp_path / "run.nc", np.linspace(0.1, 0.2, len(X))
    first = fit(GPRegressor, path, X, y, noise_variance=noise)
    for given, what in (((2.0 * y, 4.0 * noise), "y .*, noise_variance"), ((y, noise[::-1]), "noise_variance")):
        with pytest.raises(InvalidInput, match=rf"the data are other: {what} \(values or order of rows\)"):
            fit(GPRegressor, path, X, given[0], noise_variance=given[1])
    again = fit(GPRegressor, path, X, pd.Series(y), noise_variance=list(noise))
    assert_same(first.trace_, again.trace_)
    outputs = pd.DataFrame({"first": y, "second": y[::-1]})
    path = tmp_path / "outputs.nc"
    fit(GPRegressor, path, X, outputs)
    with pytest.raises(InvalidInput, match=r"outputs is \['first', 'other'\] here and \['first', 'second'\] there"):
        fit(GPRegressor, path, X, outputs.rename(columns={"second": "other"}))


def test_an_array_is_the_table_with_its_default_names(tmp_path):
    X, y, _ = table()
    X = X[["a", "b"]].to_numpy()
    path = tmp_path / "run.nc"
    first = fit(GPClassifier, path, X, y)
    again = fit(GPClassifier, path, pd.DataFrame(X, columns=["x0", "x1"]), list(y))
    assert_same(first.trace_, again.trace_)
    with pytest.raises(InvalidInput, match=r"the data are other: list of columns is \['a', 'b'\] here"):
        fit(GPClassifier, path, pd.DataFrame(X, columns=["a", "b"]), y)


def test_permuted_rows_of_a_model_are_refused(tmp_path):
    model, path = gp_model(), tmp_path / "run.nc"
    options = {"draws": 5, "tune": 60, "chains": 1, "random_state": 1, "progressbar": False, "checkpoint": path}
    first = sample(model, "hmc", **options)
    with pytest.raises(InvalidInput, match=r"the data are other: X .*, y "):
        sample(Model(model.X[::-1], model.y[::-1]), "hmc", **options)
    with pytest.raises(InvalidInput, match="the data are other: y "):
        sample(Model(model.X, -model.y), "hmc", **options)
    with pytest.raises(InvalidInput, match=r"run: the log density is another \(kernel, priors, likelihood, evidence"):
        sample(Model(model.X, model.y, likelihood="probit"), "hmc", **options)
    assert_same(first, sample(Model(model.X.astype(object), model.y.astype(int)), "hmc", **options))


def test_jumps_look_at_the_path_before_they_look_for_modes(tmp_path, monkeypatch):
    X, y, _ = table()
    monkeypatch.setattr("hmcgp.estimators.base.find_modes", None)
    with pytest.raises(InvalidInput, match=r"'checkpoint' .* does not exist"):
        GPClassifier(sampler="jumps", checkpoint=tmp_path / "no" / "run.nc").fit(X, y)
