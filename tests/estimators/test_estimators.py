import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from hmcgp import GPClassifier, datasets
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.kernels import Constant, Linear, SquaredExponential
from hmcgp.priors import LogNormal
from hmcgp.samplers import HMC

CRABS = datasets.load_crabs()
ROWS = np.random.default_rng(0).permutation(200)
X, Y = CRABS.data.iloc[ROWS[:80]], CRABS.target.iloc[ROWS[:80]]
X_TEST, Y_TEST = CRABS.data.iloc[ROWS[80:]], CRABS.target.iloc[ROWS[80:]]


def quick(**settings):
    """A fit of a second; too short for its own convergence checks."""
    return GPClassifier(**{"draws": 40, "tune": 60, "chains": 2, "random_state": 0, "progressbar": False, **settings})


def fitted(estimator, X=X, y=Y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


@pytest.fixture(scope="module")
def gp():
    return fitted(quick())


def test_predicts_crabs(gp):
    assert gp.score(X_TEST, Y_TEST) > 0.9  # linear discriminant: 0.95
    p = gp.predict_proba(X_TEST)
    assert p.shape == (120, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_array_equal(gp.predict(X_TEST), gp.classes_[p.argmax(axis=1)])
    assert list(gp.classes_) == ["F", "M"]


def test_draws_and_latent_moments(gp):
    draws = gp.predict_proba_draws(X_TEST.iloc[:5])
    assert draws.shape == (80, 5, 2)
    averaged = np.average(draws, axis=0, weights=gp.trace_.weight)
    np.testing.assert_allclose(averaged, gp.predict_proba(X_TEST.iloc[:5]), rtol=1e-10)
    mean, variance = gp.latent_mean_and_variance(X_TEST.iloc[:5])
    assert (variance > 0.0).all()
    np.testing.assert_array_equal(mean > 0.0, gp.predict_proba(X_TEST.iloc[:5])[:, 1] > 0.5)


def test_log_marginal_likelihood(gp):
    value, grad = gp.log_marginal_likelihood(eval_gradient=True)
    curve, line = gp.kernel_.left.left, gp.kernel_.left.right
    name, variance = "squared_exponential.variance", curve.variance
    theta = {name: variance, "length_scale": curve.length_scale, "linear.variance": line.variance}
    assert gp.log_marginal_likelihood(theta) == pytest.approx(value, rel=1e-12)
    h = 1e-5 * variance
    up, down = (gp.log_marginal_likelihood({**theta, name: variance + s * h}) for s in (1.0, -1.0))
    assert grad[0] == pytest.approx((up - down) / (2.0 * h), rel=1e-4, abs=1e-9)


def test_summary_has_a_row_per_hyperparameter(gp):
    table = gp.summary()
    scales = [f"length_scale[{c}]" for c in X.columns]
    assert list(table.index) == ["squared_exponential.variance", *scales, "linear.variance"]
    assert {"mean", "sd", "r_hat", "ess_bulk"} <= set(table.columns)


def test_to_arviz_holds_everything(gp, tmp_path):
    tree = gp.to_arviz()
    posterior = tree["posterior"]
    assert list(posterior["length_scale"].coords["feature"].values) == list(X.columns)
    assert posterior["length_scale"].shape == (2, 40, 5)
    for name in ("lp", "acceptance_rate", "step_size", "n_steps", "energy", "energy_error", "diverging",
                 "solver_iterations", "solver_residual", "not_converged", "not_positive_definite"):  # fmt: skip
        assert tree["sample_stats"][name].shape == (2, 40), name
    np.testing.assert_allclose(tree["constant_data"]["X"].values, X.to_numpy(), rtol=1e-12)
    np.testing.assert_array_equal(tree["observed_data"]["y"].values, Y.to_numpy().astype(str))
    theta = gp.trace_.draws[1, 7]
    log_z = gp.to_arviz(resample=False)["sample_stats"]["log_evidence"].values[1, 7]  # in the order of the trace
    assert log_z == pytest.approx(gp.log_marginal_likelihood(theta), rel=1e-9)
    tree.to_netcdf(tmp_path / "posterior.nc")


def test_save_and_load(gp, tmp_path):
    gp.save(tmp_path / "crabs.hmcgp")
    again = GPClassifier.load(tmp_path / "crabs.hmcgp")
    np.testing.assert_array_equal(again.predict_proba(X_TEST), gp.predict_proba(X_TEST))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(gp)).predict_proba(X_TEST), gp.predict_proba(X_TEST))


