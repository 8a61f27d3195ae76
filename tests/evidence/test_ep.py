"""Expectation propagation: another implementation, the textbook's loop, brute force, derivatives and corners."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from hmcgp import Model
from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import EP, TAP, Laplace, NaiveMeanField
from hmcgp.evidence.ep.double_loop import solve as double_loop
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED
from hmcgp.kernels import SquaredExponential, White
from hmcgp.likelihoods import LabelNoise, Logistic, Probit
from hmcgp.likelihoods.terms import STEP
from hmcgp.posterior.predict import probabilities
from hmcgp.priors import Beta, LogNormal
from tests.helpers import reference
from tests.helpers.checks import PROBLEMS, check_gradient, classification_problem, squared_exponential

LIKELIHOODS = [Logistic(), Probit(), LabelNoise(0.05), LabelNoise(0.05, link="step")]


def settings(likelihood):
    """Flip rate and spread for the twins."""
    if isinstance(likelihood, Probit):
        return 0.0, 1.0
    return likelihood.flip, 1.0 if likelihood.link == "probit" else 0.0


def test_matches_gpy():
    """GPy 1.13.2, inference_method=EP(epsilon=1e-13), Bernoulli likelihood (probit), RBF(3, 1.5)."""
    X, y, K = classification_problem(30, 2)
    ev = EP()(K, y, Probit())
    np.testing.assert_allclose(ev.log_z, -22.44083757681196, rtol=1e-12)
    r2 = np.sum((X[:, None] - X[None]) ** 2, axis=2)
    grad = [np.sum(ev.dK * K) / 3.0, np.sum(ev.dK * K * r2) / 1.5**3]
    np.testing.assert_allclose(grad, [-0.44982319, 0.83242217], atol=2e-7)  # printed digits, and its tolerance
    X_new = np.array([[0.3, -0.2], [1.5, 2.0]])
    K_new = squared_exponential(np.vstack([X, X_new]), 3.0, 1.5)[:30, 30:]
    mean, variance = EP()(K, y, Probit(), gradient=False).posterior.predict(K_new, np.full(2, 3.0))
    np.testing.assert_allclose(mean, [0.22874232, 1.35640215], atol=1e-7)
    np.testing.assert_allclose(variance, [0.2166425, 0.91674906], atol=1e-7)


@pytest.mark.parametrize("likelihood", [Probit(), LabelNoise(0.05), LabelNoise(0.1, "step"), LabelNoise(0.0, "step")])
@pytest.mark.parametrize("n", [2, 12, 40])
def test_all_solvers_match_the_textbook(likelihood, n):
    _, y, K = classification_problem(n, 2, seed=n)
    K += 0.5 * np.eye(n)
    log_z, G, mu, v = reference.ep_probit(K, y, *settings(likelihood))
    for provider in (EP(), EP(sweeps="sequential"), TAP()):
        ev = provider(K, y, likelihood)
        np.testing.assert_allclose(ev.log_z, log_z, rtol=1e-10)
        np.testing.assert_allclose(ev.dK, G, atol=1e-8)
        mean, variance = ev.posterior.cavity()
        np.testing.assert_allclose(mean, mu, atol=1e-8)
        np.testing.assert_allclose(variance, v, atol=1e-8)
        np.testing.assert_array_equal(ev.posterior.loo_errors(), y * mu < 0.0)


@pytest.mark.parametrize("likelihood", [Probit(), LabelNoise(0.05), LabelNoise(0.1, "step")])
def test_naive_mean_field_matches_many_small_steps(likelihood):
    _, y, K = classification_problem(15, 2, seed=3)
    x, log_z = reference.naive_mean_field(K, y, *settings(likelihood))
    ev = NaiveMeanField()(K, y, likelihood)
    np.testing.assert_allclose(ev.log_z, log_z, rtol=1e-10)
    np.testing.assert_allclose(ev.posterior.alpha, x, atol=1e-9)
    w = ev.posterior.w
    S = np.linalg.inv(np.linalg.inv(K) + np.diag(w))
    mean, variance = ev.posterior.cavity()
    np.testing.assert_allclose(1.0 / variance, 1.0 / np.diag(S) - w, rtol=1e-7)
    np.testing.assert_allclose(mean, K @ x - variance * x, atol=1e-8)


@pytest.mark.parametrize(
    ("likelihood", "log_prob"),
    [
        (Logistic(), lambda y, f: reference.logistic(y, f)[0]),
        (Probit(), lambda y, f: reference.probit(y, f)[0]),
        (LabelNoise(0.05), LabelNoise(0.05).log_prob),
    ],
    ids=["logistic", "probit", "label noise"],
)
def test_close_to_brute_force(likelihood, log_prob):
    """Ten to a hundred times closer than Laplace's approximation."""
    _, y, K = classification_problem(3, 2)
    for scale, tolerance in [(1.0, 1e-2), (0.1, 1e-4), (0.01, 3e-7)]:
        exact = reference.brute_force_log_z(scale * K, y, log_prob)
        np.testing.assert_allclose(EP()(scale * K, y, likelihood).log_z, exact, atol=tolerance)
        if isinstance(likelihood, Laplace.supports):
            assert abs(Laplace()(scale * K, y, likelihood).log_z - exact) > tolerance


