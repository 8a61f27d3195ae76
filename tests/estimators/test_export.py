"""arviz's container with what the model says of each row, and arviz's own leave-one-out on it."""

from __future__ import annotations

import warnings
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")

from hmcgp import GPClassifier, GPRegressor
from hmcgp.errors import InvalidInput
from hmcgp.kernels import SquaredExponential
from hmcgp.posterior.leave_one_out import log_predictive_per_draw
from hmcgp.runtime import arviz_compat
from tests.helpers.checks import classification_problem

pytestmark = [
    pytest.mark.usefixtures("clean_pyplot"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
    pytest.mark.filterwarnings("ignore::hmcgp.errors.ApproximationWarning"),
]

X, CODES, _ = classification_problem(40, 2)
LABELS = np.where(CODES > 0, "yes", "no")
NUMBERS = 10.0 + 5.0 * X[:, 0] + np.random.default_rng(1).normal(size=40)
SHORT: dict[str, Any] = {"draws": 120, "tune": 80, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 3}


@pytest.fixture(scope="module")
def weighted():
    gp = GPClassifier(SquaredExponential(), **SHORT, predict_draws=200).fit(X, LABELS)
    assert gp.trace_.log_weight is not None
    return gp


@pytest.fixture(scope="module")
def unweighted():
    return GPClassifier(SquaredExponential(), **SHORT, refine=None, predict_draws=200).fit(X, LABELS)


@pytest.fixture(scope="module")
def regressor():
    return GPRegressor(SquaredExponential(), **SHORT, predict_draws=200).fit(X, NUMBERS)


def groups_of(tree):
    return set(tree.children) if arviz_compat.major() >= 1 else set(tree.groups())


def arviz_loo(tree):
    """Pointwise densities by arviz itself; of 200 draws, a fifth is the tail for any r_eff up to 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about k, which has a stricter limit there for few draws
        found = arviz_compat.import_arviz().loo(tree, pointwise=True, reff=1.0)
    return (found.elpd_i if arviz_compat.major() >= 1 else found.loo_i).values


def test_the_log_evidence_is_a_statistic_and_the_rest_comes_on_request(unweighted):
    tree = unweighted.to_arviz()
    assert not {"posterior_predictive", "prior", "sampling_posterior"} & groups_of(tree)
    assert {"log_prior", "log_likelihood", "averaged_posterior"} <= groups_of(tree)
    assert "log_weight" not in tree["sample_stats"]
    log_z = tree["sample_stats"]["log_evidence"].values
    assert log_z.shape == (2, 120)
    theta = unweighted.trace_.draws[1, 7]
    assert log_z[1, 7] == pytest.approx(unweighted.log_marginal_likelihood(theta), rel=1e-9)


@pytest.mark.parametrize("fit", ["unweighted", "regressor"])
def test_arviz_leaves_rows_out_as_the_package_does(fit, request):
    gp = request.getfixturevalue(fit)
    tree = gp.to_arviz(log_likelihood=True)
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "obs_id")
    assert tree["posterior"]["variance"].shape == tree["log_likelihood"]["y"].shape[:2]
    own = gp.loo()
    # equal to rounding, but for rows in which a repeated draw stands at the foot of the tail: arviz drops its copies
    difference = np.abs(arviz_loo(tree) - own.pointwise)
    assert np.median(difference) < 1e-8
    assert difference.max() < 0.02
    # the densities before averaging are higher: the row was among the data
    assert np.mean(tree["log_likelihood"]["y"].values) > np.mean(own.pointwise)


def test_arviz_compares_either(unweighted, regressor):
    arviz = arviz_compat.import_arviz()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = arviz.compare({"tree": unweighted.to_arviz(log_likelihood=True), "loo": unweighted.loo().to_arviz()})
    assert set(table.index) == {"tree", "loo"}
    np.testing.assert_allclose(table["elpd_diff"].astype(float), 0.0, atol=0.01)
    own = regressor.loo()
    native = own.to_arviz()
    p = native.p if arviz_compat.major() >= 1 else native.p_loo
    assert p == own.p_loo
    assert 0.0 < own.p_loo < 3.0 + 1.0  # three hyperparameters
    assert f"{own.elpd:.2f}" in str(native)


def test_weights_are_statistics_and_resampling_takes_them_away(weighted):
    tree = weighted.to_arviz(resample=False)
    stored = tree["sample_stats"]["log_weight"]
    np.testing.assert_array_equal(stored, weighted.trace_.log_weight)
    assert stored.attrs["pareto_k"] == weighted.trace_.pareto_k
    assert stored.attrs["n_effective"] == pytest.approx(weighted.trace_.n_effective)
    equal = weighted.to_arviz()
    assert "log_weight" not in equal["sample_stats"]
    chosen = weighted.trace_.equal_positions()
    assert len(set(chosen)) < len(chosen)
    assert equal["posterior"]["variance"].shape == tree["posterior"]["variance"].shape
    np.testing.assert_array_equal(np.ravel(equal["posterior"]["variance"]), weighted.trace_.flat[chosen, 0])
    before = np.ravel(tree["sample_stats"]["log_evidence"])
    np.testing.assert_array_equal(np.ravel(equal["sample_stats"]["log_evidence"]), before[chosen])
    mean = np.average(weighted.trace_.flat, axis=0, weights=weighted.trace_.weight)
    np.testing.assert_allclose(float(equal["posterior"]["length_scale"].mean()), mean[1], rtol=0.02)


def test_log_likelihoods_of_weighted_draws_are_resampled_unless_refused(weighted):
    own = weighted.loo()
    got = arviz_loo(weighted.to_arviz(log_likelihood=True))
    # resampling 240 draws moves a row that depends on few of them most
    assert np.mean(np.abs(got - own.pointwise)) < 0.02
    np.testing.assert_allclose(got, own.pointwise, atol=0.2)
    assert abs(got.sum() - own.elpd) < 0.4
    kept = weighted.to_arviz(log_likelihood=True, resample=False)
    assert "log_weight" in kept["sample_stats"]
    expected = log_predictive_per_draw(weighted.model_, weighted.trace_.flat)
    np.testing.assert_allclose(kept["log_likelihood"]["y"].values.reshape(expected.shape), expected, rtol=1e-6)


def test_replicated_labels_follow_their_probabilities(unweighted):
    tree = unweighted.to_arviz(posterior_predictive=True)
    drawn = tree["posterior_predictive"]["y"].values.reshape(-1, len(LABELS))
    assert set(np.unique(drawn)) == {"no", "yes"}
    share, expected = np.mean(drawn == "yes", axis=0), unweighted.predict_proba(X)[:, 1]
    np.testing.assert_allclose(share, expected, atol=4.5 * 0.5 / np.sqrt(len(drawn)))
    codes = tree["posterior_predictive"]["y_code"].values.reshape(drawn.shape)
    np.testing.assert_array_equal(unweighted.classes_[codes], drawn)
    np.testing.assert_array_equal(unweighted.classes_[tree["observed_data"]["y_code"].values], LABELS)
    again = unweighted.to_arviz(posterior_predictive=True)["posterior_predictive"]["y"].values
    np.testing.assert_array_equal(again.reshape(drawn.shape), drawn)


def test_replicated_numbers_are_in_the_units_of_y_and_drawn_jointly(regressor):
    tree = regressor.to_arviz(posterior_predictive=True)
    drawn = tree["posterior_predictive"]["y"].values.reshape(-1, len(NUMBERS))
    mean, sd = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5.0 * sd.max() / np.sqrt(len(drawn)))
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.3)
    # the mean of a table varies more than if the errors of its rows were independent
    assert np.var(drawn.mean(axis=1)) > 1.3 * np.mean(sd**2) / len(NUMBERS)


@pytest.mark.filterwarnings("ignore")  # of arviz and matplotlib about each other
def test_arviz_draws_posterior_predictive_checks(regressor, weighted):
    arviz = arviz_compat.import_arviz()
    for gp, name in ((regressor, "y"), (weighted, "y_code")):
        tree = gp.to_arviz(posterior_predictive=True)
        if arviz_compat.major() >= 1:
            arviz.plot_ppc_dist(tree, var_names=[name], backend="matplotlib")
        else:
            arviz.plot_ppc(tree, var_names=[name], num_pp_samples=10, random_seed=0)


def test_the_prior_is_that_of_the_hyperparameters(regressor, tmp_path):
    tree = regressor.to_arviz(prior=400, log_likelihood=True, posterior_predictive=True)
    assert tree["prior"]["variance"].shape == (1, 400)
    assert set(tree["prior"].data_vars) == set(tree["posterior"].data_vars)
    assert np.std(np.log(tree["prior"]["length_scale"])) > np.std(np.log(tree["posterior"]["length_scale"]))
    tree.to_netcdf(tmp_path / "all.nc")
    with pytest.raises(InvalidInput, match="'prior' must be an integer >= 0"):
        regressor.to_arviz(prior=-1)
    with pytest.raises(InvalidInput, match="'resample' must be True or False"):
        regressor.to_arviz(resample="yes")


def test_several_outputs_with_some_missing():
    Y = np.column_stack([NUMBERS, -NUMBERS])[:12]
    Y[3, 1] = np.nan
    settings = SHORT | {"draws": 30, "tune": 20}
    gp = GPRegressor(SquaredExponential(), outputs="coregional", **settings).fit(X[:12], Y)
    tree = gp.to_arviz(log_likelihood=True, posterior_predictive=True)
    assert tree["log_likelihood"]["y"].shape == (2, 30, 12)
    drawn = tree["posterior_predictive"]["y"]
    assert drawn.dims == ("chain", "draw", "obs_id", "output")
    np.testing.assert_array_equal(np.isnan(drawn.values[0, 0]), np.isnan(Y))
    assert np.isfinite(tree["log_likelihood"]["y"].values).all()


def test_rows_with_weights_have_no_log_likelihood_for_arviz():
    gp = GPClassifier(SquaredExponential(), **SHORT | {"draws": 10, "tune": 20}).fit(X, LABELS, np.full(40, 2.0))
    with pytest.raises(InvalidInput, match=r"log_likelihood=True is for rows without weights.*gp\.loo\(\)"):
        gp.to_arviz(log_likelihood=True)


def test_arviz_summarises_the_draws_that_the_estimator_does(weighted, unweighted):
    """Without resampling, the mean length scale of the weighted fit is off by 0.8 standard errors."""
    for gp in (weighted, unweighted):
        own, posterior = gp.summary(None), gp.to_arviz()["posterior"]
        for name in ("variance", "length_scale"):
            x = posterior[name].values
            assert abs(x.mean() - own.loc[name, "mean"]) < 0.1 * own.loc[name, "mcse_mean"]
            assert x.std(ddof=1) == pytest.approx(own.loc[name, "sd"], rel=0.05)
            below = [(x <= own.loc[name, q]).mean() for q in ("q5", "median", "q95")]
            np.testing.assert_allclose(below, [0.05, 0.5, 0.95], atol=0.015)


def test_all_sampled_draws_are_exported_with_their_weights(weighted):
    tree, run, trace = weighted.to_arviz(), weighted.sampling_trace_, weighted.trace_
    assert run.n_draws > trace.n_draws
    np.testing.assert_array_equal(tree["sampling_posterior"]["variance"], run.draws[:, :, 0])
    log_weight = tree["sampling_sample_stats"]["log_weight"].values
    np.testing.assert_array_equal(log_weight[np.isfinite(log_weight)], trace.log_weight.ravel())
    few = tree["averaged_posterior"]
    assert np.exp(few["log_weight"].values).sum() == pytest.approx(1.0)
    note = tree.attrs["draws_note"]
    assert f"2 chains of {run.n_draws} draws were sampled under logistic by Laplace" in note
    assert f"2 chains of {trace.n_draws} draws, evenly spaced" in note
    assert weighted.summary().attrs["draws_note"] in note


def test_the_log_prior_is_of_natural_parameters(unweighted):
    tree, trace = unweighted.to_arviz(), unweighted.trace_
    total = sum(tree["log_prior"][p.name].values for p in unweighted.parameters_)
    jacobian = trace.unconstrained.sum(axis=2)  # of exp
    expected = np.array([[unweighted.model_.log_prior(u)[0] for u in chain] for chain in trace.unconstrained])
    np.testing.assert_allclose(total + jacobian, expected, rtol=1e-9)


def test_prior_sensitivity_agrees_with_arviz(unweighted, weighted):
    table = unweighted.prior_sensitivity()
    assert list(table.index) == ["variance", "length_scale"]
    assert (table[["prior", "likelihood"]] > 0.0).all(axis=None)
    # the posterior differs between the evidences by little, and so do the sensitivities
    np.testing.assert_allclose(weighted.prior_sensitivity()["prior"], table["prior"], rtol=0.5)
    arviz = arviz_compat.import_arviz()
    if arviz_compat.major() >= 1:
        theirs = arviz.psense_summary(unweighted.to_arviz(), round_to=6)
        np.testing.assert_allclose(table["prior"], theirs["prior"].astype(float), rtol=0.05, atol=0.005)
        np.testing.assert_allclose(table["likelihood"], theirs["likelihood"].astype(float), rtol=0.05, atol=0.005)


def test_prior_sensitivity_needs_draws():
    gp = GPClassifier(SquaredExponential(), sampler="map", progressbar=False, random_state=1).fit(X, LABELS)
    with pytest.raises(InvalidInput, match="at least 40 draws"):
        gp.prior_sensitivity()


def test_a_trace_of_sample_goes_to_arviz(unweighted, weighted, tmp_path):
    trace = unweighted.sampling_trace_
    tree = trace.to_arviz()
    np.testing.assert_array_equal(tree["posterior"]["length_scale"], trace.draws[:, :, 1])
    assert "sampling_posterior" not in groups_of(tree)
    equal = weighted.trace_.to_arviz()
    assert {"sampling_posterior", "sampling_sample_stats"} <= groups_of(equal)
    assert "log_weight" in weighted.trace_.to_arviz(resample=False)["sample_stats"]
    equal.to_netcdf(tmp_path / "trace.nc")
