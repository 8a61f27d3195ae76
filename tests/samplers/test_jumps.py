"""Modes: found, weighed, and visited in proportion."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from hmcgp import GPRegressor, datasets, find_modes
from hmcgp.errors import InterruptedWarning, InvalidInput
from hmcgp.samplers import HMC, Evaluation, JumpingHMC, Modes, jumps, sample
from hmcgp.samplers.integrators import init
from hmcgp.samplers.jumps import Mixture
from tests.helpers.densities import Gaussian, HalfSpace, correlated_gaussian

CENTRES, SHARES = np.array([[-6.0, 0.0], [6.0, 2.0], [0.0, 12.0]]), np.array([0.2, 0.5, 0.3])
PRECISIONS = np.linalg.inv([[[1.0, 0.6], [0.6, 1.0]], [[0.25, 0.0], [0.0, 4.0]], [[2.0, -0.5], [-0.5, 0.5]]])


class Hills(Gaussian):
    """Three Gaussian hills that no trajectory goes between: 40 nats and more deep."""

    def __init__(self):
        super().__init__(np.array([0.0, 4.0]), 36.0 * np.eye(2))

    def evaluate(self, u, carry=None, gradient=True):
        r = u - CENTRES
        slopes = -np.einsum("kij,kj->ki", PRECISIONS, r)
        log_p = np.log(SHARES) + 0.5 * np.linalg.slogdet(PRECISIONS)[1] + 0.5 * np.einsum("ki,ki->k", r, slopes)
        total = logsumexp(log_p)
        return Evaluation(float(total), np.exp(log_p - total) @ slopes)


def nearest(u):
    return np.argmin(np.linalg.norm(u[..., None, :] - CENTRES, axis=-1), axis=-1)


@pytest.fixture(scope="module")
def modes():
    return find_modes(Hills(), random_state=0)


def test_modes_are_found_and_weighed(modes):
    order = nearest(modes.positions)
    assert sorted(order) == [0, 1, 2]
    assert (np.diff(modes.logdensity) < 0.0).all()
    np.testing.assert_allclose(modes.positions, CENTRES[order], atol=1e-5)
    np.testing.assert_allclose(modes.covariances, np.linalg.inv(PRECISIONS)[order], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(modes.share, SHARES[order], rtol=1e-6)
    np.testing.assert_allclose(modes.log_mass, np.log(2.0 * np.pi * SHARES[order]), atol=1e-6)
    assert modes.found.sum() == 50
    assert modes.names == ["x[0]", "x[1]"]


def test_one_hill_is_one_mode():
    found = find_modes(correlated_gaussian(), n_restarts=7, random_state=1)
    assert found.found.tolist() == [7]
    np.testing.assert_allclose(found.covariances[0], correlated_gaussian().covariance, rtol=1e-6)


def test_slopes_are_no_modes():
    class Slope(HalfSpace):
        def evaluate(self, u, carry=None, gradient=True):
            evaluation = super().evaluate(u)
            return evaluation._replace(logdensity=min(evaluation.logdensity, -float(u.sum())), grad=-np.ones(2))

    with pytest.raises(InvalidInput, match="none of 3 searches"):
        find_modes(Slope(edge=-1.0), n_restarts=3, random_state=0)
    with pytest.raises(InvalidInput, match="'n_restarts'"):
        find_modes(Hills(), n_restarts=0)


def test_mixture_is_a_density_and_draws_from_it(modes):
    one = Modes(np.ones((1, 2)), np.ones((1, 2)), np.zeros(1), np.linalg.inv(PRECISIONS[:1]), np.ones(1), ["a", "b"])
    theirs = stats.multivariate_t(np.ones(2), one.covariances[0], df=jumps.DEGREES)
    for u in np.random.default_rng(0).normal(size=(5, 2)):
        np.testing.assert_allclose(Mixture(one).log_density(u), theirs.logpdf(u), rtol=1e-12)
    mixture = Mixture(modes)
    a, b = np.linspace(-25.0, 25.0, 161), np.linspace(-20.0, 30.0, 161)
    total = sum(np.exp(mixture.log_density(np.array(u))) for u in product(a, b)) * (a[1] - a[0]) * (b[1] - b[0])
    assert total == pytest.approx(1.0, abs=0.01)  # the rest lies outside
    rng = np.random.default_rng(1)
    draws = np.array([mixture.draw(rng) for _ in range(4000)])
    # E[1/q over a box] under q is the area of the box
    inside = (np.abs(draws - CENTRES[1]) < 1.0).all(axis=1)
    ratio = np.where(inside, [np.exp(-mixture.log_density(u)) for u in draws], 0.0)
    assert abs(ratio.mean() - 4.0) < 4.0 * ratio.std() / np.sqrt(len(ratio))


def shares_off(sampler, seed=0):
    """How many standard errors (batch means) each hill's share is off, with 4 x 1000 draws."""
    trace = sample(Hills(), sampler, draws=1000, tune=60, chains=4, random_state=seed, progressbar=False, n_jobs=1)
    here = nearest(trace.unconstrained)[..., None] == np.arange(3)  # (chains, draws, hills)
    batches = here.reshape(-1, 50, 3).mean(axis=1)
    return (batches.mean(axis=0) - SHARES) / np.maximum(batches.std(axis=0, ddof=1) / np.sqrt(len(batches)), 1e-12)


