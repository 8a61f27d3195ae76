"""Expectation propagation for several classes, and the multinomial probit behind it.

`test_classes_contract.py` has what the evidence shares with Laplace's approximation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp, ndtr, ndtri
from scipy.stats import multivariate_normal, norm, qmc

from hmcgp import GPClassifier, Model, datasets, plots
from hmcgp.errors import InvalidInput
from hmcgp.evidence import EP, MultinomialEP, SoftmaxLaplace
from hmcgp.kernels import SquaredExponential, White
from hmcgp.likelihoods import MultinomialProbit, Probit
from hmcgp.likelihoods.probability_of_largest import N_POINTS, probability_of_largest, uniform_points
from hmcgp.posterior import predict
from tests.helpers import reference
from tests.helpers.checks import CLASS_SIZES, check_gradient, several_classes, squared_exponential

SOLVE, PROBIT = MultinomialEP(), MultinomialProbit()
PAIR: dict[str, Any] = {"likelihood": "probit", "evidence": "ep"}
EACH = [SquaredExponential(ard=True)] * 3
FAST: dict[str, Any] = {**PAIR, "sampler": "map", "random_state": 0, "progressbar": False}


@pytest.fixture(scope="module")
def fitted(thyroid):
    return GPClassifier(EACH, **FAST).fit(*thyroid)


# -- the likelihood ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.5, 3.0, 30.0])
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_log_probabilities_against_adaptive_quadrature(n_classes, scale):
    """However far the class is from being the largest."""
    f = scale * np.random.default_rng(n_classes).normal(size=(6, n_classes))
    y = np.arange(6.0) % n_classes
    for row, c, found in zip(f, y.astype(int), PROBIT.log_prob(y, f), strict=True):
        others = np.delete(row, c)

        def log_term(w, others=others, own=row[c]):
            return norm.logpdf(w, own) + norm.logcdf(w - others).sum()

        grid = np.linspace(min(row) - 10.0, max(row) + 10.0, 20001)
        values = np.array([log_term(w) for w in grid[::20]])
        top, mode = values.max(), grid[::20][values.argmax()]
        mass, _ = quad(lambda w, top=top: np.exp(log_term(w) - top), mode - 9.0, mode + 9.0, epsabs=1e-12)
        np.testing.assert_allclose(found, top + np.log(mass), atol=1e-8)


def test_probabilities_of_all_classes_sum_to_one():
    f = 2.0 * np.random.default_rng(0).normal(size=(20, 5))
    p = np.exp([PROBIT.log_prob(np.full(20, float(c)), f) for c in range(5)])
    np.testing.assert_allclose(p.sum(axis=0), 1.0, rtol=1e-12)


def gaussians(m, n_classes, scale, seed=0):
    """Means and covariances of m rows."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(m, n_classes, n_classes))
    return np.sqrt(scale) * rng.normal(size=(m, n_classes)), scale * A @ A.transpose(0, 2, 1) / n_classes


@pytest.mark.parametrize("scale", [1.0, 1000.0])
@pytest.mark.parametrize(("n_classes", "tolerance"), [(3, 3e-5), (6, 1e-3), (10, 2e-3)])
def test_averages_before_they_are_made_to_sum_to_one(n_classes, tolerance, scale):
    """The table in the header of the module: against 16 times as many points, and the sum over classes."""
    mean, covariance = gaussians(20, n_classes, scale)
    covariance += np.eye(n_classes)
    accurate = probability_of_largest(mean, covariance, uniform_points(n_classes - 2, 16 * N_POINTS, seed=1))
    found = probability_of_largest(mean, covariance)
    np.testing.assert_allclose(found, accurate, atol=tolerance)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=tolerance)
    assert (PROBIT.class_probabilities(mean, covariance).sum(axis=0) == 1.0).all()


def test_averages_of_three_classes_against_the_bivariate_normal():
    mean, covariance = gaussians(10, 3, 5.0)
    p = PROBIT.class_probabilities(mean, covariance)
    for i in range(10):
        for c in range(3):
            contrast = np.delete(np.eye(3), c, axis=0) - np.eye(3)[c]
            S = contrast @ (covariance[i] + np.eye(3)) @ contrast.T
            exact = multivariate_normal(contrast @ mean[i], S).cdf(np.zeros(2))
            np.testing.assert_allclose(p[c, i], exact, atol=2e-5)


