"""Several outputs, from a table to the mixture over draws."""

from __future__ import annotations

import pickle
import warnings

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import MultiOutputRegressor

mpl.use("Agg")

from hmcgp import GPRegressor, Model, plots
from hmcgp.errors import InvalidInput
from hmcgp.evidence import Iterative
from hmcgp.kernels import Coregional, SquaredExponential
from hmcgp.likelihoods import Gaussian, OutputNoise, VaryingNoise
from hmcgp.posterior import predict
from hmcgp.priors import LogNormal
from tests.helpers.outputs import GAPS, KINDS, UNIT, X_NEW, Y_NEW, X, Y, quick, targets_of

pytestmark = [
    pytest.mark.usefixtures("clean_pyplot"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
    pytest.mark.filterwarnings("ignore:leave-one-out is not reliable"),
]


@pytest.fixture(scope="module", params=KINDS)
def gp(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quick(outputs=request.param).fit(X, targets_of(request.param))


@pytest.fixture(scope="module", params=KINDS)
def point(request):
    """One draw, where everything has a closed form."""
    return quick(outputs=request.param, sampler="map").fit(X, targets_of(request.param))


def whole_covariance(gp, inputs):
    """C of observations of all outputs at inputs, output after output, in the units of Y; from the parameters alone."""
    theta = dict(zip(gp.model_.names, gp.trace_.flat[0], strict=True))
    scales = np.array([theta["length_scale[depth]"], theta["length_scale[age]"]])
    C = SquaredExponential(theta.get("variance", 1.0), scales, ard=True)(gp._inputs.scaling.apply(inputs))
    if gp.outputs == "independent":
        B, noise = np.eye(2), np.full(2, theta["noise"])
    else:
        L = np.array([[theta["scale[yield]"], 0.0], [theta["mixing[price,yield]"], theta["scale[price]"]]])
        B, noise = L @ L.T, np.array([theta["noise[yield]"], theta["noise[price]"]])
    unit = gp._targets.scaling.spread
    f = np.kron(B * np.outer(unit, unit), C)
    return f, np.repeat(unit**2 * noise, len(inputs))


def conditioned(gp, X_all, Y_all, given, asked):
    """Mean and covariance of the asked of all numbers, output after output, given others."""
    f, noise = whole_covariance(gp, X_all)
    C, y = f + np.diag(noise), np.asarray(Y_all).T.ravel()
    mean = np.repeat(gp._targets.scaling.undo(np.zeros((1, 2)))[0], len(X_all))
    W = np.linalg.solve(C[np.ix_(given, given)], C[np.ix_(given, asked)])
    return mean[asked] + W.T @ (y - mean)[given], C[np.ix_(asked, asked)] - C[np.ix_(asked, given)] @ W


def test_names_and_shapes(gp):
    if gp.outputs == "independent":
        assert gp.model_.names == ["variance", "length_scale[depth]", "length_scale[age]", "noise"]
    else:
        assert gp.model_.names[2:] == [
            "scale[yield]", "scale[price]", "mixing[price,yield]", "noise[yield]", "noise[price]",
        ]  # fmt: skip
    assert gp.output_names_.tolist() == ["yield", "price"]
    mean, sd = gp.predict(X_NEW, return_std=True)
    joint_mean, covariance = gp.predict(X_NEW, return_cov=True)
    latent_mean, latent_variance = gp.latent_mean_and_variance(X_NEW)
    assert (mean.shape, sd.shape, covariance.shape, latent_variance.shape) == ((9, 2), (9, 2), (9, 9, 2), (9, 2))
    for other in (gp.predict(X_NEW), joint_mean, latent_mean):
        np.testing.assert_allclose(other, mean, rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.einsum("iia->ia", covariance)), sd, rtol=1e-9)
    assert (latent_variance < sd**2).all()
    q = gp.predict_quantiles(X_NEW, [0.1, 0.5, 0.9])
    assert q.shape == (9, 2, 3)
    assert (np.diff(q, axis=2) > 0.0).all()
    np.testing.assert_allclose(gp.predict_quantiles(X_NEW, 0.5), q[:, :, 1], atol=1e-7)
    assert gp.log_predictive_density(X_NEW, Y_NEW).shape == (9,)
    assert gp.loo().pointwise.shape == (30,)
    assert gp.score(X, Y) > 0.7
    assert list(gp.summary().index) == gp.model_.names


def test_one_output_is_as_ever():
    column = Y[["yield"]]
    alone = quick(sampler="map").fit(X, Y["yield"])
    with pytest.warns(DataConversionWarning, match="column-vector"):
        as_column = quick(sampler="map").fit(X, column)
    assert not hasattr(alone, "output_names_")
    np.testing.assert_array_equal(as_column.predict(X_NEW), alone.predict(X_NEW))
    refitted = quick(sampler="map").fit(X, Y).fit(X, Y["yield"])
    assert not hasattr(refitted, "output_names_")
    np.testing.assert_array_equal(refitted.predict(X_NEW), alone.predict(X_NEW))


def test_independent_outputs_agree_with_scikit_learn():
    kernel = SquaredExponential(variance=2.0, length_scale=LogNormal(0.0, 1.0))
    ours = quick(kernel=kernel, likelihood=Gaussian(0.1), standardize=False, sampler="map")
    y = (Y - Y.mean()).to_numpy() / UNIT
    ours.fit(X, y)
    scale = ours.kernel_.length_scale
    theirs = GaussianProcessRegressor(ConstantKernel(2.0) * RBF(scale) + WhiteKernel(0.1), alpha=0.0, optimizer=None)
    theirs.fit(X, y)
    mean, sd = ours.predict(X_NEW, return_std=True)
    their_mean, their_sd = theirs.predict(X_NEW, return_std=True)
    np.testing.assert_allclose(mean, their_mean, atol=1e-8)
    np.testing.assert_allclose(sd, their_sd, atol=1e-8)
    their_covariance = theirs.predict(X_NEW, return_cov=True)[1]
    np.testing.assert_allclose(ours.predict(X_NEW, return_cov=True)[1], their_covariance, atol=1e-8)
    assert ours.log_marginal_likelihood() == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-8)
    assert ours.sample_y(X_NEW, 5).shape == theirs.sample_y(X_NEW, 5).shape
    assert ours.output_names_.tolist() == ["0", "1"]


