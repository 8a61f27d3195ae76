"""The maximum of the posterior."""

from __future__ import annotations

import threading
from math import inf

import numpy as np
import pytest

from hmcgp import Model, datasets
from hmcgp.errors import InvalidInput
from hmcgp.kernels import SquaredExponential
from hmcgp.optimize import find_map, find_modes, maximum
from hmcgp.optimize.maximum import GRADIENT_TOLERANCE
from hmcgp.priors import InverseGamma
from hmcgp.runtime import blas_threads
from hmcgp.samplers import Evaluation
from hmcgp.samplers.ascent import Optimum, hessian
from hmcgp.samplers.integrators import init
from hmcgp.samplers.start import DRAWN, STRETCHED, find_start, first_start
from tests.helpers.densities import Gaussian, HalfSpace, LogGamma, Warped, correlated_gaussian


class TwoHills(Gaussian):
    """log(0.3 N(u; -4, 1) + 0.7 N(u; 4, 1)), up to a constant."""

    def __init__(self):
        super().__init__(np.zeros(1), 9.0 * np.eye(1))

    def evaluate(self, u, carry=None, gradient=True):
        a, b = np.log(0.3) - 0.5 * (u[0] + 4) ** 2, np.log(0.7) - 0.5 * (u[0] - 4) ** 2
        value = np.logaddexp(a, b)
        grad = -np.exp(a - value) * (u[0] + 4) - np.exp(b - value) * (u[0] - 4)
        return Evaluation(float(value), np.array([grad]))


@pytest.mark.parametrize(
    ("density", "optimum"),
    [
        (correlated_gaussian(), [1.0, -2.0, 0.5]),
        (LogGamma((0.7, 3.0)), np.log([0.7, 3.0])),  # of log x: exp(u) = shape, not the mode of x
        (Warped(), [0.0, 0.0]),
    ],
)
def test_finds_the_maximum_in_unconstrained_coordinates(density, optimum):
    result = find_map(density, random_state=0)
    np.testing.assert_allclose(result.position, optimum, atol=1e-4)
    np.testing.assert_allclose(result.parameters, density.constrain(np.asarray(optimum)), atol=3e-4)
    assert result.logdensity == density.evaluate(result.position).logdensity
    assert result.converged
    assert result.names == density.names
    assert result.restarts.shape == (5,)
    np.testing.assert_allclose(result.restarts, result.logdensity, atol=1e-6)
    assert 10 < result.evaluations - DRAWN - STRETCHED < 500


def test_restarts_find_the_higher_hill():
    result = find_map(TwoHills(), n_restarts=10, random_state=1)
    np.testing.assert_allclose(result.position, 4.0, atol=1e-3)
    assert result.logdensity == result.restarts.max()
    assert set(np.round(result.restarts, 3)) == {round(np.log(0.3), 3), round(np.log(0.7), 3)}
    lower = find_map(TwoHills(), n_restarts=1, start=np.array([-3.0]))
    np.testing.assert_allclose(lower.position, -4.0, atol=1e-3)


def test_same_result_whatever_the_number_of_threads():
    one, three = (find_map(Warped(), n_jobs=n, random_state=2) for n in (1, 3))
    np.testing.assert_array_equal(one.position, three.position)
    np.testing.assert_array_equal(one.restarts, three.restarts)
    more = find_map(Warped(), n_restarts=7, random_state=2)
    np.testing.assert_array_equal(more.restarts[:5], one.restarts)


class Cliff(HalfSpace):
    """A hill at 0.1 beside a region that cannot be computed, approached at speed."""

    def __init__(self):
        super().__init__(edge=0.0)
        self.failures = 0

    def evaluate(self, u, carry=None, gradient=True):
        evaluation = super().evaluate(u)
        if evaluation.logdensity == -inf:
            self.failures += 1
            return evaluation
        r = u - np.array([0.1, 0.0])
        return evaluation._replace(logdensity=-50.0 * float(r @ r), grad=-100.0 * r)