def test_tails_are_right_in_relative_terms():
    """Independent latent values, of which the second lies 12 below the first."""
    mean, covariance = np.array([[12.0, 0.0, -1.0]]), np.diag([1.0, 2.0, 0.5])[None]
    w = np.linspace(-20.0, 40.0, 60001)
    s = np.sqrt(1.0 + np.diag(covariance[0]))
    exact = np.sum(norm.pdf(w, 0.0, s[1]) * ndtr((w - 12.0) / s[0]) * ndtr((w + 1.0) / s[2])) * (w[1] - w[0])
    assert exact < 1e-7
    np.testing.assert_allclose(PROBIT.log_average(np.array([1.0]), mean, covariance), np.log(exact), atol=1e-3)


def test_two_classes_average_as_the_probit_of_their_difference():
    mean, covariance = gaussians(30, 2, 10.0)
    d = np.array([-1.0, 1.0]) / np.sqrt(2.0)
    p = PROBIT.class_probabilities(mean, covariance)
    np.testing.assert_allclose(p, Probit().class_probabilities(mean @ d, d @ covariance @ d), atol=1e-14)


def test_a_row_does_not_depend_on_its_neighbours():
    mean, covariance = gaussians(700, 4, 5.0)
    together, row = PROBIT.class_probabilities(mean, covariance), slice(600, 601)
    np.testing.assert_array_equal(PROBIT.class_probabilities(mean[row], covariance[row]), together[:, row])


# -- the evidence --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 15, 60])
def test_two_classes_are_the_probit_model_of_the_difference(n):
    """(f_1 - f_0)/√2 ~ N(0, (K_0 + K_1)/2): expectation propagation with its posterior, and not nearly so."""
    _, y, K = several_classes(n, 2, seed=3)
    labels, half = 2.0 * y - 1.0, 0.5 * (K[0] + K[1])
    two, binary = SOLVE(K, y, PROBIT), EP()(half, labels, Probit())
    np.testing.assert_allclose(two.log_z, binary.log_z, rtol=1e-11)
    for dK in two.dK:
        np.testing.assert_allclose(dK, 0.5 * binary.dK, atol=1e-9)
    ours: Any = SOLVE(K, y, PROBIT, gradient=False).posterior
    theirs: Any = EP()(half, labels, Probit(), gradient=False).posterior
    K_cross, k_diag = 0.3 * np.random.default_rng(0).normal(size=(2, n, 4)), np.full((2, 4), 20.0)
    pairs = [
        (ours.predict(K_cross, k_diag), theirs.predict(0.5 * K_cross.sum(axis=0), 0.5 * k_diag.sum(axis=0))),
        (ours.cavity(), theirs.cavity()),
    ]
    contrast = np.array([-1.0, 1.0]) / np.sqrt(2.0)
    for (mean, covariance), (expected_mean, expected_variance) in pairs:
        np.testing.assert_allclose(mean @ contrast, expected_mean, atol=1e-8)
        np.testing.assert_allclose(contrast @ covariance @ contrast, expected_variance, rtol=1e-8)


@pytest.mark.parametrize(("n", "n_classes"), [*CLASS_SIZES[:3], (10, 6)])
def test_matches_expectation_propagation_of_the_differences(n, n_classes):
    """By the plain twin of binary EP, with a matrix of order n(C - 1), site by site."""
    _, y, K = several_classes(n, n_classes)
    B = reference.class_differences(y, n_classes)  # (n (C - 1), C, n)
    H = np.einsum("sci,cij,tcj->st", B, K, B) + np.repeat(np.repeat(np.eye(n), n_classes - 1, 0), n_classes - 1, 1)
    log_z, G, _, _ = reference.ep_probit(H, np.ones(len(H)))
    found = SOLVE(K, y, PROBIT)
    np.testing.assert_allclose(found.log_z, log_z, rtol=1e-9)
    np.testing.assert_allclose(found.dK, np.einsum("sci,st,tcj->cij", B, G, B), atol=1e-7)


def whole_posterior(K, posterior):
    """Prior covariance of all latent values, class after class, and their covariance under q, by inverses."""
    n_classes, n = posterior.f.shape
    prior, precision = np.zeros((n_classes, n, n_classes, n)), np.zeros((n_classes, n, n_classes, n))
    rows = np.arange(n)
    for a in range(n_classes):
        prior[a, :, a] = K[a]
        for b in range(n_classes):
            precision[a, rows, b, rows] = posterior.site_precision()[:, a, b]
    prior, precision = (A.reshape(n_classes * n, -1) for A in (prior, precision))
    return prior, np.linalg.inv(np.linalg.inv(prior) + precision)