def test_predictions_are_those_of_the_whole_gaussian(point):
    Y_all, X_all = np.vstack([targets_of(point.outputs), Y_NEW]), pd.concat([X, X_NEW], ignore_index=True)
    new = np.tile(np.arange(39) >= 30, 2)
    given = np.flatnonzero(~new & ~np.isnan(Y_all.T.ravel()))
    mean, covariance = conditioned(point, X_all, Y_all, given, np.flatnonzero(new))
    found, found_covariance = point.predict(X_NEW, return_cov=True)
    unit = point._targets.scaling.spread
    np.testing.assert_allclose(found / unit, mean.reshape(2, 9).T / unit, atol=1e-8)
    for a in range(2):
        block = covariance[9 * a : 9 * a + 9, 9 * a : 9 * a + 9]
        np.testing.assert_allclose(found_covariance[:, :, a] / unit[a] ** 2, block / unit[a] ** 2, atol=1e-8)
    log_p = point.log_predictive_density(X_NEW, Y_NEW)
    for i in range(9):
        rows = [i, i + 9]
        expected = multivariate_normal(mean[rows], covariance[np.ix_(rows, rows)]).logpdf(Y_NEW.iloc[i])
        assert log_p[i] == pytest.approx(expected, abs=1e-7)


def test_density_of_the_outputs_that_are_there():
    point = quick(outputs="coregional", sampler="map").fit(X, GAPS)
    mean, sd = point.predict(X_NEW, return_std=True)
    partly = Y_NEW.copy()
    partly.loc[2, "price"] = np.nan
    expected = multivariate_normal(mean[2, 0], sd[2, 0] ** 2).logpdf(Y_NEW.loc[2, "yield"])
    assert point.log_predictive_density(X_NEW, partly)[2] == pytest.approx(expected, abs=1e-8)
    density = point.log_predictive_density(X_NEW, Y_NEW)
    np.testing.assert_allclose(
        np.delete(point.log_predictive_density(X_NEW, partly), 2), np.delete(density, 2), rtol=1e-9
    )


def test_loo_leaves_out_all_outputs_of_a_row(point):
    targets = targets_of(point.outputs).to_numpy()
    there = np.flatnonzero(~np.isnan(targets.T.ravel()))
    found = point.loo().pointwise
    for i in (0, int(np.flatnonzero(np.isnan(GAPS["price"]))[0]), 29):
        out = there[there % 30 == i]
        mean, covariance = conditioned(point, X, targets, np.setdiff1d(there, out), out)
        expected = multivariate_normal(mean, covariance).logpdf(targets.T.ravel()[out])
        assert found[i] == pytest.approx(expected, abs=1e-7)


