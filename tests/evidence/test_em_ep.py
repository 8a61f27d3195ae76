"""EM-EP: its surrogate against brute force and central differences, its steps, and where they end."""

from __future__ import annotations

import itertools
from math import inf
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from hmcgp import Model, datasets, find_map
from hmcgp.errors import InvalidInput
from hmcgp.evidence import EP
from hmcgp.evidence.ep.em_surrogate import SITE_NOISE, ExpectedLogDensity
from hmcgp.kernels import SquaredExponential, White
from hmcgp.likelihoods import LabelNoise, Logistic, Probit
from hmcgp.numerics.density import Evaluation, Expectation
from hmcgp.optimize.maximum import GRADIENT_TOLERANCE, point_trace
from hmcgp.posterior.predict import probabilities
from hmcgp.priors import Beta
from tests.helpers.checks import check_gradient, classification_problem
from tests.helpers.densities import HalfSpace, Warped

LIKELIHOODS = [Logistic(), Probit(), LabelNoise(0.05), LabelNoise(), LabelNoise(link="step")]


def crabs(n=40):
    X, y = datasets.load_crabs(return_X_y=True)
    X, y = np.asarray(X, dtype=float)[:: len(X) // n][:n], np.asarray(y)[:: len(X) // n][:n]
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(y == y[0], -1.0, 1.0)


def small_model(likelihood, evidence="ep", n=25):
    X, y, _ = classification_problem(n, 2)
    return Model(X, y, kernel=SquaredExponential(ard=True) + White(), likelihood=likelihood, evidence=evidence)


def points(model, n=3):
    rng = np.random.default_rng(1)
    return [0.5 * rng.standard_normal(model.n_dim) for _ in range(n)]


# -- the surrogate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
def test_gradient_of_the_surrogate(likelihood):
    model = small_model(likelihood)
    u, *others = points(model)
    surrogate = model.expectation(u).surrogate
    for v in [u, *others]:
        check_gradient(lambda w: surrogate.evaluate(w)[:2], v, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("likelihood", "evidence"),
    [(lik, "ep") for lik in LIKELIHOODS] + [(lik, "tap") for lik in LIKELIHOODS[1:]],
    ids=str,
)
def test_it_touches_the_log_density(likelihood, evidence):
    """Value and gradient, the flip rate's too: fixed points of EM-EP are stationary points of EP's log density."""
    model = small_model(likelihood, evidence)
    for u in points(model):
        (evaluation, surrogate), plain = model.expectation(u), model.evaluate(u)
        np.testing.assert_array_equal(evaluation.grad, plain.grad)
        touching = surrogate.evaluate(u)
        np.testing.assert_allclose(touching.logdensity, plain.logdensity, rtol=1e-12)
        np.testing.assert_allclose(touching.grad, plain.grad, atol=1e-7)


def test_flips_counted_under_q_would_not_touch():
    """Nor would the rows that its mean misclassifies: either way ∂F/∂ε is not that of log Z, and ε ends elsewhere."""
    _, y, K = classification_problem(30, 2)
    likelihood = LabelNoise(0.1)
    evidence = EP()(K, y, likelihood)
    expected = ExpectedLogDensity.given(K, y, likelihood, evidence)
    mean = (K + np.eye(30)) @ evidence.posterior.alpha
    under_q = ndtr(-y * mean / np.sqrt(np.diag(expected.A) - mean**2)).sum()
    misclassified = np.sum(y * mean < 0.0)
    slope = [r / 0.1 - (30 - r) / 0.9 for r in (expected.r, under_q, misclassified)]
    np.testing.assert_allclose(slope[0], evidence.dlik[0], rtol=1e-9)
    assert under_q > 1.3 * expected.r
    assert min(abs(slope[1] - slope[0]), abs(slope[2] - slope[0])) > 3.0


def test_expectations_of_three_rows_by_simulation():
    """E[gg'] and the number of flips of g ~ N(0, K + I), y_i = sign g_i but for flips: EP is close at small K."""
    X, y, _ = classification_problem(3, 2)
    K = 0.5 * np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=2))
    likelihood = LabelNoise(0.2)
    expected = ExpectedLogDensity.given(K, y, likelihood, EP()(K, y, likelihood))
    g = np.random.default_rng(0).multivariate_normal(np.zeros(3), K + np.eye(3), size=400_000)
    wrong = g * y < 0.0
    weight = np.where(wrong, 0.2, 0.8).prod(axis=1)
    weight /= weight.sum()
    np.testing.assert_allclose(expected.A, (g * weight[:, None]).T @ g, atol=0.01)  # the prior's is 0.3 away
    np.testing.assert_allclose(expected.r, weight @ wrong.sum(axis=1), rtol=0.01)