def test_prediction_at_the_training_inputs_is_the_posterior():
    _, y, K = several_classes(12, 3)
    posterior = SOLVE(K, y, PROBIT, gradient=False).posterior
    mean, covariance = posterior.predict(K, np.einsum("cii->ci", K))
    np.testing.assert_allclose(mean, posterior.f.T, atol=1e-10)
    _, S = whole_posterior(K, posterior)
    np.testing.assert_allclose(covariance, np.einsum("aibi->iab", S.reshape(3, 12, 3, 12)), atol=1e-9)


@pytest.mark.parametrize(("n_classes", "error"), [(2, 0.0), (3, 0.0018), (6, 0.0068), (10, 0.0113)])
def test_a_vanishing_prior_leaves_a_die_that_is_not_quite_fair(n_classes, error):
    """The factors of a row are approximated one by one: what the header of `multinomial.py` says of it."""
    y = np.arange(float(n_classes))
    log_z = SOLVE(1e-12 * np.eye(n_classes), y, PROBIT).log_z
    np.testing.assert_allclose(log_z / n_classes + np.log(n_classes), -error, atol=6e-5)


@pytest.mark.parametrize("variance", [1.0, 10.0, 100.0])
def test_evidence_and_predictions_against_brute_force(variance):
    """Four rows of three classes, the last without a label: integrals over 12 latent values by importance sampling.

    Points are drawn from q, made wider: different scramblings scatter by 0.0002, 0.002 and 0.005.  With four of
    them, log Z is too low by 0.006, 0.009 and 0.005.
    """
    X, y, _ = several_classes(3, 3, seed=1)
    K = squared_exponential(np.vstack([X, [[0.2, 0.1]]]), variance, 1.0)
    ev = SOLVE(K[:3, :3].copy(), y, PROBIT, gradient=False)
    prior, S = whole_posterior(np.stack([K[:3, :3]] * 3), ev.posterior)
    q = multivariate_normal(ev.posterior.f.ravel(), 1.5 * S)
    uniform = qmc.Sobol(12, rng=np.random.default_rng(0)).random(2**14)
    f = q.mean + ndtri(uniform[:, :9]) @ np.linalg.cholesky(q.cov).T  # (P, 9)
    by_class = f.reshape(-1, 3, 3)
    log_p = multivariate_normal(np.zeros(9), prior).logpdf(f) - q.logpdf(f)
    log_p += sum(PROBIT.log_prob(np.full(len(f), y[i]), by_class[:, :, i]) for i in range(3))
    np.testing.assert_allclose(ev.log_z, logsumexp(log_p) - np.log(len(f)), atol=0.02)

    to_new = np.linalg.solve(K[:3, :3], K[:3, 3])
    new = by_class @ to_new + np.sqrt(K[3, 3] - K[3, :3] @ to_new) * ndtri(uniform[:, 9:])
    of_new = np.exp([PROBIT.log_prob(np.full(len(f), float(c)), new) for c in range(3)])
    mean, covariance = ev.posterior.predict(K[:3, 3:], K[3:, 3])
    weights = np.exp(log_p - logsumexp(log_p))
    np.testing.assert_allclose(PROBIT.class_probabilities(mean, covariance)[:, 0], of_new @ weights, atol=0.005)


@pytest.mark.parametrize("kind", ["overlapping", "separable"])
def test_it_converges_in_few_sweeps_wherever_a_sampler_goes(kind):
    X, y, _ = several_classes(60, 4, seed=2)
    if kind == "separable":
        y = np.searchsorted(np.quantile(X[:, 0], [0.25, 0.5, 0.75]), X[:, 0]).astype(float)
    sweeps = [
        SOLVE(squared_exponential(X, variance, length_scale), y, PROBIT).n_iter
        for variance in (1e-4, 1e-2, 1.0, 1e2, 1e4)
        for length_scale in (1e-2, 0.1, 1.0, 10.0, 1e3)
    ]
    assert max(sweeps) <= 25
    assert np.mean(sweeps) <= 8


# -- the model -----------------------------------------------------------------------------------------------------

ARD = SquaredExponential(ard=True)


