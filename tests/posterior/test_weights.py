"""Draws with weights: averages, effective numbers, and the table of the hyperparameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hmcgp import Model, sample
from hmcgp.errors import ApproximationWarning
from hmcgp.likelihoods import LabelNoise
from hmcgp.numerics.weighted import effective_number, pareto_smoothed
from hmcgp.posterior import label_noise, leave_one_out, predict
from hmcgp.posterior.weights import WeightedDraws, resampled
from hmcgp.reporting import diagnostics
from hmcgp.reporting.convergence import weighted_ess
from tests.helpers.checks import classification_problem

X, LABELS, _ = classification_problem(20, 2)
NEW = np.random.default_rng(1).normal(size=(7, 2))
COPIES = np.array([1, 3, 0, 2, 1, 4])


def draws_of(model, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([model.constrain(model.initial(rng)) for _ in COPIES])


def both(model):
    """Draws with whole weights, and the same draws so many times."""
    draws = draws_of(model)
    return WeightedDraws(draws, COPIES * (len(COPIES) / COPIES.sum())), np.repeat(draws, COPIES, axis=0)


@pytest.mark.parametrize("evidence", ["laplace", "ep"])
def test_a_draw_of_weight_two_is_that_draw_twice_for_labels(evidence):
    model = Model(X, LABELS, evidence=evidence)
    weighted, repeated = both(model)
    for function in (predict.probabilities, predict.mixture_moments):
        np.testing.assert_allclose(function(model, weighted, NEW), function(model, repeated, NEW), rtol=1e-10)


def test_a_draw_of_weight_two_is_that_draw_twice_for_numbers():
    y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20)
    model = Model(X, y, likelihood="gaussian")
    weighted, repeated = both(model)
    for observed in (True, False):
        found = predict.mixture_moments(model, weighted, NEW, observed=observed)
        np.testing.assert_allclose(found, predict.mixture_moments(model, repeated, NEW, observed=observed), rtol=1e-9)
    q = np.array([0.05, 0.5, 0.9])
    np.testing.assert_allclose(
        predict.quantiles(model, weighted, NEW, q), predict.quantiles(model, repeated, NEW, q), rtol=1e-8, atol=1e-10
    )
    y_new = np.linspace(-1.0, 1.0, 7)
    np.testing.assert_allclose(
        predict.log_density(model, weighted, NEW, y_new), predict.log_density(model, repeated, NEW, y_new), rtol=1e-9
    )


def test_a_draw_of_weight_two_is_that_draw_twice_for_flipped_labels():
    model = Model(X, LABELS, likelihood=LabelNoise())
    weighted, repeated = both(model)
    np.testing.assert_allclose(
        label_noise.flip_probability(model, weighted), label_noise.flip_probability(model, repeated), rtol=1e-9
    )


def test_leaving_out_starts_from_the_weights_of_the_draws():
    """Without smoothing, which few draws escape: p(y_i | y_-i) = Σ w_s/Σ (w_s/p_is)."""
    model = Model(X, LABELS)
    weighted, repeated = both(model)
    log_p = leave_one_out.log_predictive_per_draw(model, weighted)
    with pytest.warns(ApproximationWarning, match="not reliable"):
        found = leave_one_out.combine(log_p[COPIES > 0], log_weight=weighted.log_weight[COPIES > 0])
    plain = leave_one_out.log_predictive_per_draw(model, repeated)
    np.testing.assert_allclose(found.pointwise, -np.log(np.mean(np.exp(-plain), axis=0)), rtol=1e-9)


def test_weights_of_importance_sampling_recover_another_gaussian():
    x = np.random.default_rng(0).normal(size=20_000)
    log_ratios = -0.5 * (x - 0.5) ** 2 + 0.5 * x**2
    weights = pareto_smoothed(log_ratios + 1e4)  # a constant does not matter
    w = np.exp(weights.log_weight)
    assert w.sum() == pytest.approx(1.0)
    assert w @ x == pytest.approx(0.5, abs=0.03)
    assert w @ x**2 == pytest.approx(1.25, abs=0.06)
    assert weights.pareto_k < 0.4
    assert weights.effective == pytest.approx(20_000 * np.exp(-0.25), rel=0.05)  # E[w]²/E[w²]
    assert effective_number(np.ones(7)) == pytest.approx(7.0)


def test_weights_of_a_target_with_heavier_tails_are_not_to_be_trusted():
    x = np.random.default_rng(0).normal(size=4000)
    wide = pareto_smoothed(-0.5 * (x / 3.0) ** 2 + 0.5 * x**2)
    assert wide.pareto_k > 0.7


def test_a_draw_that_the_wanted_density_excludes_has_no_weight():
    weights = pareto_smoothed(np.append(np.random.default_rng(0).normal(size=50), -np.inf))
    assert weights.log_weight[-1] == -np.inf
    assert np.exp(weights.log_weight).sum() == pytest.approx(1.0)


def test_resampling_keeps_proportions():
    np.testing.assert_array_equal(resampled(np.array([2.0, 0.0, 1.0, 1.0])), [0, 0, 2, 3])


@pytest.fixture(scope="module")
def trace():
    return sample(Model(X, LABELS), draws=40, tune=60, chains=2, random_state=0, n_jobs=1, progressbar=False)


def test_thinning_is_even_in_every_chain(trace):
    assert trace.thinned(None) is trace
    assert trace.thinned(80) is trace
    some = trace.thinned(9)
    assert some.draws.shape[:2] == (2, 4)
    np.testing.assert_array_equal(some.draws, trace.draws[:, [0, 13, 26, 39]])
    np.testing.assert_array_equal(some.stats["lp"], trace.stats["lp"][:, [0, 13, 26, 39]])
    assert len(trace.thinned(1)) == 1


def test_the_table_is_that_of_the_weighted_draws(trace):
    rng = np.random.default_rng(0)
    log_weight = rng.normal(size=trace.draws.shape[:2])
    log_weight -= np.logaddexp.reduce(log_weight, axis=None)
    weighted = replace(trace, log_weight=log_weight, pareto_k=0.3)
    table, w = diagnostics.summary(weighted), np.exp(log_weight).ravel()
    np.testing.assert_allclose(table["mean"], w @ trace.flat, rtol=1e-12)
    np.testing.assert_allclose(table["sd"], np.sqrt(w @ (trace.flat - w @ trace.flat) ** 2), rtol=1e-10)
    assert (table["q5"] < table["median"]).all()
    assert (table["ess_bulk"] < diagnostics.summary(trace)["ess_bulk"]).all()
    equal = replace(trace, log_weight=np.full(trace.draws.shape[:2], -np.log(len(trace))))
    np.testing.assert_allclose(diagnostics.summary(equal)["median"], diagnostics.summary(trace)["median"], rtol=1e-9)
    assert "weighted" in repr(weighted)


def test_effective_draws_count_weights_and_correlation():
    """The error of a weighted mean, over repetitions, is sd/√ESS."""
    rng, errors, sizes = np.random.default_rng(0), [], []
    for _ in range(300):
        x = rng.normal(size=(4, 200))
        weight = np.exp(x)  # to a mean of 1
        errors.append(np.average(x, weights=weight) - 1.0)
        sizes.append(weighted_ess(x, weight)[0])
    assert np.std(errors) * np.sqrt(np.median(sizes)) == pytest.approx(1.0, abs=0.15)