def test_two_labels_behind_a_step_are_an_angle():
    """P(f_1 > 0, f_2 > 0) = 1/4 + arcsin(r)/2π, and flips mix the four cases; EP comes close to that."""
    for r, labels, tolerance in [(0.5, [1.0, 1.0], 1e-3), (-0.3, [1.0, 1.0], 1e-3), (0.5, [1.0, -1.0], 5e-3)]:
        K, y = np.array([[1.0, r], [r, 1.0]]), np.array(labels)
        same = 2.0 * (0.25 + np.arcsin(r) / (2.0 * np.pi))
        eps = 0.05
        kept, flipped = eps**2 + (1.0 - eps) ** 2, 2.0 * eps * (1.0 - eps)
        p = 0.5 * (kept * same + flipped * (1.0 - same)) if y[0] == y[1] else 0.5 * (kept * (1 - same) + flipped * same)
        np.testing.assert_allclose(EP()(K, y, LabelNoise(eps, "step")).log_z, np.log(p), atol=tolerance)


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e6])
def test_behind_a_step_only_the_sign_matters(scale):
    _, y, K = classification_problem(30, 2)
    K += 0.5 * np.eye(30)
    likelihood = LabelNoise(0.1, "step")
    one, two = EP()(K, y, likelihood), EP()(scale * K, y, likelihood)
    np.testing.assert_allclose(two.log_z, one.log_z, rtol=1e-11)
    np.testing.assert_allclose(two.dK * scale, one.dK, atol=1e-9)


def test_white_in_the_kernel_softens_a_step_to_a_probit():
    _, y, K = classification_problem(25, 2)
    step = EP()(K + np.eye(25), y, LabelNoise(0.1, "step"))
    probit = EP()(K, y, LabelNoise(0.1))
    np.testing.assert_allclose(step.log_z, probit.log_z, rtol=1e-11)
    np.testing.assert_allclose(step.dK, probit.dK, atol=1e-8)


@pytest.mark.parametrize("provider", [EP(), TAP(), NaiveMeanField()])
def test_no_flips_are_a_probit_and_half_of_them_say_nothing(provider):
    _, y, K = classification_problem(25, 2)
    np.testing.assert_allclose(provider(K, y, LabelNoise(0.0)).log_z, provider(K, y, Probit()).log_z, rtol=1e-13)
    ev = provider(K, y, LabelNoise(0.5 - 1e-9))
    np.testing.assert_allclose(ev.log_z, 25 * np.log(0.5), rtol=1e-12)
    np.testing.assert_allclose(ev.dK, 0.0, atol=1e-8)


@pytest.mark.parametrize("flip", [1e-4, 0.05, 0.3])
@pytest.mark.parametrize("link", ["probit", "step"])
@pytest.mark.parametrize("provider", [EP(), TAP(), NaiveMeanField()])
@pytest.mark.parametrize("n", [12, 40])
def test_derivative_in_the_flip_rate(flip, link, provider, n):
    _, y, K = classification_problem(n, 2, seed=n)
    K += 0.5 * np.eye(n)

    def log_z(u):  # u = log flip
        ev = provider(K, y, LabelNoise(float(np.exp(u[0])), link))
        return ev.log_z, ev.dlik * np.exp(u)

    check_gradient(log_z, np.log([flip]), rtol=1e-6, atol=1e-7)