def bad_guess(modes):
    """Shares and widths that are wrong: they may cost jumps, never bias."""
    return modes._replace(logdensity=modes.logdensity[::-1].copy(), covariances=1.7 * modes.covariances)


@pytest.mark.parametrize("change", [pytest.param(lambda modes: modes, marks=pytest.mark.slow), bad_guess])
def test_modes_are_visited_in_proportion(modes, change):
    assert np.abs(shares_off(JumpingHMC(modes=change(modes)))).max() < 4.0


def test_without_jumps_they_are_not():
    assert np.abs(shares_off(HMC())).max() > 4.0


def test_check_catches_a_jump_that_forgets_its_density(modes, monkeypatch):
    monkeypatch.setattr(Mixture, "log_density", lambda self, u: 0.0)
    assert np.abs(shares_off(JumpingHMC(modes=modes))).max() > 4.0


def test_the_metric_is_that_of_a_hill_not_of_their_distances(modes):
    options: dict[str, Any] = {"draws": 5, "tune": 300, "chains": 1, "random_state": 0, "progressbar": False}
    (learnt,) = sample(Hills(), JumpingHMC(modes=modes), **options).inv_metric
    average = np.einsum("k,kij->ij", SHARES, np.linalg.inv(PRECISIONS))
    assert (np.abs(np.log(np.diag(learnt) / np.diag(average))) < np.log(1.5)).all()
    (first,) = sample(Hills(), JumpingHMC(modes=modes, step_size=0.5), **options).inv_metric
    np.testing.assert_allclose(first, average, rtol=1e-5)
    (given,) = sample(Hills(), JumpingHMC(modes=modes, metric=np.ones(2)), **options).inv_metric
    np.testing.assert_array_equal(given, np.ones(2))


def test_statistics_of_one_draw(modes):
    """With steps so small that only jumps move the chain."""
    density = Hills()
    sampler = JumpingHMC(modes=modes, step_size=1e-9, n_steps=2)
    step = sampler.build_step(density, sampler.init_tuning(density, np.random.default_rng(0), None, 0))
    rng, state, jumped = np.random.default_rng(0), init(density, np.array([30.0, 30.0])), []
    for _ in range(50):
        after, info = step(rng, state)
        assert info.jumped == (np.abs(after.position - state.position).max() > 1e-6)
        assert info.n_steps == 3
        assert info.lp == after.logdensity == density.evaluate(after.position).logdensity
        np.testing.assert_array_equal(after.grad, density.evaluate(after.position).grad)
        state = after
        jumped.append(info.jumped)
    assert jumped[0]  # from far out, every mode is better
    assert 0.5 < np.mean(jumped) < 1.0