@pytest.mark.parametrize(
    "kernel", [ARD, [ARD, SquaredExponential(), SquaredExponential(2.0) + White(0.1)]], ids=["shared", "per class"]
)
def test_gradient_of_the_log_density(kernel):
    X, y, _ = several_classes(30, 3)
    model = Model(X, y, likelihood="multinomial_probit", kernel=kernel)
    assert isinstance(model.evidence, MultinomialEP)
    for seed in range(3):
        check_gradient(model.logdensity_and_grad, model.initial(np.random.default_rng(seed)), rtol=1e-5, atol=1e-6)


def test_a_path_there_and_back_has_the_same_densities():
    """Log density and gradient must not depend on the warm start."""
    X, y, _ = several_classes(40, 3)
    model = Model(X, y, likelihood=PROBIT, evidence="ep")
    path = [np.array([1.0, 0.3, 0.6]) + 0.1 * step * np.array([1.0, -0.7, 0.4]) for step in range(20)]
    there: list[Any] = []
    back: list[Any] = []
    for found, positions in ((there, path), (back, path[::-1])):
        carry = None
        for u in positions:
            found.append(model.evaluate(u, carry))
            carry = found[-1].carry
    for one, two in zip(there, back[::-1], strict=True):
        np.testing.assert_allclose(two.logdensity, one.logdensity, rtol=1e-11)
        np.testing.assert_allclose(two.grad, one.grad, atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"evidence": "laplace"},
            "SoftmaxLaplace cannot integrate MultinomialProbit .*: take evidence='multinomial_ep'",
        ),
        ({"evidence": EP()}, "EP cannot integrate MultinomialProbit"),
        ({"evidence": "tap"}, "TAP cannot integrate MultinomialProbit"),
        ({"kernel": [ARD, ARD]}, "2 kernels for 3 classes"),
    ],
)
def test_what_does_not_fit(settings, message):
    X, y, _ = several_classes(10, 3)
    with pytest.raises(InvalidInput, match=message):
        Model(X, y, likelihood="multinomial_probit", **settings)


def test_em_is_for_labels():
    X, y, _ = several_classes(10, 3)
    model = Model(X, y, likelihood="multinomial_probit")
    with pytest.raises(InvalidInput, match="EM-EP takes its expectations from 'ep' or 'tap', not from MultinomialEP"):
        model.expectation(np.zeros(model.n_dim))


# -- the estimator -------------------------------------------------------------------------------------------------


def test_probit_and_ep_are_the_multinomial_probit_for_several_classes(fitted, thyroid):
    X, y = thyroid
    assert isinstance(fitted.model_.likelihood, MultinomialProbit)
    assert isinstance(fitted.model_.evidence, MultinomialEP)
    p = fitted.predict_proba(X)
    assert p.shape == (len(y), 3)
    assert (p.sum(axis=1) == 1.0).all()
    assert fitted.score(X, y) >= 0.95
    renamed = GPClassifier(EACH, **FAST).fit(X, 10 - np.unique(y, return_inverse=True)[1])  # reversed order
    np.testing.assert_allclose(renamed.predict_proba(X)[:, ::-1], p, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"likelihood": "multinomial_probit", "evidence": "multinomial_ep"},
        {"likelihood": MultinomialProbit(), "evidence": "ep"},
        {"likelihood": "probit", "evidence": MultinomialEP(tol=1e-10)},
    ],
)
def test_it_has_several_names(fitted, thyroid, settings):
    gp = GPClassifier(EACH, **{**FAST, **settings}).fit(*thyroid)
    np.testing.assert_array_equal(gp.trace_.flat, fitted.trace_.flat)


def test_two_labels_may_be_taken_as_multinomial_probit(thyroid):
    X, y = thyroid
    two = y != "Hyper"
    gp = GPClassifier(**{**FAST, "likelihood": "multinomial_probit"}).fit(X[two], y[two])
    assert gp.predict_proba(X).shape == (len(y), 2)
    assert list(gp.to_arviz()["observed_data"]["y"].values) == list(y[two])


@pytest.mark.parametrize("settings", [{"evidence": "ep"}, {"likelihood": "probit", "evidence": "laplace"}])
def test_half_a_pair_names_the_other_half(thyroid, settings):
    with pytest.raises(InvalidInput, match=r"likelihood='probit' \(the multinomial probit\) with evidence='ep'"):
        GPClassifier(sampler="map", progressbar=False, **settings).fit(*thyroid)


