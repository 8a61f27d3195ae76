"""Which sampler a fit takes that names none, and that it says which."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hmcgp import GPClassifier, Model
from hmcgp.estimators import default_sampler as rule
from hmcgp.estimators.default_sampler import LEAST_ROWS, MANY_ROWS, MOST_OF_MANY, MOST_PARAMETERS, default_sampler
from hmcgp.kernels import SquaredExponential

QUICK = {"n_jobs": 1, "progressbar": False, "random_state": 1, "refine": None}


def table(n, inputs):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, inputs))
    return X, np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0.0, 1.0, -1.0)


def model(n=LEAST_ROWS, inputs=2, **settings):
    return Model(*table(n, inputs), kernel=SquaredExponential(ard=True), **settings)


def chosen(a_model, **settings):
    given = {"draws": 1000, "tune": 500, "chains": 4, "checkpoint": None, "kernel": None} | settings
    return default_sampler(SimpleNamespace(**given), a_model)


def test_surrogate_where_it_pays():
    assert chosen(model()) == "surrogate"
    assert chosen(model(n=LEAST_ROWS - 1)) == "hmc"
    for which, kernel in (("default", None), ("other", SquaredExponential(ard=True))):
        most = MOST_PARAMETERS[which]
        assert chosen(model(inputs=most - 1), kernel=kernel) == "surrogate"  # and the variance
        assert chosen(model(inputs=most), kernel=kernel) == "hmc"
    assert chosen(Model(*table(LEAST_ROWS, 2), kernel=SquaredExponential(1.0, 1.0))) == "hmc"  # nothing to draw


def test_more_hyperparameters_where_hmc_takes_an_hour():
    kernel, inducing = SquaredExponential(ard=True), table(10, MOST_OF_MANY - 1)[0]
    assert chosen(model(n=MANY_ROWS, inputs=MOST_OF_MANY - 1, inducing=inducing), kernel=kernel) == "surrogate"
    assert chosen(model(n=MANY_ROWS - 1, inputs=MOST_OF_MANY - 1, inducing=inducing), kernel=kernel) == "hmc"
    assert chosen(model(n=MANY_ROWS, inputs=MOST_OF_MANY), kernel=kernel) == "hmc"
    assert chosen(model(inducing=table(10, 2)[0]), kernel=kernel) == "surrogate"


@pytest.mark.parametrize(
    ("settings", "sampler"),
    [
        ({"draws": 300, "tune": 200}, "surrogate"),
        ({"draws": 299, "tune": 200}, "hmc"),
        ({"tune": 0}, "hmc"),
        ({"chains": 1}, "hmc"),
        ({"checkpoint": "run.nc"}, "hmc"),
    ],
)
def test_hmc_for_short_runs_and_checkpoints(settings, sampler):
    assert chosen(model(), **settings) == sampler


def test_hmc_for_what_was_not_measured():
    assert chosen(model(likelihood="probit")) == "surrogate"
    assert chosen(model(evidence="ep")) == "hmc"
    assert chosen(model(likelihood="gaussian")) == "hmc"


@pytest.fixture
def small(monkeypatch):
    """Table and settings of fits for which the surrogate is chosen, though it does not pay."""
    monkeypatch.setattr(rule, "LEAST_ROWS", 40)
    monkeypatch.setattr(rule, "LEAST_DRAWS", 500)
    X, y = table(40, 1)
    return X, y, QUICK | {"kernel": SquaredExponential(), "draws": 200, "tune": 50, "chains": 2}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # so short a run
def test_fit_says_which_it_took(small):
    X, y, settings = small
    gp = GPClassifier(**settings).fit(X, y)
    assert gp.sampling_trace_.sampler == gp.summary().attrs["sampler"] == "surrogate"
    assert "draws effective" in gp.summary().attrs["note"]
    named = GPClassifier(sampler="surrogate", **settings).fit(X, y)
    np.testing.assert_array_equal(gp.sampling_trace_.draws, named.sampling_trace_.draws)
    attrs = GPClassifier(sampler="hmc", **settings).fit(X, y).summary().attrs
    assert attrs == {"sampler": "hmc", "note": "", "draws_note": "2 chains of 200 draws were sampled."}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # so short a run
def test_checkpoints_take_hmc(small, tmp_path):
    X, y, settings = small
    gp = GPClassifier(checkpoint=tmp_path / "run.nc", **settings).fit(X, y)
    assert gp.summary().attrs["sampler"] == "hmc"