def test_samples_have_the_moments_of_the_mixture(gp):
    samples = gp.sample_y(X_NEW, 4000, random_state=1)
    assert samples.shape == (9, 2, 4000)
    mean, covariance = gp.predict(X_NEW, return_cov=True)
    for a in range(2):
        sd = np.sqrt(np.diag(covariance[:, :, a]))
        assert np.abs((samples[:, a].mean(axis=1) - mean[:, a]) / sd).max() < 4.0 / np.sqrt(4000)
        scaled = (np.cov(samples[:, a]) - covariance[:, :, a]) / np.outer(sd, sd)
        assert np.abs(scaled).max() < 6.0 / np.sqrt(4000)
    assert gp.sample_y(X_NEW).shape == (9, 2, 1)
    np.testing.assert_array_equal(gp.sample_y(X_NEW, 3), gp.sample_y(X_NEW, 3))


def test_samples_of_correlated_outputs_are_correlated():
    far = pd.DataFrame(
        {"depth": [40.0], "age": [0.0]}
    )  # the prior: correlation B_01/√((B_00 + noise_0)(B_11 + noise_1))
    for kind in KINDS:
        point = quick(outputs=kind, sampler="map").fit(X, Y)
        f, noise = whole_covariance(point, far)
        C = f + np.diag(noise)
        expected = C[0, 1] / np.sqrt(C[0, 0] * C[1, 1])
        found = np.corrcoef(point.sample_y(far, 4000, random_state=2)[0])[0, 1]
        assert abs(found - expected) < 4.0 / np.sqrt(4000)
        assert (expected == 0.0) if kind == "independent" else (expected < -0.5)


@pytest.mark.filterwarnings("ignore:the rows appended since the fit")
@pytest.mark.parametrize("kind", KINDS)
def test_append_equals_a_refit_at_the_same_hyperparameters(kind):
    targets = targets_of(kind)
    gp = quick(outputs=kind).fit(X[:20], targets[:20])
    gp.append(X[20:21], targets[20:21]).append(X[21:], targets[21:])
    scaled = gp._targets.scaling.apply(targets.to_numpy())
    rows, y = gp._targets.layout.rows(gp._inputs.scaling.apply(X.to_numpy()), scaled)
    whole = Model(
        rows, y, kernel=gp.model_.kernel, likelihood=gp.likelihood if kind == "independent" else gp.model_.likelihood
    )
    asked = gp._targets.layout.prediction_inputs(gp._inputs.scaling.apply(X_NEW.to_numpy()))
    draws = gp._kept_draws()
    for found, expected in zip(
        predict.latent_moments(gp.model_, draws, asked), predict.latent_moments(whole, draws, asked), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-8)
    for theta in draws.theta[:3]:
        assert gp.model_.posterior(theta)[1].log_z == pytest.approx(whole.posterior(theta)[1].log_z, abs=1e-8)
    np.testing.assert_allclose(gp._targets.observed(gp.model_), targets, rtol=1e-12)
    np.testing.assert_allclose(
        gp._inputs.scaling.undo(gp._targets.layout.inputs(gp.model_.X)), X, rtol=1e-12, atol=1e-12
    )
    assert gp.loo().pointwise.shape == (30,)
    with pytest.raises(InvalidInput, match="column for each of the 2 outputs yield, price; got 3"):
        gp.append(X[:2], np.zeros((2, 3)))
    with pytest.raises(InvalidInput, match="in the order of fit, yield, price"):
        gp.append(X[:2], targets[:2][["price", "yield"]])


def test_covariance_between_outputs():
    gp = quick(outputs="coregional").fit(X, GAPS)
    draws, names = gp._kept_draws().theta, gp.model_.names
    s0, s1, m = (draws[:, names.index(name)] for name in ("scale[yield]", "scale[price]", "mixing[price,yield]"))
    B, (u, v) = gp.output_covariance(), gp._targets.scaling.spread
    np.testing.assert_allclose(B[:, 0, 0], (u * s0) ** 2, rtol=1e-12)
    np.testing.assert_allclose(B[:, 0, 1], u * v * s0 * m, rtol=1e-12)
    np.testing.assert_allclose(B[:, 1, 1], v**2 * (m**2 + s1**2), rtol=1e-12)
    correlation = gp.output_covariance(correlation=True)
    np.testing.assert_allclose(correlation[:, 1, 0], m / np.hypot(m, s1), rtol=1e-12)
    with pytest.raises(InvalidInput, match="fit with outputs='coregional'"):
        quick(sampler="map").fit(X, Y).output_covariance()


