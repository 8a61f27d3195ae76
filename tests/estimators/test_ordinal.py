"""GPOrdinal: probabilities of ordered levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from hmcgp import GPClassifier, GPOrdinal
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.kernels import Constant, Linear, SquaredExponential
from hmcgp.likelihoods import Ordinal

RNG = np.random.default_rng(2)
N = 120
X = RNG.normal(size=(N, 2))
LATENT = 3.0 * np.sin(1.5 * X[:, 0])
CODES = np.digitize(LATENT + RNG.normal(size=N), [-1.5, 0.5, 2.0])
NAMES = np.array(["low", "fair", "good", "best"])
Y = NAMES[CODES]


def quick(**settings):
    return GPOrdinal(sampler="map", random_state=0, progressbar=False, n_jobs=1, **settings)


@pytest.fixture(scope="module")
def gp():
    return quick(levels=NAMES.tolist()).fit(X, Y)


def test_probabilities_follow_the_order_of_the_levels(gp):
    p = gp.predict_proba(X)
    assert gp.classes_.tolist() == NAMES.tolist()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert np.mean(gp.predict(X) == Y) > 0.6
    assert gp.score(X, Y) == np.mean(gp.predict(X) == Y)
    mean = gp.predict_mean(X)
    np.testing.assert_allclose(mean, p @ np.arange(4.0))
    assert np.corrcoef(mean, LATENT)[0, 1] > 0.9
    np.testing.assert_allclose(gp.predict_mean(X, values=[0, 10, 20, 30]), 10.0 * mean)
    with pytest.raises(InvalidInput, match="a number for each of the 4 levels"):
        gp.predict_mean(X, values=[1, 2])


def test_cut_points_rise_and_have_names(gp):
    cuts = gp.cut_points()
    assert cuts.shape == (1, 3)
    assert (np.diff(cuts) > 0.0).all()
    assert gp.model_.names[-3:] == ["first_cut", "width[fair]", "width[good]"]


def test_numbers_are_levels_in_their_order_and_have_a_mean():
    gp = quick(kernel=SquaredExponential(4.0, 1.0)).fit(X, 3 + CODES)
    assert gp.classes_.tolist() == [3, 4, 5, 6]
    assert 3.0 < gp.predict_mean(X).min() < gp.predict_mean(X).max() < 6.0
    assert gp.predict(X).dtype == gp.classes_.dtype


def test_an_ordered_series_tells_its_order():
    y = pd.Series(pd.Categorical(Y, categories=NAMES, ordered=True))
    gp = quick(kernel=SquaredExponential(4.0, 1.0)).fit(X, y)
    assert gp.classes_.tolist() == NAMES.tolist()
    with pytest.warns(DataWarning, match="alphabetical order: best, fair, good, low"):
        quick(kernel=SquaredExponential(4.0, 1.0)).fit(X, Y)


def test_leave_one_out_effects_draws_export_and_files(gp, tmp_path):
    assert -N * np.log(4.0) < gp.loo().elpd < 0.0
    effect = gp.effect(0, values=[-1.0, 1.0])
    assert effect.mean.shape == (2, 4)
    np.testing.assert_allclose(effect.mean.sum(axis=1), 1.0, rtol=1e-9)
    assert gp.relevance().unit == "probability"
    size = gp.relevance().size  # (inputs, classes)
    assert np.linalg.norm(size[0]) > np.linalg.norm(size[1])
    np.testing.assert_allclose(gp.predict_proba_draws(X)[0], gp.predict_proba(X), atol=1e-9)
    assert gp.predict_proba_draws(X[:3], latent=True).shape == (1, 3, 4)
    assert gp.latent_mean_and_variance(X)[0].shape == (N,)
    tree = gp.to_arviz(log_likelihood=True, posterior_predictive=True)
    np.testing.assert_array_equal(tree["observed_data"]["y_code"].values, CODES)
    gp.save(tmp_path / "levels.hmcgp")
    again = GPOrdinal.load(tmp_path / "levels.hmcgp")
    np.testing.assert_array_equal(again.predict_proba(X), gp.predict_proba(X))


def test_weights_are_rows_repeated_and_rows_can_be_appended():
    settings: dict[str, Any] = {"kernel": SquaredExponential(4.0, 1.0), "likelihood": Ordinal((), -1.5, [2.0, 1.5])}
    settings |= {"standardize": False, "levels": NAMES}
    twice = np.where(np.arange(N) % 3 == 0, 2, 1)
    rows = np.repeat(np.arange(N), twice)
    one, two = quick(**settings).fit(X, Y, sample_weight=twice), quick(**settings).fit(X[rows], Y[rows])
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), atol=1e-9)
    grown = quick(**settings).fit(X[:80], Y[:80]).append(X[80:], Y[80:])
    np.testing.assert_allclose(grown.predict_proba(X), quick(**settings).fit(X, Y).predict_proba(X), atol=1e-8)
    assert np.isfinite(one.loo().elpd)


def test_intervals_of_probabilities_are_those_of_samples(gp):
    few = X[:5]
    ends = gp.predict_proba_interval(few, level=0.8)
    assert ends.shape == (5, 4, 2)
    (mean, variance), rng = gp.latent_mean_and_variance(few), np.random.default_rng(0)
    f = mean + np.sqrt(variance) * rng.standard_normal((40_000, 5))
    cuts = np.concatenate([[-np.inf], gp.cut_points()[0], [np.inf]])
    p = stats.norm.cdf(cuts[1:] - f[..., None]) - stats.norm.cdf(cuts[:-1] - f[..., None])
    np.testing.assert_allclose(ends, np.quantile(p, [0.1, 0.9], axis=0).transpose(1, 2, 0), atol=0.01)
    wide = gp.predict_proba_interval(few, level=0.95)
    assert ((wide[..., 0] <= ends[..., 0]) & (wide[..., 1] >= ends[..., 1])).all()
    with pytest.raises(InvalidInput, match="'level'"):
        gp.predict_proba_interval(few, level=1.0)


def test_expectation_propagation_predicts_about_the_same(gp):
    settings = {"kernel": gp.kernel_, "likelihood": gp.model_.likelihood_at(gp.trace_.flat[0]), "levels": NAMES}
    laplace, ep = (quick(evidence=evidence, **settings).fit(X, Y) for evidence in ("laplace", "ep"))
    np.testing.assert_allclose(ep.predict_proba(X), laplace.predict_proba(X), atol=0.03)
    assert np.abs(ep.predict_proba(X) - laplace.predict_proba(X)).max() > 1e-6
    np.testing.assert_allclose(ep.loo().elpd, laplace.loo().elpd, atol=1.0)
    free = quick(evidence="ep", levels=NAMES, inducing=20).fit(X, Y)
    np.testing.assert_allclose(free.predict_proba(X), gp.predict_proba(X), atol=0.2)


def test_inducing_inputs(gp):
    few = quick(levels=NAMES, inducing=30).fit(X, Y)
    np.testing.assert_allclose(few.predict_proba(X), gp.predict_proba(X), atol=0.15)
    assert few.inducing_error_.prediction < 0.05


def test_two_levels_are_the_probit():
    y = np.where(CODES > 1, "up", "down")
    kernel = SquaredExponential(4.0, 1.0)
    levels = quick(kernel=kernel, likelihood=Ordinal(first_cut=1e-12), levels=["down", "up"]).fit(X, y)
    labels = GPClassifier(kernel, likelihood="probit", sampler="map", refine=None, progressbar=False).fit(X, y)
    np.testing.assert_allclose(levels.predict_proba(X), labels.predict_proba(X), atol=1e-6)
    free = quick(kernel=kernel, levels=["down", "up"]).fit(X, y)
    assert free.model_.names == ["first_cut"]


def test_a_fit_by_sampling():
    gp = GPOrdinal(SquaredExponential(), levels=NAMES, draws=50, tune=60, chains=1, random_state=0, progressbar=False)
    with pytest.warns(UserWarning, match="effective sample size"):
        gp.fit(X[:, :1], Y)
    cuts = gp.cut_points()
    assert cuts.shape == (50, 3)
    assert (np.diff(cuts, axis=1) > 0.0).all()
    true = np.array([-1.5, 0.5, 2.0])
    assert np.abs(cuts.mean(axis=0) - true).max() < 1.5


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({}, np.ones(N, dtype=int), "holds one level .class. only, 1"),
        ({"levels": ["low", "good"]}, Y, "which are not among the levels"),
        ({"levels": ["low", "low", "fair"]}, Y, "'levels' must be different"),
        ({"likelihood": "logistic"}, CODES, "GPOrdinal explains levels: take GPClassifier"),
        ({"evidence": "lower"}, CODES, "LowerBound cannot integrate Ordinal.*evidence='laplace' or evidence='ep'"),
        ({}, np.linspace(0.0, 1.0, N), "Unknown label type"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, y, message):
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(X, y)


def test_a_line_with_wide_priors_is_the_ordered_model_of_statsmodels():
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    line = X[:, :1]
    codes = np.digitize(line[:, 0] + RNG.normal(size=N), [-1.0, 0.3])
    fit = OrderedModel(codes, line, distr="probit").fit(method="bfgs", disp=False)
    cuts = fit.model.transform_threshold_params(fit.params)[1:-1]
    likelihood = Ordinal((), cuts[0], np.diff(cuts))
    gp = quick(kernel=Constant(1e-8) + Linear(100.0), likelihood=likelihood, standardize=False).fit(line, codes)
    mean, _ = gp.latent_mean_and_variance(line)
    np.testing.assert_allclose(mean, fit.params[0] * line[:, 0], atol=2e-3)