def test_same_seed_same_draws_whatever_the_workers(gp):
    again = fitted(quick(n_jobs=1))
    np.testing.assert_array_equal(again.trace_.draws, gp.trace_.draws)
    np.testing.assert_array_equal(again.predict_proba(X_TEST), gp.predict_proba(X_TEST))


def test_units_of_the_inputs_do_not_matter():
    factors = [1.0, 10.0, 1e3, 1e-3, 7.0]
    scaled = fitted(quick(sampler="map"), X * factors + 5.0)
    plain = fitted(quick(sampler="map"))
    np.testing.assert_allclose(
        scaled.trace_.draws, plain.trace_.draws, rtol=1e-3
    )  # the optimiser stops on its gradient
    np.testing.assert_allclose(
        scaled.predict_proba(X_TEST * factors + 5.0), plain.predict_proba(X_TEST), rtol=1e-3, atol=1e-5
    )


def test_arrays_and_frames_agree(gp):
    array = fitted(quick(), X.to_numpy(), Y.to_numpy())
    np.testing.assert_array_equal(array.trace_.draws, gp.trace_.draws)
    assert array.model_.names[1] == "length_scale[x0]"


@pytest.mark.parametrize("labels", [(0, 1), (-1.0, 1.0), (True, False), ("no", "yes"), (7, 3)])
def test_any_two_labels(labels):
    y = np.where(Y == "M", labels[1], labels[0])
    gp = fitted(quick(sampler="map"), X, y)
    assert set(gp.predict(X_TEST)) == set(labels)
    assert gp.score(X_TEST, np.where(Y_TEST == "M", labels[1], labels[0])) > 0.9


@pytest.mark.parametrize("sampler", ["nuts", "hmc", "metropolis", "map", HMC(step_size=0.1, n_steps=5)])
@pytest.mark.parametrize("likelihood", ["logistic", "probit"])
def test_samplers_and_likelihoods(sampler, likelihood):
    gp = fitted(quick(sampler=sampler, likelihood=likelihood))
    assert gp.score(X_TEST, Y_TEST) > 0.85


def test_map_is_one_draw_that_can_be_shown():
    gp = fitted(quick(sampler="map", refine=None))
    assert gp.trace_.draws.shape == (1, 1, 7)
    assert np.isnan(gp.summary()["r_hat"]).all()
    gp.to_arviz()
    grad = gp.model_.logdensity_and_grad(gp.trace_.unconstrained[0, 0])[1]
    assert np.abs(grad).max() < 1e-3


def test_kernel_settings_are_kept():
    kernel = SquaredExponential(LogNormal(0, 1), 2.0).on(["CL", "RW"]) + Constant(1.0)
    gp = fitted(quick(kernel=kernel))
    assert gp.model_.names == ["variance"]
    assert clone(gp).kernel == kernel


def test_in_a_pipeline_and_cross_validation():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        scores = cross_val_score(make_pipeline(MinMaxScaler(), quick(draws=20, tune=40)), X, Y, cv=3)
    assert scores.mean() > 0.8


def test_predictions_use_as_many_draws_as_asked():
    gp = fitted(quick(predict_draws=9, refine=None))
    assert gp.predict_proba_draws(X_TEST).shape == (8, 120, 2)  # as many of each chain
    gp.predict_draws = None
    assert gp.predict_proba_draws(X_TEST).shape == (80, 120, 2)


# -- bad input ---------------------------------------------------------------------------------------------------------