def test_known_noise():
    known = np.random.default_rng(5).uniform(0.5, 2.0, size=(30, 2)) * [1.0, 0.03**2]
    gp = quick(outputs="coregional", likelihood=Gaussian(0.0), sampler="map").fit(X, GAPS, noise_variance=known)
    there = ~np.isnan(GAPS.to_numpy())
    np.testing.assert_allclose(gp.model_.likelihood.known, (known / gp._targets.unit**2)[there], rtol=1e-12)
    gp.append(X_NEW, Y_NEW, noise_variance=known[:9])
    assert len(gp.model_.likelihood.known) == len(gp.model_.y)
    with pytest.raises(InvalidInput, match=r"one value for each row and output, \(30, 2\); got \(30,\)"):
        quick(outputs="coregional").fit(X, GAPS, noise_variance=known[:, 0])
    with pytest.raises(InvalidInput, match="standardised outputs have different units"):
        quick().fit(X, Y, noise_variance=known[:, 0])
    y = (Y - Y.mean()) / UNIT
    shared = quick(standardize=False, sampler="map").fit(X, y, noise_variance=known[:, 0])
    np.testing.assert_allclose(shared.model_.likelihood.known, known[:, 0])
    theta = shared.trace_.flat[0]
    C = shared.kernel_(X.to_numpy()) + np.diag(theta[-1] + known[:, 0])
    expected = sum(multivariate_normal(np.zeros(30), C).logpdf(y[name]) for name in y)
    assert shared.log_marginal_likelihood() == pytest.approx(expected, abs=1e-7)


