"""Refinement: draws under Laplace that stand for expectation propagation."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from hmcgp import GPClassifier, GPRegressor, datasets
from hmcgp.errors import ApproximationWarning, InterruptedWarning, InvalidInput, NotConverged
from hmcgp.estimators import refinement
from hmcgp.kernels import SquaredExponential
from hmcgp.numerics.weighted import Weights, pareto_smoothed
from hmcgp.posterior import predict
from hmcgp.posterior.evidence_bounds import log_evidence_per_draw

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # chains here are short

X, Y = datasets.load_crabs(return_X_y=True)
X, Y = X.to_numpy(), np.asarray(Y)
ORDER = np.random.default_rng(0).permutation(len(Y))
TRAIN, TEST = ORDER[:60], ORDER[60:]
SHORT: dict[str, Any] = {"draws": 60, "tune": 80, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 1}


def fitted(**settings):
    return GPClassifier(SquaredExponential(), **(SHORT | settings)).fit(X[TRAIN], Y[TRAIN])


@pytest.fixture(scope="module")
def gp():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fitted()


@pytest.fixture(scope="module")
def plain():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fitted(refine=None)


def test_draws_are_those_of_laplace_with_weights_to_ep(gp, plain):
    np.testing.assert_array_equal(gp.sampling_trace_.draws, plain.trace_.draws)
    assert type(gp.model_.evidence).__name__ == "EP"
    ratios = [log_evidence_per_draw(model, plain.trace_.flat) for model in (gp.model_, plain.model_)]
    expected = pareto_smoothed(ratios[0] - ratios[1])
    # sorted: draws that were rejected are repeated, and smoothing tells them apart by their last digits
    np.testing.assert_allclose(np.sort(gp.trace_.log_weight, axis=None), np.sort(expected.log_weight), atol=1e-6)
    assert gp.refinement_.method == "weighted"
    assert gp.refinement_.pareto_k == pytest.approx(expected.pareto_k, abs=1e-5)
    log_prior = np.array([gp.model_.log_prior(u)[0] for u in gp.trace_.unconstrained.reshape(len(gp.trace_), -1)])
    np.testing.assert_allclose(gp.trace_.stats["lp"].ravel(), ratios[0] + log_prior, rtol=1e-9)


def test_probabilities_are_the_weighted_average_of_those_of_ep(gp):
    model, draws, rows = gp._new_inputs(X[TEST])
    each = predict.probabilities_per_draw(model, draws, rows)
    np.testing.assert_allclose(gp.predict_proba(X[TEST]), np.average(each, axis=0, weights=draws.weight), rtol=1e-9)
    every = np.average(gp.predict_proba_draws(X[TEST]), axis=0, weights=gp.trace_.weight)
    assert np.sqrt(np.mean((gp.predict_proba(X[TEST]) - every) ** 2)) < 0.003


def test_probabilities_are_less_timid(gp, plain):
    """Against chains under EP itself."""
    best = fitted(evidence="ep").predict_proba(X[TEST])
    errors = [np.sqrt(np.mean((fit.predict_proba(X[TEST]) - best) ** 2)) for fit in (gp, plain)]
    assert errors[0] < 0.3 * errors[1]
    assert log_loss(Y[TEST], gp.predict_proba(X[TEST])) < log_loss(Y[TEST], plain.predict_proba(X[TEST]))


def test_where_weights_fail_chains_run_under_the_better_evidence(monkeypatch):
    monkeypatch.setattr(refinement, "MIN_SHARE", 1.0)  # no weights leave all draws effective
    gp = fitted()
    assert gp.refinement_.method == "sampled"
    assert "whose weights failed" in str(gp.refinement_)
    assert gp.trace_.log_weight is None
    assert gp.trace_.draws.shape == (2, 60, 2)
    assert gp.sampling_trace_ is not gp.trace_
    best = fitted(evidence="ep", draws=300)
    difference = gp.predict_proba(X[TEST]) - best.predict_proba(X[TEST])
    assert np.sqrt(np.mean(difference**2)) < 0.02
    again = fitted()
    np.testing.assert_array_equal(again.trace_.draws, gp.trace_.draws)


def test_weights_to_the_exact_evidence_that_fail_are_used_with_a_warning(monkeypatch):
    """No chain can follow an estimate without a gradient."""
    monkeypatch.setattr(refinement, "MIN_SHARE", 1.0)
    with pytest.warns(ApproximationWarning, match=r"rest on few of them, \d+ of 40 .* hmcgp.sample_jointly"):
        gp = fitted(evidence="ep", refine="exact", draws=20, tune=40)
    assert gp.refinement_.method == "weighted"
    assert gp.trace_.log_weight is not None


def test_weights_need_a_small_k_and_enough_effective_draws():
    equal = np.full(100, -np.log(100.0))
    assert refinement.trustworthy(Weights(equal, 0.5, 60.0))
    assert not refinement.trustworthy(Weights(equal, 0.8, 60.0))
    assert not refinement.trustworthy(Weights(equal, 0.5, 10.0))
    assert not refinement.trustworthy(Weights(equal, np.nan, 60.0))


def test_several_classes_are_refined_to_the_multinomial_probit():
    A, classes = load_iris(return_X_y=True)
    settings = SHORT | {"draws": 30, "tune": 60}
    kernel = SquaredExponential()
    gp = GPClassifier(kernel, **settings).fit(A[::3], classes[::3])
    assert str(gp.refinement_).startswith("probabilities: multinomial probit by EP; hyperparameters: 60 draws under ")
    assert "softmax by Laplace, weighted" in str(gp.refinement_)
    soft = GPClassifier(kernel, likelihood="softmax", **settings).fit(A[::3], classes[::3])
    assert soft.refinement_ is None
    assert type(soft.model_.likelihood).__name__ == "Softmax"
    losses = [log_loss(classes[1::3], fit.predict_proba(A[1::3])) for fit in (gp, soft)]
    assert losses[0] < 0.7 * losses[1]
    asked = GPClassifier(kernel, likelihood="softmax", refine="ep", **settings).fit(A[::3], classes[::3])
    np.testing.assert_array_equal(asked.predict_proba(A[1::3]), gp.predict_proba(A[1::3]))


def test_rows_of_many_copies_or_parts_of_one_stay_with_the_softmax():
    A, classes = load_iris(return_X_y=True)
    for weights in (np.full(50, 40.0), np.full(50, 0.5)):
        gp = GPClassifier(SquaredExponential(), sampler="map", random_state=1, n_jobs=1)
        assert gp.fit(A[::3], classes[::3], sample_weight=weights).refinement_ is None
    with pytest.raises(InvalidInput, match="whole numbers as weights"):
        gp.set_params(refine="ep").fit(A[::3], classes[::3], sample_weight=weights)


def test_a_single_most_probable_draw_is_evaluated_by_ep():
    gp = fitted(sampler="map")
    assert gp.refinement_.method == "evaluated"
    assert str(gp.refinement_) == (
        "probabilities: logistic by EP; hyperparameters: at the hyperparameters found under logistic by Laplace"
    )
    assert gp.trace_.log_weight is None
    assert gp.loo().n_draws == 1


@pytest.mark.parametrize(
    "settings", [{"evidence": "ep"}, {"evidence": "lower"}, {"likelihood": "label_noise"}, {"refine": None}]
)
def test_other_evidences_are_left_alone(settings):
    gp = fitted(draws=4, tune=20, **settings)
    assert gp.refinement_ is None
    assert gp.sampling_trace_ is gp.trace_


def test_a_lower_bound_is_refined_on_request():
    gp = fitted(evidence="lower", refine="ep")
    assert type(gp.model_.evidence).__name__ == "EP"
    assert "under logistic by LowerBound" in str(gp.refinement_)


@pytest.mark.parametrize(("refine", "message"), [("laplace", "'refine' must be"), (3, "'refine' must be")])
def test_unknown_refinements_are_refused(refine, message):
    with pytest.raises(InvalidInput, match=message):
        fitted(refine=refine)


def test_exact_is_for_two_classes():
    A, classes = load_iris(return_X_y=True)
    with pytest.raises(InvalidInput, match=r"refine='exact' is for two classes.*OneVsRestClassifier"):
        GPClassifier(refine="exact", **SHORT).fit(A[::3], classes[::3])


def test_an_evidence_that_fails_leaves_the_draws_as_they_are(monkeypatch, plain):
    def fails(*args, **kwargs):
        raise NotConverged("EP: residual 1.0 > tol 1e-10 after 200 factorisations.")

    monkeypatch.setattr(refinement, "log_evidence_per_draw", fails)
    with pytest.warns(ApproximationWarning, match=r"could not be refined: EP: .* those of logistic by Laplace"):
        gp = fitted()
    assert gp.refinement_ is None
    np.testing.assert_array_equal(gp.predict_proba(X[TEST]), plain.predict_proba(X[TEST]))


def test_an_interrupt_keeps_the_draws(monkeypatch, plain):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(refinement, "log_evidence_per_draw", interrupted)
    with pytest.warns(InterruptedWarning, match="refinement of the draws was interrupted"):
        gp = fitted()
    np.testing.assert_array_equal(gp.predict_proba(X[TEST]), plain.predict_proba(X[TEST]))


def test_rows_appended_multiply_the_weights(gp, tmp_path):
    gp.save(tmp_path / "gp.hmcgp")
    more = GPClassifier.load(tmp_path / "gp.hmcgp")
    assert more.refinement_ == gp.refinement_
    np.testing.assert_array_equal(more.predict_proba(X[TEST]), gp.predict_proba(X[TEST]))
    more.append(X[TEST[:5]], Y[TEST[:5]])
    larger = log_evidence_per_draw(more.model_, gp.trace_.flat)
    smaller = log_evidence_per_draw(gp.model_, gp.trace_.flat)
    expected = pareto_smoothed(gp.trace_.log_weight.ravel() + larger - smaller)
    np.testing.assert_allclose(np.sort(more.trace_.log_weight, axis=None), np.sort(expected.log_weight), atol=1e-5)


def test_appended_rows_are_not_blamed_for_the_weights_of_the_fit():
    gp = fitted()
    log_weight = 1.3 * np.random.default_rng(0).normal(size=gp.trace_.draws.shape[:2])
    log_weight -= np.logaddexp.reduce(log_weight, axis=None)
    gp.trace_ = replace(gp.trace_, log_weight=log_weight)
    gp.refinement_ = replace(gp.refinement_, effective=gp.trace_.n_effective)
    assert gp.trace_.n_effective < 0.4 * len(gp.trace_)
    gp.append(X[TRAIN[:1]], Y[TRAIN[:1]])  # a copy tells nothing new, and nobody warns


def test_the_exact_evidence_has_a_value_and_no_gradient():
    gp = fitted(refine="exact")
    estimate = gp.model_.posterior(gp._best)[1]
    assert gp.log_marginal_likelihood() == estimate.log_z
    with pytest.raises(InvalidInput, match="no gradient to follow"):
        gp.log_marginal_likelihood(eval_gradient=True)


def test_a_regressor_has_nothing_to_refine():
    gp = GPRegressor(SquaredExponential(), **SHORT).fit(X[:30], X[:30, 0])
    assert gp.refinement_ is None