def test_the_noise_of_a_probit_is_white_noise_behind_a_step():
    _, y, K = classification_problem(20, 2)
    step, probit = LabelNoise(0.1, link="step"), LabelNoise(0.1)
    behind = ExpectedLogDensity.given(K + np.eye(20), y, step, EP()(K + np.eye(20), y, step))
    before = ExpectedLogDensity.given(K, y, probit, EP()(K, y, probit))
    np.testing.assert_allclose(behind.A, before.A, rtol=1e-7)
    np.testing.assert_allclose(behind.r, before.r, rtol=1e-9)
    one, two = behind(2.0 * K + np.eye(20), y, step), before(2.0 * K, y, probit)
    np.testing.assert_allclose(one.log_z, two.log_z, rtol=1e-9)
    np.testing.assert_allclose(one.dK, two.dK, atol=1e-8)


@pytest.mark.parametrize("likelihood", [Logistic(), Probit(), LabelNoise(0.05)], ids=str)
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e3])
def test_q_of_the_noisy_latent_values_is_a_distribution(likelihood, scale):
    """No site is narrower than the noise c, so that C - CRC, the covariance of g, has no negative eigenvalue."""
    _, y, K = classification_problem(30, 2)
    evidence = EP()(scale * K, y, likelihood)
    noise = SITE_NOISE[likelihood.site()[0]]
    assert evidence.posterior.w.max() <= 1.0 / noise
    A = ExpectedLogDensity.given(scale * K, y, likelihood, evidence).A
    mean = (scale * K + noise * np.eye(30)) @ evidence.posterior.alpha
    assert np.linalg.eigvalsh(A - np.outer(mean, mean)).min() > -1e-9 * scale


def flip_model(prior):
    X, y, _ = classification_problem(30, 2)
    return Model(X, y, kernel=SquaredExponential(4.0, 1.0), likelihood=LabelNoise(prior), evidence="ep")


def test_the_flip_rate_of_the_m_step():
    """F alone peaks at r/n, and so under a prior flat in u = logit 2ε; one flat in ε puts ε(1 - 2ε) beside it."""
    model = flip_model(Beta(1.0, 1.0, upper=0.5))
    surrogate = model.expectation(model.unconstrain({"flip": 0.1})).surrogate
    r, n = surrogate.evidence.r, 30
    assert 0.5 < r < 6.0

    def maximum(log_f):
        return minimize_scalar(
            lambda e: -log_f(e), bounds=(1e-9, 0.5 - 1e-9), method="bounded", options={"xatol": 1e-12}
        ).x

    alone = maximum(lambda e: surrogate.log_evidence(np.array([e]))[0])
    np.testing.assert_allclose(alone, r / n, rtol=1e-6)
    uniform = maximum(lambda e: surrogate.evaluate(model.unconstrain(np.array([e]))).logdensity)
    np.testing.assert_allclose(
        (r + 1.0) / uniform - (n - r) / (1.0 - uniform) - 2.0 / (1.0 - 2.0 * uniform), 0.0, atol=1e-3
    )
    flat_in_u = flip_model(Beta(1e-9, 1e-9, upper=0.5)).expectation(model.unconstrain({"flip": 0.1})).surrogate
    np.testing.assert_allclose(
        maximum(lambda e: flat_in_u.evaluate(model.unconstrain(np.array([e]))).logdensity), r / n, rtol=1e-6
    )