def test_line_search_survives_minus_infinity():
    density = Cliff()
    for start in ([0.3, 5.0], [8.0, -3.0], [0.0, 0.0]):
        result = find_map(density, n_restarts=1, start=np.array(start))
        np.testing.assert_allclose(result.position, [0.1, 0.0], atol=1e-5)
        assert result.converged

    class Edge(Cliff):
        """No maximum: the density rises up to the edge of what can be computed."""

        def evaluate(self, u, carry=None, gradient=True):
            evaluation = HalfSpace.evaluate(self, u)
            failed = evaluation.logdensity == -inf
            self.failures += failed
            return evaluation if failed else evaluation._replace(
                logdensity=-float(u[0] + u[1] ** 2), grad=np.array([-1.0, -2.0 * u[1]])
            )  # fmt: skip

    density = Edge()
    result = find_map(density, n_restarts=1, start=np.array([3.0, 2.0]))
    assert density.failures > 0  # the line search has been there
    assert 0.0 <= result.position[0] < 0.5
    assert np.isfinite(result.logdensity)
    assert not result.converged


def test_carry_is_handed_on():
    class Counting(Warped):
        carries: tuple = ()

        def evaluate(self, u, carry=None, gradient=True):
            self.carries += (carry,)
            return super().evaluate(u)._replace(carry=len(self.carries))

    density = Counting()
    result = find_map(density, n_restarts=1, random_state=0)
    n_candidates = DRAWN + STRETCHED
    assert set(density.carries[:n_candidates]) == {None}
    assert None not in density.carries[n_candidates:]
    assert isinstance(result.carry, int)
    assert result.evaluations == len(density.carries)


def test_budget_is_kept_and_reported():
    result = find_map(
        Gaussian(np.zeros(20), np.diag(10.0 ** np.linspace(-3, 3, 20))), maxiter=2, n_restarts=1, random_state=0
    )
    assert not result.converged
    assert result.evaluations <= DRAWN + STRETCHED + 41


class Rounded(Gaussian):
    """Values without their last digits, as over a covariance that is nearly singular; gradients are better."""

    def evaluate(self, u, carry=None, gradient=True):
        evaluation = super().evaluate(u)
        return evaluation._replace(logdensity=500.0 + float(np.round(evaluation.logdensity, 7)))


def test_newton_finishes_what_rounding_hides(monkeypatch):
    density = Rounded(np.arange(4.0), np.diag([1e-3, 1e-2, 0.1, 1.0]))
    result = find_map(density, random_state=0)
    assert result.converged
    np.testing.assert_allclose(result.position, density.mean, atol=1e-8)
    monkeypatch.setattr(maximum, "_polish", lambda density, optimum: optimum)
    without = find_map(density, random_state=0)
    assert not without.converged
    assert 0 < result.evaluations - without.evaluations <= 2 * 4 + 3


def test_the_best_of_searches_that_rounding_ranks_is_polished():
    """Ends at one optimum, ranked by the rounding of their values: the highest need not be the nearest."""
    density = Rounded(np.arange(4.0), 0.9 + np.eye(4))
    result = find_map(density, random_state=0)
    assert np.max(np.abs(density.evaluate(result.position).grad)) < 1e-11