def test_other_likelihoods_solvers_and_kernels():
    varying = quick(likelihood=VaryingNoise(), sampler="map").fit(X, Y)
    assert varying.predict(X_NEW, return_std=True)[1].shape == (9, 2)
    iterative = quick(evidence=Iterative(), sampler="map").fit(X, Y)
    np.testing.assert_allclose(iterative.predict(X_NEW), quick(sampler="map").fit(X, Y).predict(X_NEW), rtol=1e-2)
    for gp in (iterative, quick(outputs="coregional", evidence=Iterative(), sampler="map").fit(X, GAPS)):
        assert gp.predict(X_NEW, return_cov=True)[1].shape == (9, 9, 2)
        with pytest.raises(InvalidInput, match="cannot leave rows out"):
            gp.loo()
    fixed = OutputNoise(("a", "b"), noise=[0.1, 0.2])
    coregional = quick(outputs="coregional", likelihood=fixed, kernel=SquaredExponential().on("age"), sampler="map")
    assert coregional.fit(X, GAPS).model_.names == [
        "length_scale",
        "scale[yield]",
        "scale[price]",
        "mixing[price,yield]",
    ]
    assert isinstance(coregional.kernel_.right.kernel, Coregional)
    categories = X.assign(age=np.where(X["age"] > 0.0, "old", "new"))
    named = quick(outputs="coregional", sampler="map").fit(categories, GAPS)
    assert "variance" not in named.model_.names
    assert named.predict(categories).shape == (30, 2)


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"outputs": "bogus"}, Y, r"'outputs' must be one of \['coregional', 'independent'\]; got 'bogus'"),
        ({}, GAPS, "'y' contains NaN.*take outputs='coregional'"),
        ({}, Y.assign(price=2.0), "all 30 targets of output 'price' are 2"),
        ({"outputs": "coregional"}, GAPS.assign(price=GAPS["price"] * 0 + 2.0), "targets of output 'price' are 2"),
        ({"outputs": "coregional"}, Y["price"], r"of shape \(n, k\), k >= 2; got \(30,\)"),
        ({"outputs": "coregional"}, Y[["price"]], r"k >= 2; got \(30, 1\)"),
        ({"outputs": "coregional"}, GAPS.drop(index=4).reindex(GAPS.index), "NaN only in row 4"),
        ({"outputs": "coregional"}, Y.assign(price=np.nan), "there are 0 targets of output 'price'"),
        ({"outputs": "coregional"}, Y.replace(Y.iloc[3, 1], np.inf), "contains infinity"),
        ({"outputs": "coregional", "likelihood": "varying_noise"}, Y, "a variance of the noise for each of its 2"),
        ({"outputs": "coregional", "likelihood": OutputNoise(("a",))}, Y, "OutputNoise with as many outputs"),
        ({"outputs": "coregional", "kernel": [SquaredExponential()] * 2}, Y, "give one kernel"),
        ({}, Y[:-1], "inconsistent numbers of samples"),
        ({}, np.zeros((30, 2, 2)), "dim 3"),
        ({}, Y.set_axis([1, "1"], axis=1), "different names; got 1, 1"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_any_sampling(monkeypatch, settings, y, message):
    monkeypatch.setattr("hmcgp.estimators.base.sample", lambda *a, **k: pytest.fail("sampling has started"))
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(X, y)


def test_copies_without_noise_are_of_the_same_output():
    twice = pd.concat([X, X[:1]], ignore_index=True)
    apart = pd.concat([Y, Y[:1]], ignore_index=True)
    quick(
        outputs="coregional", likelihood=Gaussian(0.0), sampler="map", kernel=SquaredExponential(length_scale=0.3)
    ).fit(twice, apart.mask(pd.DataFrame({"yield": apart.index == 30, "price": apart.index == 0})))
    with pytest.raises(InvalidInput, match="rows 0 and 30 have the same inputs and no noise"):
        quick(outputs="coregional", likelihood=Gaussian(0.0)).fit(twice, apart)


def test_to_arviz_save_clone_and_cross_validate(gp, tmp_path):
    tree = gp.to_arviz()
    y = tree["observed_data"]["y"]
    assert y.dims == ("obs_id", "output")
    assert y["output"].values.tolist() == ["yield", "price"]
    np.testing.assert_allclose(y.values, targets_of(gp.outputs), rtol=1e-12)
    np.testing.assert_allclose(tree["constant_data"]["X"].values, X, rtol=1e-12, atol=1e-12)
    if gp.outputs == "coregional":
        assert tree["posterior"]["noise"].dims == ("chain", "draw", "output")
        assert tree["posterior"]["scale"]["output"].values.tolist() == ["yield", "price"]
    theta = gp.trace_.draws[0, 0]
    log_z = tree["sample_stats"]["log_evidence"].values[0, 0]
    assert log_z == pytest.approx(gp.log_marginal_likelihood(theta), abs=1e-6)
    tree.to_netcdf(tmp_path / "gp.nc")
    gp.save(tmp_path / "gp.hmcgp")
    for again in (GPRegressor.load(tmp_path / "gp.hmcgp"), pickle.loads(pickle.dumps(gp))):
        np.testing.assert_array_equal(again.predict(X_NEW), gp.predict(X_NEW))
    assert clone(gp).outputs == gp.outputs
    assert cross_val_score(quick(sampler="map", outputs=gp.outputs), X, Y, cv=3).mean() > 0.5


def test_scikit_learn_can_still_fit_one_by_one():
    separate = MultiOutputRegressor(quick(sampler="map")).fit(X, Y)
    alone = quick(sampler="map").fit(X, Y["price"])
    np.testing.assert_allclose(separate.predict(X_NEW)[:, 1], alone.predict(X_NEW), rtol=1e-12)


def test_pictures_are_of_one_output(gp):
    with pytest.raises(InvalidInput, match=r"2 outputs: choose one by output=, of \['yield', 'price'\]; got None"):
        plots.predictive(gp, X, targets_of(gp.outputs))
    with pytest.raises(InvalidInput, match="got 'bogus'"):
        plots.predictive(gp, X, Y, output="bogus")
    ax = plots.predictive(gp, X, targets_of(gp.outputs), output="price")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("depth", "age")
    one = quick(sampler="map", outputs=gp.outputs).fit(X[["depth"]], targets_of(gp.outputs))
    ax = plots.predictive(one, X[["depth"]], targets_of(gp.outputs), output=1)
    assert ax.get_ylabel() == "price"
    grid, mean = ax.lines[0].get_data()
    np.testing.assert_allclose(mean, one.predict(pd.DataFrame({"depth": grid}))[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), targets_of(gp.outputs)["price"])
    assert plots.regression_1d(one, limits=(0.0, 1.0), output="yield").get_ylabel() == "yield"
    alone = quick(sampler="map").fit(X[["depth"]], Y["price"])
    with pytest.raises(InvalidInput, match="one output; got output=1"):
        plots.predictive(alone, X[["depth"]], Y["price"], output=1)
    plots.trace(gp)
    plots.loo(gp)
    plots.relevance(gp)
