"""Joint draws of hyperparameters and latent values: the target is exact, by identities and by quadrature."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hmcgp import JointSample, Model, sample_jointly
from hmcgp.errors import InterruptedWarning, InvalidInput
from hmcgp.joint.density import Cloud, JointDensity
from hmcgp.joint.elliptical import turn
from hmcgp.joint.whitening import JITTER, factor_prior, whiten
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import LabelNoise, Logistic, Probit
from hmcgp.priors import LogNormal
from hmcgp.reporting.convergence import ess
from tests.helpers.exact_posterior import exact_means

X = np.array([[-0.9], [0.1], [0.8]])
Y = np.array([-1.0, 1.0, 1.0])
X_NEW = np.array([[-0.5], [0.4], [3.0]])
QUIET: dict[str, Any] = {"progressbar": False, "n_jobs": 1}


def two_hyperparameters(likelihood="logistic", **settings):
    kernel = SquaredExponential(LogNormal(0.5, 0.8), LogNormal(-0.2, 0.6))
    return Model(X, Y, kernel=kernel, likelihood=likelihood, **settings)


def around(mean, sd):
    return np.linspace(mean - 4.5 * sd, mean + 4.5 * sd, 17)


def random_places(model, seed=0):
    rng = np.random.default_rng(seed)
    return [(model.initial(rng), rng.normal(size=len(model.y))) for _ in range(5)]


@pytest.mark.parametrize("likelihood", [Logistic(weights=(1.0, 2.5, 0.5)), Probit(), LabelNoise()], ids=str)
def test_white_coordinates_have_the_density_of_hyperparameters_and_latent_values(likelihood):
    model = two_hyperparameters(likelihood)
    density = JointDensity(model)
    for u, f in random_places(model):
        K = model.kernel_at(model.constrain(u))(model.X)
        K += JITTER * np.diag(np.diag(K))
        likely = model.likelihood_at(model.constrain(u))
        wanted = (
            model.log_prior(u)[0]
            + likely.row_weights(3) @ likely.log_prob(model.y, f)
            + stats.multivariate_normal(np.zeros(3), K).logpdf(f)
            + 1.5 * np.log(2.0 * np.pi)
        )
        found = density.evaluate(np.concatenate([u, f]))
        assert found.logdensity == pytest.approx(wanted, rel=1e-9, abs=1e-8)
        point: Any = found.carry
        again = density.at(point.place, point.nu[None])
        np.testing.assert_allclose(again.f[0], f, atol=1e-8)
        assert again.log_ratio[0] == pytest.approx(point.log_ratio, abs=1e-8)


@pytest.mark.parametrize("w", [np.array([0.3, 2.0, 0.0]), np.array([0.5, -0.1, 0.2])])
def test_whitening_is_the_gaussian_of_the_sites(w):
    K, eta = SquaredExponential(1.3, 0.7)(X), np.array([-0.4, 1.0, 0.2])
    white = whiten(factor_prior(K), eta, w)
    S = np.linalg.inv(np.linalg.inv(K) + np.diag(w))
    A = white.offset(np.eye(3)).T
    np.testing.assert_allclose(A @ A.T, S, atol=1e-8)
    np.testing.assert_allclose(white.mean, S @ eta, atol=1e-8)
    assert white.log_jacobian == pytest.approx(0.5 * np.linalg.slogdet(S)[1], abs=1e-8)
    assert white.log_z == pytest.approx(0.5 * eta @ S @ eta - 0.5 * np.linalg.slogdet(np.eye(3) + K @ np.diag(w))[1])


def test_improper_sites_have_no_whitening():
    assert whiten(factor_prior(np.eye(2)), np.zeros(2), np.array([1.0, -1.5])) is None
    assert factor_prior(np.array([[1.0, 2.0], [2.0, 1.0]])) is None


def test_elliptical_slices_leave_a_gaussian_times_a_gaussian_invariant():
    rng, x, draws = np.random.default_rng(4), 0.3, []
    for _ in range(4000):  # N(0, 1) N(x; 1.5, 0.5²) = N(1.2, 0.2)
        other = rng.standard_normal()

        def log_weight(c, s, x=x, other=other):
            return -2.0 * (c * x + s * other - 1.5) ** 2

        c, s, value = turn(rng, -2.0 * (x - 1.5) ** 2, log_weight)
        x = c * x + s * other
        assert value == -2.0 * (x - 1.5) ** 2
        draws.append(x)
    n = ess(np.array(draws)[None])[0]
    assert abs(np.mean(draws) - 1.2) < 4.0 * np.sqrt(0.2 / n)
    assert np.var(draws) == pytest.approx(0.2, rel=4.0 * np.sqrt(2.0 / n))


# -- against quadrature ----------------------------------------------------------------------------------------------


def scores(joint, exact):
    """Differences from the exact means, in Monte Carlo standard errors."""
    u, f = joint.trace.unconstrained, joint.latent
    columns = [*np.moveaxis(u, 2, 0), *np.moveaxis(f, 2, 0)]
    wanted = np.concatenate([exact.u, exact.f])
    return np.array([(c.mean() - w) * np.sqrt(ess(c)[0]) / c.std() for c, w in zip(columns, wanted, strict=True)])


@pytest.fixture(scope="module")
def exact():
    return exact_means(two_hyperparameters(), [around(0.5, 0.8), around(-0.2, 0.6)], X_NEW)


@pytest.fixture(scope="module")
def joint():
    return sample_jointly(two_hyperparameters(), draws=600, tune=200, chains=4, random_state=1, **QUIET)


def test_draws_have_the_exact_means(joint, exact):
    assert np.abs(scores(joint, exact)).max() < 4.0
    assert joint.latent.shape == (4, 600, 3)
    assert joint.trace.names == two_hyperparameters().names


def test_probabilities_are_exact(joint, exact):
    p = joint.predict_proba(X_NEW)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(p[:, 1], exact.probability, atol=0.02)  # 4 standard errors of 600 effective draws
    np.testing.assert_array_equal(joint.predict_proba(X_NEW, n_jobs=2), p)


def test_without_its_jacobian_the_move_of_hyperparameters_is_caught(monkeypatch, exact):
    right = vars(Cloud)["log_density"].fget
    monkeypatch.setattr(Cloud, "log_density", property(lambda c: right(c) - c.place.white.log_jacobian))
    wrong = sample_jointly(two_hyperparameters(), draws=300, tune=150, chains=2, random_state=1, **QUIET)
    assert np.abs(scores(wrong, exact)).max() > 6.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "evidence", "n_vectors"),
    [("logistic", "ep", 1), ("probit", "laplace", 4), (LabelNoise(0.1), "ep", 16), (LabelNoise(), "tap", 16)],
    ids=str,
)
def test_every_likelihood_and_guide_has_the_exact_means(likelihood, evidence, n_vectors):
    if isinstance(likelihood, LabelNoise) and likelihood.flip is None:
        kernel = SquaredExponential(4.0, 0.8)
        model = Model(X, Y, kernel=kernel, likelihood=likelihood, evidence=evidence)
        axes = [np.linspace(-25.0, 25.0, 201)]
    else:
        model, axes = two_hyperparameters(likelihood, evidence=evidence), [around(0.5, 0.8), around(-0.2, 0.6)]
    exact = exact_means(model, axes, X_NEW, n_nodes=24)
    joint = sample_jointly(model, draws=800, tune=200, random_state=2, n_vectors=n_vectors, **QUIET)
    assert np.abs(scores(joint, exact)).max() < 4.0
    np.testing.assert_allclose(joint.predict_proba(X_NEW)[:, 1], exact.probability, atol=0.02)


# -- the run ---------------------------------------------------------------------------------------------------------


def test_draws_depend_on_the_seed_alone():
    runs = [
        sample_jointly(two_hyperparameters(), draws=10, tune=20, chains=3, random_state=s, n_jobs=j, progressbar=False)
        for s, j in ((5, 1), (5, 2), (6, 1))
    ]
    np.testing.assert_array_equal(runs[0].latent, runs[1].latent)
    np.testing.assert_array_equal(runs[0].trace.draws, runs[1].trace.draws)
    assert not np.array_equal(runs[0].latent, runs[2].latent)


@pytest.fixture
def default_sigint():
    """Python's own handler of SIGINT, whatever this process has inherited."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_keeps_the_draws(monkeypatch):
    evaluate, count = Model.evaluate, []

    def interrupted(self, u, carry=None, gradient=True):
        count.append(0)
        if len(count) == 1500:
            signal.raise_signal(signal.SIGINT)
        return evaluate(self, u, carry, gradient)

    monkeypatch.setattr(Model, "evaluate", interrupted)
    with pytest.warns(InterruptedWarning, match="draws were kept"):
        found = sample_jointly(two_hyperparameters(), draws=1000, tune=10, chains=1, random_state=1, **QUIET)
    assert isinstance(found, JointSample)
    assert 0 < found.trace.n_draws < 1000
    assert found.trace.interrupted
    assert found.latent.shape[1] == found.trace.n_draws
    assert len(count) < 1510


def test_arviz_gets_the_latent_values(joint):
    tree = joint.to_arviz()
    np.testing.assert_array_equal(np.asarray(tree["posterior"]["f"]), joint.latent)
    assert set(tree["posterior"].data_vars) == {"variance", "length_scale", "f"}
    assert joint.latent_ess().shape == (3,)
    assert "3 latent values" in repr(joint)


def test_wrong_arguments_are_refused(joint):
    numbers = Model(X, np.array([0.1, 0.4, -0.5]), likelihood="gaussian")
    with pytest.raises(InvalidInput, match="two classes"):
        sample_jointly(numbers, **QUIET)
    with pytest.raises(InvalidInput, match="must be a Model"):
        sample_jointly("crabs", **QUIET)
    with pytest.raises(InvalidInput, match="'tune'"):
        sample_jointly(two_hyperparameters(), tune=0, **QUIET)
    with pytest.raises(InvalidInput, match=r"shape \(m, 1\)"):
        joint.predict_proba(np.zeros((2, 3)))