def test_newton_does_not_climb_a_saddle():
    """-x² + y² has no maximum: a search that ended beside its saddle is no optimum."""

    class Saddle(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            return Evaluation(float(u[1] ** 2 - u[0] ** 2), np.array([-2.0 * u[0], 2.0 * u[1]]))

    density = Saddle(np.zeros(2), np.eye(2))
    beside = Optimum(init(density, np.array([1e-3, 1e-3])), 1, stalled=True)
    found = maximum._polish(density, beside)
    assert found.state is beside.state
    assert found.evaluations == 5


def test_hessian():
    density = correlated_gaussian()
    np.testing.assert_allclose(hessian(density, init(density, np.ones(3))), -density.precision, atol=1e-9)
    assert np.isnan(hessian(HalfSpace(edge=0.0), init(HalfSpace(edge=0.0), np.array([1e-3, 0.0])))).any()


def test_tolerance_is_what_converged_means():
    density = correlated_gaussian()
    result = find_map(density, random_state=3)
    assert np.abs(density.evaluate(result.position).grad).max() <= GRADIENT_TOLERANCE


def test_error_in_a_restart_is_raised_and_stops_the_others():
    running = threading.Event()

    class Failing(Warped):
        def evaluate(self, u, carry=None, gradient=True):
            if running.is_set():
                raise ZeroDivisionError("oh no")
            running.set()
            return super().evaluate(u)

    with pytest.raises(ZeroDivisionError, match="oh no"):
        find_map(Failing(), random_state=0, n_jobs=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_restarts": 0}, "'n_restarts'"),
        ({"maxiter": 0}, "'maxiter'"),
        ({"n_restarts": 1.5}, "'n_restarts'"),
        ({"start": np.zeros(3)}, "'start' must have shape"),
        ({"n_jobs": 0}, "'n_jobs'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        find_map(Warped(), **options)


def test_no_start():
    with pytest.raises(InvalidInput, match="-inf at all of 100"):
        find_map(HalfSpace(edge=1e6), random_state=0)
    with pytest.raises(InvalidInput, match="-inf at 'start'"):
        find_map(HalfSpace(), start=np.array([-1.0, 0.0]))


@pytest.mark.parametrize("search", [find_map, find_modes])
def test_searches_evaluate_with_one_blas_thread(search):
    """Sums inside a factorisation have another order with more threads, and the draws that follow other bits."""

    class Watching(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            assert blas_threads._limit._users, "evaluated outside the limit"
            return super().evaluate(u, carry)

    search(Watching(np.zeros(2), np.eye(2)), n_restarts=2, random_state=0, n_jobs=1)
    assert not blas_threads._limit._users


def crabs_with_a_tiny_variance_in_the_prior(n_rows=200):
    """Labels have probability one half each at most prior draws: a maximum about a hundred nats below the other."""
    X, y = datasets.load_crabs(return_X_y=True)
    X, y = np.asarray(X, dtype=float), np.asarray(y)
    rows = np.random.default_rng(0).permutation(len(y))[:n_rows]
    X = ((X - X.mean(axis=0)) / X.std(axis=0))[rows]
    kernel = SquaredExponential(variance=InverseGamma(1.0, 1e-3))
    labels = np.where(y[rows] == np.unique(y)[0], -1.0, 1.0)
    return Model(X, labels, kernel=kernel, likelihood="probit", evidence="ep")


def test_the_mode_is_found_where_most_of_the_prior_is_flat():
    model = crabs_with_a_tiny_variance_in_the_prior()
    flat = find_map(model, n_restarts=1, start=model.unconstrain({"variance": 1e-3, "length_scale": 1.0}))
    assert flat.converged  # a maximum, of a hundred nats less
    for seed in (0, 4, 6, 7):  # from five draws of the prior these ended in the flat region
        found = find_map(model, random_state=seed, n_jobs=1)
        assert found.converged
        assert found.logdensity > flat.logdensity + 90.0


def test_chains_do_not_start_where_the_density_is_hopeless():
    model = crabs_with_a_tiny_variance_in_the_prior()
    flat = 200 * np.log(0.5)  # log Z where the variance is tiny
    starts = [find_start(model, rng) for rng in np.random.default_rng(0).spawn(12)]
    first = [first_start(model, rng) for rng in np.random.default_rng(0).spawn(12)]
    assert sum(state.logdensity < flat for state in first) > 6  # the first draws of the same streams
    assert sum(state.logdensity > flat + 10.0 for state in starts) >= 11
    spread = np.std([state.position for state in starts], axis=0)
    mode = find_map(model, random_state=0, n_jobs=1)
    sd = np.sqrt(np.diag(np.linalg.inv(-hessian(model, init(model, mode.position)))))
    assert (spread > sd).all()  # wider apart than the posterior


def test_a_result_below_a_position_that_was_seen_is_not_converged():
    """A search by steps that lead down ends at a lower maximum: the highest candidate is climbed too."""
    density = TwoHills()
    low = Optimum(init(density, np.array([-4.0])), 1)
    seen = [init(density, np.array([3.5]))]
    result = maximum._best(density, [low], seen)
    np.testing.assert_allclose(result.position, 4.0, atol=1e-3)
    assert result.converged
    ghost = [seen[0]._replace(logdensity=10.0)]  # of a density that is not what it was
    assert not maximum._best(density, [low], ghost).converged


def test_a_density_without_parameters_is_its_own_maximum():
    density = Gaussian(np.zeros(0), np.zeros((0, 0)))
    result = find_map(density)
    assert (result.position.shape, result.converged, result.evaluations) == ((0,), True, 1)
    with pytest.raises(InvalidInput, match="no parameters, and so no modes"):
        find_modes(density)