# -- the steps -------------------------------------------------------------------------------------------------------


class Recording(Model):
    """A model that remembers its E-steps."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.steps = []

    def expectation(self, u, carry=None):
        expectation = super().expectation(u, carry)
        self.steps.append((u, expectation))
        return expectation


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
def test_no_m_step_lowers_f(likelihood):
    X, y, _ = classification_problem(25, 2)
    model = Recording(X, y, kernel=SquaredExponential() + White(1.0), likelihood=likelihood, evidence="ep")
    result = find_map(model, method="em-ep", n_restarts=1, random_state=0)
    assert result.converged
    assert len(model.steps) > 5
    np.testing.assert_array_equal(model.steps[-1][0], result.position)
    for (u, (evaluation, surrogate)), (v, _) in itertools.pairwise(model.steps):
        after = surrogate.evaluate(v).logdensity
        assert after >= surrogate.evaluate(u).logdensity - 1e-11 * abs(after)
        assert after >= evaluation.logdensity - 1e-11 * abs(after)


class Quadratic(HalfSpace):
    """A hill at (0.1, 0) beside what cannot be computed; its surrogates are paraboloids of another curvature."""

    def __init__(self, curvature=100.0, surrogate=1000.0, edge=-inf):
        super().__init__(edge=edge)
        self.curvature, self.surrogate, self.calls, self.failures = curvature, surrogate, 0, 0

    def evaluate(self, u, carry=None, gradient=True):
        self.calls += 1
        evaluation = super().evaluate(u)
        r = u - np.array([0.1, 0.0])
        if evaluation.logdensity == -inf:
            return evaluation
        return Evaluation(-0.5 * self.curvature * float(r @ r), -self.curvature * r)

    def expectation(self, u, carry=None):
        evaluation = self.evaluate(u)
        if evaluation.logdensity == -inf:
            self.failures += 1
            return Expectation(evaluation, None)
        return Expectation(evaluation, Paraboloid(u, evaluation, self))


class Paraboloid(Quadratic):
    def __init__(self, u, evaluation, parent):
        super().__init__()
        self.at, self.known, self.parent = u, evaluation, parent

    def evaluate(self, u, carry=None, gradient=True):
        self.parent.calls += 1
        d, steepness = u - self.at, self.parent.surrogate
        value = self.known.logdensity + float(self.known.grad @ d) - 0.5 * steepness * float(d @ d)
        return Evaluation(value, self.known.grad - steepness * d)


def test_convergence_is_linear_and_evaluations_are_counted():
    """With surrogates ten times as curved as the density, every step takes a tenth of the way."""
    density, start = Quadratic(), np.array([3.0, 1.0])
    result = find_map(density, method="em-ep", n_restarts=1, start=start, maxiter=20)
    np.testing.assert_allclose(result.position - [0.1, 0.0], 0.9**20 * (start - [0.1, 0.0]), rtol=1e-4)
    assert not result.converged
    assert result.evaluations == density.calls
    result = find_map(density, method="em-ep", n_restarts=1, start=start)
    assert result.converged
    np.testing.assert_allclose(result.position, [0.1, 0.0], atol=GRADIENT_TOLERANCE / 100.0)


def test_a_step_to_where_nothing_can_be_computed_is_shortened():
    density = Quadratic(surrogate=55.0, edge=0.0)  # steps overshoot by 0.8 of the way that is left
    result = find_map(density, method="em-ep", n_restarts=1, start=np.array([5.0, 0.3]))
    assert density.failures > 0
    assert result.evaluations == density.calls
    assert result.converged
    np.testing.assert_allclose(result.position, [0.1, 0.0], atol=1e-6)


def test_no_way_out_is_said():
    class Island(Quadratic):
        """Only the start can be computed."""

        def evaluate(self, u, carry=None, gradient=True):
            evaluation = super().evaluate(u)
            home = np.array_equal(u, [1.0, 1.0])
            return evaluation if home else Evaluation(-inf, np.zeros(2))

    result = find_map(Island(), method="em-ep", n_restarts=1, start=np.ones(2))
    np.testing.assert_array_equal(result.position, 1.0)
    assert not result.converged


# -- where they end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "evidence"),
    [(Probit(), "ep"), (Probit(), "tap"), (Logistic(), "ep"), (LabelNoise(), "ep")],
    ids=["probit", "tap", "logistic", "label noise"],
)
def test_same_optimum_as_by_gradient(likelihood, evidence):
    X, y = crabs()
    model = Model(X, y, kernel=SquaredExponential(ard=True), likelihood=likelihood, evidence=evidence)
    options: dict[str, Any] = {"n_restarts": 2, "random_state": 0}
    em, gradient = find_map(model, method="em-ep", **options), find_map(model, method="lbfgs", **options)
    assert em.converged
    assert np.abs(model.evaluate(em.position).grad).max() <= GRADIENT_TOLERANCE
    np.testing.assert_allclose(em.logdensity, gradient.logdensity, atol=1e-8)
    np.testing.assert_allclose(em.position, gradient.position, atol=1e-4)
    assert em.evaluations > gradient.evaluations  # linear convergence has its price


def test_same_result_whatever_the_number_of_threads():
    model = small_model("probit")
    one, two = (find_map(model, method="em-ep", n_jobs=n, random_state=2, n_restarts=3, maxiter=10) for n in (1, 2))
    np.testing.assert_array_equal(one.position, two.position)
    np.testing.assert_array_equal(one.restarts, two.restarts)
    assert one.evaluations == two.evaluations
    assert not one.converged


def test_the_default_is_by_gradient():
    model = small_model("probit")
    default, named = find_map(model, random_state=0), find_map(model, method="lbfgs", random_state=0)
    np.testing.assert_array_equal(default.position, named.position)
    assert default.evaluations == named.evaluations


def test_predictions_from_the_optimum():
    model = small_model("probit")
    options: dict[str, Any] = {"n_restarts": 1, "random_state": 0}
    em, gradient = (point_trace(find_map(model, method=m, **options)) for m in ("em-ep", "lbfgs"))
    p = probabilities(model, em.flat, model.X)
    np.testing.assert_allclose(p, probabilities(model, gradient.flat, model.X), atol=1e-5)
    assert np.mean((p[:, 1] > 0.5) == (model.y > 0.0)) > 0.7


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["em", "newton", None, ["em-ep"]])
def test_unknown_methods(method):
    with pytest.raises(InvalidInput, match="'method' must be one of \\['em-ep', 'lbfgs'\\]"):
        find_map(Warped(), method=method)


def test_a_target_without_expectations():
    with pytest.raises(InvalidInput, match="'ep' or 'tap'; got a Warped"):
        find_map(Warped(), method="em-ep")


@pytest.mark.parametrize(
    ("likelihood", "evidence"), [("probit", "laplace"), ("probit", "naive"), ("logistic", "lower")]
)
def test_an_evidence_without_expectations(likelihood, evidence):
    with pytest.raises(InvalidInput, match=r"with_evidence\('ep'\)"):
        find_map(small_model(likelihood, evidence), method="em-ep")


def test_a_singular_covariance():
    """A step without White noise: f of near copies is known from one another."""
    X = np.repeat(np.linspace(-1.0, 1.0, 10)[:, None], 2, axis=0)
    model = Model(X, np.sign(X[:, 0]), kernel=SquaredExponential(), likelihood=LabelNoise(0.1, "step"), evidence="ep")
    with pytest.raises(InvalidInput, match="Add a White term"):
        find_map(model, method="em-ep", random_state=0)
    assert model.expectation(np.zeros(2)).evaluation.logdensity == -inf
    assert model.expectation(np.full(2, 1e3)).surrogate is None