def test_negative_sites_occur_and_are_handled():
    _, y, K = classification_problem(40, 2)
    K += 0.5 * np.eye(40)
    ev = EP()(K, y, LabelNoise(0.1))
    assert (ev.posterior.w < 0.0).any()
    np.testing.assert_allclose(ev.log_z, reference.ep_probit(K, y, 0.1)[0], rtol=1e-10)


@pytest.mark.parametrize("likelihood", [LabelNoise(1e-6), LabelNoise(0.05), LabelNoise(0.1, "step")], ids=str)
@pytest.mark.parametrize("n", [1, 2, 12, 40])
def test_the_double_loop_finds_what_sweeps_find(likelihood, n):
    """Where sweeps converge; where they cycle, see test_stress.py."""
    _, y, K = classification_problem(max(n, 2), 2, seed=n)
    K, y = K[:n, :n] + 0.5 * np.eye(n), y[:n]
    ev = EP()(K, y, likelihood)
    factorisations = {}
    for warm, start in ((True, 1.01 * ev.posterior.start), (False, y)):
        status, factorisations[warm], residual, log_z, dflip, _, G = double_loop(
            K, y, np.ones(len(y)), *likelihood.site(), start, warm, 1e-10, 600, True
        )
        assert status == CONVERGED
        assert residual <= 1e-10
        np.testing.assert_allclose(log_z, ev.log_z, rtol=1e-12)
        np.testing.assert_allclose(G, ev.dK, atol=1e-9)
        np.testing.assert_allclose(dflip, ev.dlik[0], rtol=1e-8, atol=1e-12)
    assert factorisations[True] <= factorisations[False]


def test_the_double_loop_refuses_what_is_no_covariance():
    y = np.array([1.0, -1.0, 1.0])
    for K in (np.full((3, 3), np.nan), np.diag(np.full(3, np.inf)), np.full((3, 3), 30.0) - 29.0 * np.eye(3) * 2.0):
        assert double_loop(K, y, np.ones(3), *LabelNoise(0.05).site(), y, False, 1e-10, 600, True)[0] == NOT_CONVERGED


def is_right_or_refused(provider, X, y, likelihood, variance, length_scale):
    """True where it converged, with a finite value and the right gradient; an honest refusal is False."""

    start = None

    def log_z(u):  # u = log variance, log length scale
        nonlocal start
        K = squared_exponential(X, np.exp(u[0]), np.exp(u[1]))
        soft = 0.1 * np.exp(u[0]) * np.eye(len(y)) if likelihood.site()[0] == STEP else 0.0
        ev = provider(K + soft, y, likelihood, start)
        start = ev.posterior.start  # so that differences stay on one branch where label noise has several
        Z = X / np.exp(u[1])
        r2 = np.sum((Z[:, None] - Z[None]) ** 2, axis=2)
        return ev.log_z, np.array([np.sum(ev.dK * (K + soft)), np.sum(ev.dK * K * r2)])

    u = np.log([variance, length_scale])
    try:
        value, grad = log_z(u)
        assert np.isfinite(value)
        assert value < 0.0
        assert np.isfinite(grad).all()
        # rounding in K (relative 1e-16) moves log Z by about eps * variance * |α|²; the quotient divides by 1e-5
        noise = 1e-16 * max(variance, 1.0) * len(y) / 1e-5
        check_gradient(log_z, u, rtol=1e-5, atol=1e-6 + noise)
    except (NotConverged, NotPositiveDefinite):
        return False
    return True


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("length_scale", [1e-3, 0.1, 1.0, 30.0, 1e4])
def test_survives_what_a_sampler_visits(likelihood, problem, length_scale):
    """Converges, and its gradient is right, in every corner that the priors allow."""
    X, y, _ = classification_problem(24, 2, seed=2)
    X, y = PROBLEMS[problem](X, y)
    for variance in (1e-6, 1.0, 1e3, 1e6):
        assert is_right_or_refused(EP(), X, y, likelihood, variance, length_scale), variance