def test_leaving_one_out_predicts_what_cross_validation_does(fitted, thyroid):
    """With the hyperparameters kept: the rows taken out one by one."""
    _, y = thyroid
    model, codes = fitted.model_, np.unique(y, return_inverse=True)[1].astype(float)
    slow = []
    for i in range(0, len(y), 6):
        rest = np.arange(len(y)) != i
        without = Model(model.X[rest], codes[rest], kernel=model.kernel, likelihood=MultinomialProbit(3))
        slow.append(np.log(predict.probabilities(without, fitted.trace_.flat, model.X[[i]])[0, int(codes[i])]))
    np.testing.assert_allclose(fitted.loo().pointwise[::6], slow, atol=0.1)
    np.testing.assert_allclose(fitted.loo().pointwise[::6].mean(), np.mean(slow), atol=0.01)


@pytest.mark.parametrize("sampler", ["hmc", "nuts"])
def test_hyperparameters_are_sampled(thyroid, sampler):
    X, y = thyroid
    settings: dict[str, Any] = {"draws": 8, "tune": 8, "chains": 2, "random_state": 0, "progressbar": False}
    gp = GPClassifier([ARD] * 3, sampler=sampler, **settings, **PAIR)
    with pytest.warns(UserWarning, match="effective|R-hat|chains"):
        gp.fit(X, y)
    assert gp.trace_.flat.shape == (16, 18)
    assert not gp.trace_.stats["diverging"].all()
    np.testing.assert_allclose(gp.predict_proba_draws(X[:9]).mean(axis=0), gp.predict_proba(X[:9]), atol=1e-14)
    mean, variance = gp.latent_mean_and_variance(X[:9])
    assert mean.shape == variance.shape == (9, 3)
    assert (variance > 0.0).all()
    assert gp.to_arviz()["posterior"]["length_scale"].dims == ("chain", "draw", "class", "feature")


def test_a_kernel_for_each_class(fitted, thyroid):
    posterior = fitted.to_arviz()["posterior"]
    assert posterior["length_scale"].dims == ("chain", "draw", "class", "feature")
    labels = {tick.get_text() for tick in plots.relevance(fitted, of="length_scale").get_yticklabels()}
    assert labels == {f"{name} ({c})" for name in thyroid[0].columns for c in fitted.classes_}


def test_a_kernel_that_all_classes_share(thyroid):
    gp = GPClassifier(ARD, **FAST).fit(*thyroid)
    assert gp.to_arviz()["posterior"]["length_scale"].dims == ("chain", "draw", "feature")
    assert gp.score(*thyroid) >= 0.95


def test_rows_may_be_appended(fitted, thyroid):
    X, y = thyroid
    X, codes = fitted._inputs.scaling.apply(X.to_numpy()), np.unique(y, return_inverse=True)[1].astype(float)
    theta = fitted.trace_.flat[0]
    first = Model(X[:60], codes[:60], kernel=fitted.model_.kernel, likelihood=MultinomialProbit(3))
    both = first.with_rows(X[60:], codes[60:])
    kernel, old = first.posterior(theta)
    mean, variance = old.posterior.predict(kernel(X[:60], X[60:]), kernel.diag(X[60:]))
    warm = both.posterior(theta, old.posterior.start_with(mean, variance))[1]
    np.testing.assert_allclose(warm.log_z, both.posterior(theta)[1].log_z, rtol=1e-11)


@pytest.mark.slow
def test_thyroid_is_predicted_better_than_by_laplace():
    """Half of the table: log loss of the other half, at the MAP."""
    X, y = datasets.load_thyroid(return_X_y=True)
    y = np.asarray(y)
    losses = []
    for settings in (FAST, {"sampler": "map", "refine": None, "random_state": 0, "progressbar": False}):
        gp = GPClassifier(**settings).fit(X[::2], y[::2])
        p = gp.predict_proba(X[1::2])
        losses.append(-np.mean(np.log(p[np.arange(len(p)), np.searchsorted(gp.classes_, y[1::2])])))
    assert isinstance(gp.model_.evidence, SoftmaxLaplace)
    assert losses[0] < 0.7 * losses[1]


def test_weights_are_refused_before_anything_is_fitted():
    X = np.random.default_rng(0).normal(size=(12, 2))
    gp = GPClassifier(likelihood="probit", evidence="ep", sampler="map")
    with pytest.raises(InvalidInput, match=r"whole numbers as weights.*got 0.5 in row 0"):
        gp.fit(X, np.arange(12) % 3, sample_weight=np.linspace(0.5, 2.0, 12))
    assert not hasattr(gp, "model_")