def test_jumps_to_where_nothing_can_be_computed_are_counted_and_rejected():
    plain = HalfSpace(edge=0.0)
    wide = Modes(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros(1), 4.0 * np.eye(2)[None], np.ones(1), plain.names)
    trace = sample(plain, JumpingHMC(modes=wide), draws=500, tune=100, chains=2, random_state=0, progressbar=False)
    assert (trace.unconstrained[:, :, 0] >= 0.0).all()
    assert trace.stats["not_positive_definite"].sum() > 400  # half of the jumps
    assert 0.1 < trace.stats["jumped"].mean() < 0.5


def test_an_interrupted_run_goes_on(modes, tmp_path):
    class Stopping(Hills):
        count, last = 0, None

        def evaluate(self, u, carry=None, gradient=True):
            self.count += 1
            if self.count == self.last:
                raise KeyboardInterrupt
            return super().evaluate(u, carry)

    options: dict[str, Any] = {"draws": 50, "tune": 60, "chains": 2, "random_state": 3, "progressbar": False}
    whole, stopping = sample(counted := Stopping(), JumpingHMC(modes=modes), n_jobs=1, **options), Stopping()
    stopping.last = int(0.8 * counted.count)  # in the second chain, however many evaluations this processor takes
    path = tmp_path / "run.nc"
    with pytest.warns(InterruptedWarning, match="interrupted"):
        sample(stopping, JumpingHMC(modes=modes), checkpoint=path, n_jobs=1, **options)
    again = sample(Hills(), JumpingHMC(modes=modes), checkpoint=path, **options)
    np.testing.assert_array_equal(again.draws, whole.draws)
    np.testing.assert_array_equal(again.stats["jumped"], whole.stats["jumped"])
    with pytest.raises(InvalidInput, match="of another run"):
        sample(Hills(), JumpingHMC(modes=bad_guess(modes)), checkpoint=path, **options)


def test_bad_settings_are_refused(modes):
    with pytest.raises(InvalidInput, match="find_modes"):
        JumpingHMC(modes=CENTRES)
    with pytest.raises(InvalidInput, match="2 parameters; the density has 3"):
        sample(correlated_gaussian(), JumpingHMC(modes=modes), progressbar=False)
    with pytest.raises(InvalidInput, match=r"JumpingHMC\(modes=find_modes"):
        sample(Hills(), "jumps", progressbar=False)
    with pytest.raises(InvalidInput, match="'step_size'"):
        JumpingHMC(modes=modes, step_size=-1.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the run is short
def test_estimator_jumps():
    X, y = datasets.load_motorcycle(return_X_y=True)
    gp = GPRegressor(sampler="jumps", draws=40, tune=20, chains=2, random_state=0, progressbar=False)
    gp.fit(X[::3], y[::3])
    assert gp.trace_.sampler == "jumps"
    assert gp.trace_.stats["jumped"].mean() > 0.2
    assert np.isfinite(gp.predict(X)).all()
    assert "jumped" in gp.to_arviz()["sample_stats"]


def test_estimator_without_a_seed_goes_on(tmp_path):
    X, y = datasets.load_motorcycle(return_X_y=True)
    settings = {"sampler": "jumps", "tune": 10, "chains": 1, "progressbar": False, "checkpoint": tmp_path / "run.nc"}
    for draws in (10, 15):
        with pytest.warns(UserWarning, match="effective|R-hat|chain|jumps"):
            gp = GPRegressor(draws=draws, **settings).fit(X[::6], y[::6])
    assert gp.trace_.draws.shape[1] == 15


def test_estimator_looks_at_its_settings_before_the_search(monkeypatch):
    monkeypatch.setattr("hmcgp.estimators.base.find_modes", None)
    with pytest.raises(InvalidInput, match="draws"):
        GPRegressor(sampler="jumps", draws=0).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5])