@pytest.mark.parametrize("provider", [TAP(), NaiveMeanField(), EP(sweeps="sequential")], ids=str)
@pytest.mark.parametrize("likelihood", LIKELIHOODS[1:], ids=str)
@pytest.mark.parametrize("length_scale", [0.1, 1.0, 1e4])
def test_the_others_are_right_or_refuse(provider, likelihood, length_scale):
    X, y, _ = classification_problem(24, 2, seed=2)
    refused = 0
    for problem in ("separable", "opposite duplicates"):
        for variance in (1e-6, 1.0, 1e3):
            refused += not is_right_or_refused(provider, *PROBLEMS[problem](X, y), likelihood, variance, length_scale)
    assert refused == 0


@pytest.mark.parametrize("provider", [EP(), TAP()], ids=str)
def test_rounding_does_not_choose_between_solutions(provider):
    """Without a start, label noise under a wide prior ended in either of two solutions, 6 nats apart."""
    X, y = PROBLEMS["separable"](*classification_problem(24, 2, seed=2)[:2])
    K = squared_exponential(X, 1.0, 1e4)
    values = [provider(v * K, y, LabelNoise(0.05)).log_z for v in 1e3 * np.exp(np.linspace(-1e-3, 1e-3, 17))]
    np.testing.assert_allclose(values, values[0], atol=2e-3)  # half of the change of log variance


@pytest.mark.parametrize("provider", [EP(), EP(sweeps="sequential"), TAP(), NaiveMeanField()], ids=str)
def test_what_is_no_covariance_is_a_typed_error(provider):
    y = np.array([1.0, -1.0, 1.0])
    for K in (np.full((3, 3), np.nan), np.diag(np.full(3, np.inf)), np.full((3, 3), 30.0) - 29.0 * np.eye(3) * 2.0):
        with pytest.raises((NotPositiveDefinite, NotConverged)):
            provider(K, y, LabelNoise(0.05))
        with pytest.raises((NotPositiveDefinite, NotConverged)):
            provider(K, y, Probit())


@pytest.mark.parametrize("likelihood", [Probit(), Logistic(), LabelNoise(0.05)], ids=str)
def test_a_useless_start_costs_time_only(likelihood):
    _, y, K = classification_problem(30, 2)
    cold = EP()(K, y, likelihood)
    rng = np.random.default_rng(0)
    for start in (np.full(60, np.nan), np.full(60, np.inf), rng.normal(size=60) * 1e5, -cold.posterior.start):
        np.testing.assert_allclose(EP()(K, y, likelihood, start).log_z, cold.log_z, rtol=1e-12)


@pytest.mark.parametrize("likelihood", [Probit(), Logistic(), LabelNoise()], ids=str)
def test_there_and_back_along_a_trajectory(likelihood):
    X, y, _ = classification_problem(60, 3)
    model = Model(X, y, likelihood=likelihood, evidence="ep")
    rng = np.random.default_rng(0)
    path = 0.3 + np.outer(np.arange(12), 0.1 * rng.normal(size=model.n_dim))
    there, carry = [], None
    for u in path:
        there.append(model.evaluate(u, carry))
        carry = there[-1].carry
    sweeps = [e.solver_iterations for e in there[2:]]
    assert np.mean(sweeps) <= 3.5, sweeps
    for before, u in zip(reversed(there), reversed(path), strict=True):
        back = model.evaluate(u, carry)
        carry = back.carry
        np.testing.assert_allclose(back.logdensity, before.logdensity, atol=1e-9)
        np.testing.assert_allclose(back.grad, before.grad, atol=1e-8)