def with_value(value):
    bad = X.to_numpy().copy()
    bad[3, 2] = value
    return bad


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (with_value(np.nan), Y, "NaN"),
        (with_value(np.inf), Y, "infinity"),
        (X, np.full(80, "M"), "one class only, M"),
        (X, Y[:-1], "inconsistent numbers of samples"),
        (X + 1j, Y, "Complex data not supported"),
        (X.astype(object).assign(FL="tall").to_numpy(), Y, "column 0 of 'X' holds text .'tall'. in 80 of 80 rows"),
        (X[:1], Y[:1], "minimum of 2 is required"),
        (X["FL"], Y, "Expected a 2-dimensional container"),
        (X, np.linspace(0.0, 1.0, 80), "Unknown label type|continuous"),
    ],
)
def test_bad_data_are_refused_before_sampling(X, y, message, monkeypatch):
    monkeypatch.setattr("hmcgp.estimators.base.sample", lambda *a, **k: pytest.fail("sampling has started"))
    with pytest.raises(ValueError, match=message):
        GPClassifier(missing="error").fit(X, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draws": 0}, "'draws' must be an integer >= 1; got 0"),
        ({"chains": 0}, "'chains' must be an integer >= 1"),
        ({"tune": -1}, "'tune' must be an integer >= 0"),
        ({"predict_draws": 0}, "'predict_draws' must be"),
        ({"predict_draws": 1.5}, "'predict_draws' must be"),
        ({"n_jobs": 0}, "'n_jobs'"),
        ({"evidence": "vb"}, "'evidence' must be one of"),
        ({"likelihood": "cauchy"}, "'likelihood' must be one of"),
        ({"likelihood": "poisson"}, "is for counts, and GPClassifier explains labels: take GPCounts"),
        ({"sampler": "gibbs"}, "'sampler' must be one of"),
        ({"kernel": SquaredExponential().on(["legs"])}, "'legs', which is not among the inputs"),
        ({"kernel": SquaredExponential().on([5])}, "only 5 inputs"),
        ({"kernel": SquaredExponential(length_scale=[1.0, 2.0])}, "2 values for 5 inputs"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        quick(**settings).fit(X, Y)


def test_a_failed_refit_changes_nothing():
    gp = fitted(quick(sampler="map"))
    before = gp.predict_proba(X_TEST)
    with pytest.raises(InvalidInput):
        gp.set_params(n_jobs=0).fit(X * 2.0 + 5.0, np.where(Y == "M", "F", "M"))
    np.testing.assert_array_equal(gp.set_params(n_jobs=None).predict_proba(X_TEST), before)


def test_a_failed_first_fit_leaves_it_unfitted():
    gp = quick(n_jobs=0)
    with pytest.raises(InvalidInput):
        gp.fit(X, Y)
    with pytest.raises(NotFittedError):
        gp.predict(X)


@pytest.mark.parametrize(("factor", "offset"), [(1e160, 0.0), (1e300, 0.0), (1e-300, 0.0), (1e-3, 1e9)])
def test_extreme_units_are_standardised_like_any_other(factor, offset):
    plain = fitted(quick(sampler="map"))
    gp = fitted(quick(sampler="map"), X * factor + offset)
    # an offset of 1e9 leaves seven digits of the measures
    np.testing.assert_allclose(gp.predict_proba(X_TEST * factor + offset), plain.predict_proba(X_TEST), atol=1e-3)


def test_inputs_that_overflow_the_covariance_are_refused():
    gp = fitted(quick(kernel=Linear(), sampler="map"))
    with pytest.raises(InvalidInput, match="overflows at a new input"):
        gp.predict_proba(X_TEST * 1e200)


def test_constant_columns_work_with_a_warning():
    with pytest.warns(DataWarning, match=r"1 of 6 inputs are constant in the training rows \(legs\)"):
        gp = fitted(quick(), X.assign(legs=10.0))
    assert np.isfinite(gp.predict_proba(X_TEST.assign(legs=10.0))).all()


def test_duplicate_rows_work_with_a_warning():
    X2, y2 = pd.concat([X, X.iloc[:4]]), np.concatenate([Y, Y.iloc[:3], ["M" if Y.iloc[3] == "F" else "F"]])
    with pytest.warns(
        DataWarning,
        match="8 of 84 rows repeat the inputs of another row, 2 of them those of a row with",
    ):
        gp = fitted(quick(), X2, y2)
    assert np.isfinite(gp.predict_proba(X_TEST)).all()


def test_other_columns_at_predict_time(gp):
    with pytest.raises(ValueError, match="feature names should match"):
        gp.predict(X_TEST.rename(columns={"FL": "frontal"}))
    with pytest.raises(ValueError, match="feature names should match"):
        gp.predict(X_TEST.iloc[:, :4])


def test_not_fitted():
    for call in ("predict", "predict_proba", "predict_proba_draws", "latent_mean_and_variance"):
        with pytest.raises(NotFittedError):
            getattr(GPClassifier(), call)(X)
    for call in ("summary", "to_arviz", "log_marginal_likelihood"):
        with pytest.raises(NotFittedError):
            getattr(GPClassifier(), call)()


def test_a_short_run_says_so_once():
    with pytest.warns(ConvergenceWarning) as caught:
        quick().fit(X, Y)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "effective sample size" in text
    assert "draws=" in text
    assert caught[0].filename == __file__


def test_likelihood_for_numbers_is_refused():
    X, y = datasets.load_crabs(return_X_y=True)
    with pytest.raises(InvalidInput, match="is for numbers, and GPClassifier explains labels"):
        quick(likelihood="gaussian", evidence="exact").fit(X, y)