def test_flip_rate_is_inferred_in_a_model():
    X, y, _ = classification_problem(30, 2)
    kernel = SquaredExponential(LogNormal(0, 1), 1.0) + White(0.5)
    for likelihood in (LabelNoise(), LabelNoise(Beta(2, 8, upper=0.5), link="step"), "label_noise"):
        model = Model(X, y, kernel=kernel, likelihood=likelihood)
        assert isinstance(model.evidence, EP)
        assert model.names == ["left.variance", "flip"] or model.names[-1] == "flip"
        check_gradient(model.logdensity_and_grad, np.array([0.3, -1.0]), rtol=1e-5, atol=1e-6)
    draws = np.array([[1.0, 0.05], [1.0, 0.4]])
    per_draw = [probabilities(model, draws[s : s + 1], X[:5])[:, 1] for s in range(2)]
    assert (np.abs(per_draw[1] - 0.5) < np.abs(per_draw[0] - 0.5)).all()  # each draw with its own flip rate
    np.testing.assert_allclose(probabilities(model, draws, X[:5])[:, 1], np.mean(per_draw, axis=0), rtol=1e-7)


def test_pairs_that_do_not_fit_are_refused_with_those_that_do():
    X, y, _ = classification_problem(10, 2)
    for likelihood, evidence, fitting in [
        ("logistic", "tap", "evidence='laplace' or evidence='ep' or evidence='lower'"),
        ("label_noise", "laplace", "evidence='ep' or evidence='tap' or evidence='naive'"),
        ("gaussian", "ep", "evidence='exact'"),
    ]:
        with pytest.raises(InvalidInput, match=f"cannot integrate .*: take {fitting}"):
            Model(X, y, likelihood=likelihood, evidence=evidence)


@pytest.mark.parametrize("provider", [EP, TAP, NaiveMeanField])
@pytest.mark.parametrize("bad", [{"tol": 0.0}, {"tol": "a"}, {"max_iter": 0}, {"max_iter": 2.5}])
def test_settings_are_checked(provider, bad):
    with pytest.raises(InvalidInput, match=f"of {provider.__name__} must"):
        provider(**bad)


def test_unknown_sweeps_are_refused():
    with pytest.raises(InvalidInput, match="'sweeps' of EP must be"):
        EP(sweeps="random")


def test_only_the_lower_triangle_is_read_and_memory_is_shared():
    _, y, K = classification_problem(20, 2)
    for provider in (EP(), TAP(), NaiveMeanField()):
        for likelihood in (Probit(), LabelNoise(0.2)):
            one, two = provider(np.tril(K), y, likelihood), provider(K, y, likelihood)
            assert one.log_z == two.log_z
            np.testing.assert_array_equal(one.dK, two.dK)
            with pytest.raises(InvalidInput, match="gradient=False"):
                two.posterior.predict(K, np.diag(K))


def test_cavities_of_ep_and_of_laplace_resemble_each_other():
    _, y, K = classification_problem(20, 2)
    laplace = Laplace()(K, y, Probit(), gradient=False).posterior.cavity()
    assert np.corrcoef(laplace[0], EP()(K, y, Probit()).posterior.cavity()[0])[0, 1] > 0.98


@pytest.mark.parametrize("scale", [1e16, 1e20])
def test_a_naive_mean_field_that_rounding_eats_is_no_answer(scale):
    """Contradicting labels: terms of 1e16 nats and more cancel, and log Z was a whole number of half nats."""
    with pytest.raises((NotConverged, NotPositiveDefinite)):  # whichever the processor meets first
        NaiveMeanField()(scale * np.ones((2, 2)), np.array([1.0, -1.0]), Probit())


def test_starts_agree_where_contradictions_are_vast_or_the_answer_is_refused():
    """Copies with contradicting labels under a prior variance of 1e12: the residual that rounding leaves counts."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(16, 4)).round(1)[rng.integers(16, size=32)]
        y = np.where(rng.random(32) < 0.5, 1.0, -1.0)
        K = 1e12 * (X @ X.T) * ((X * [1.0, 1e-4, 1e-9, 1e-12]) @ X.T)
        K = 0.5 * (K + K.T)
        values = []
        for _ in range(8):
            with contextlib.suppress(NotConverged):
                start = NaiveMeanField()(1.01 * K, y, Probit()).posterior.start
                start *= 1.0 + 0.01 * rng.normal(size=start.size)
                values.append(NaiveMeanField()(K, y, Probit(), start).log_z)
        assert not values or np.ptp(values) < 0.02  # it was 0.07, and 28 nats under a prior variance of 1e28
