"""Several outputs, below the estimator: columns of targets that share C, and stacked ones with a noise each."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from hmcgp import Model
from hmcgp.errors import InvalidInput, NotPositiveDefinite
from hmcgp.evidence import Exact, Iterative
from hmcgp.kernels import Constant, Linear, Matern, Periodic, SquaredExponential
from hmcgp.kernels.coregional import Coregional, coregionalised
from hmcgp.likelihoods import Gaussian, OutputNoise, VaryingNoise
from hmcgp.posterior import mixture, predict
from hmcgp.posterior.leave_one_out import log_predictive_per_draw
from hmcgp.priors import LogNormal
from tests.helpers.checks import check_gradient, random_symmetric, squared_exponential

RNG = np.random.default_rng(6)
X = RNG.normal(size=(12, 2))
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1], np.cos(X.sum(axis=1))]) + 0.2 * RNG.normal(size=(12, 3))
K = squared_exponential(X, 1.5, 1.1)
STACKED = np.column_stack([np.repeat(X, 3, axis=0), np.tile(np.arange(3.0), 12)])
NAMES = ("u", "v", "w")
SOLVERS = [Exact(), Iterative(tol=1e-8, probes=4)]


@pytest.mark.parametrize("likelihood", [Gaussian(0.2), Gaussian(0.1, known=RNG.uniform(size=12))], ids=["one", "known"])
def test_evidence_of_columns_is_the_sum_of_normal_densities(likelihood):
    C = K + np.diag(likelihood.row_noise(12))
    expected = sum(multivariate_normal(np.zeros(12), C).logpdf(y) for y in Y.T)
    np.testing.assert_allclose(Exact()(K, Y, likelihood).log_z, expected, rtol=1e-12)
    np.testing.assert_allclose(Exact()(K, np.asfortranarray(Y), likelihood).log_z, expected, rtol=1e-12)


@pytest.mark.parametrize("provider", SOLVERS, ids=["cholesky", "iterative"])
@pytest.mark.parametrize("likelihood", [Gaussian(0.2), VaryingNoise(0.2, 0.3).for_rows(X)], ids=["one", "varying"])
def test_columns_are_the_sum_of_single_outputs(provider, likelihood):
    together, alone = provider(K, Y, likelihood), [provider(K, y.copy(), likelihood) for y in Y.T]
    np.testing.assert_allclose(together.log_z, sum(one.log_z for one in alone), rtol=1e-9)
    np.testing.assert_allclose(together.dK, sum(one.dK for one in alone), atol=1e-7)
    np.testing.assert_allclose(together.dlik, sum(one.dlik for one in alone), atol=1e-6)
    np.testing.assert_array_equal(together.dK, together.dK.T)
    X_new = RNG.normal(size=(5, 2))
    cross, new = squared_exponential(np.vstack([X, X_new]), 1.5, 1.1)[:12, 12:], squared_exponential(X_new, 1.5, 1.1)
    together, alone = (
        provider(K, Y, likelihood, gradient=False).posterior,
        [provider(K, y.copy(), likelihood, gradient=False).posterior for y in Y.T],
    )
    mean, variance = together.predict(cross, np.diag(new))
    assert (mean.shape, variance.shape) == ((5, 3), (5,))
    for a, one in enumerate(alone):
        np.testing.assert_allclose(mean[:, a], one.predict(cross, np.diag(new))[0], atol=1e-7)
        np.testing.assert_allclose(variance, one.predict(cross, np.diag(new))[1], atol=1e-7)
        np.testing.assert_allclose(together.predict_jointly(cross, new)[0][:, a], mean[:, a], atol=1e-12)
        np.testing.assert_allclose(together.f[:, a], one.f, atol=1e-7)


@pytest.mark.parametrize("n", [3, 12])
def test_dK_of_columns_matches_central_differences(n):
    rng, C = np.random.default_rng(n), K[:n, :n] + 0.1 * np.eye(n)
    y = np.ascontiguousarray(Y[:n])
    dK = Exact()(C, y, Gaussian(0.3)).dK
    for _ in range(5):
        V, h = random_symmetric(rng, n), 1e-5
        up, down = (Exact()(C + s * h * V, y, Gaussian(0.3)).log_z for s in (1.0, -1.0))
        np.testing.assert_allclose(np.sum(dK * V), (up - down) / (2.0 * h), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "model",
    [
        Model(X, Y, kernel=SquaredExponential(ard=True), likelihood="gaussian"),
        Model(X, Y, likelihood=VaryingNoise()),
        Model(STACKED, Y.ravel(), kernel=coregionalised(Matern(), 2, NAMES), likelihood=OutputNoise(NAMES)),
        Model(
            STACKED,
            Y.ravel(),
            kernel=coregionalised(Matern() + Linear(), 2, NAMES),
            likelihood=OutputNoise(NAMES, 0.1, known=RNG.uniform(size=36)),
        ),
    ],
    ids=["columns", "varying noise", "coregional", "noise fixed"],
)
def test_gradient_of_the_log_density(model):
    rng = np.random.default_rng(1)
    for _ in range(3):
        check_gradient(model.logdensity_and_grad, 0.5 * rng.normal(size=model.n_dim), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("evidence", ["exact", "iterative"])
def test_evaluations_of_columns_go_on_from_each_other(evidence):
    model = Model(X, Y, likelihood="gaussian", evidence=evidence)
    u, carry = np.zeros(model.n_dim), None
    for _ in range(3):
        u = u + 0.1
        evaluation = model.evaluate(u, carry)
        carry = evaluation.carry
    assert evaluation.logdensity == pytest.approx(model.evaluate(u).logdensity, rel=1e-9)


def test_coregional_evidence_is_the_density_of_a_kronecker_product():
    model = Model(
        STACKED, Y.ravel(), kernel=coregionalised(SquaredExponential(), 2, NAMES), likelihood=OutputNoise(NAMES)
    )
    scale, mixing, noise = [1.0, 0.7, 1.3], [0.4, -0.8, 0.2], [0.1, 0.2, 0.3]
    B = Coregional(3, scale, mixing).covariance()
    C = np.kron(squared_exponential(X, 1.0, 0.9), B) + np.diag(np.tile(noise, 12))
    theta = {"length_scale": 0.9, "scale": scale, "mixing": mixing, "noise": noise}
    expected = multivariate_normal(np.zeros(36), C).logpdf(Y.ravel())
    np.testing.assert_allclose(model.log_evidence(theta)[0], expected, rtol=1e-11)


def test_coregional_with_unit_b_is_independent():
    shared = Model(X, Y, kernel=SquaredExponential(1.0), likelihood="gaussian")
    stacked = Model(
        STACKED, Y.ravel(), kernel=coregionalised(SquaredExponential(), 2, NAMES), likelihood=OutputNoise(NAMES)
    )
    one = np.array([[0.8, 0.15]])
    two = np.array([[0.8, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.15, 0.15, 0.15]])
    np.testing.assert_allclose(stacked.log_evidence(two[0])[0], shared.log_evidence(one[0])[0], rtol=1e-11)
    moments = predict.observed_moments(shared, one, X), predict.observed_moments(stacked, two, STACKED)
    np.testing.assert_allclose(np.reshape(moments[1], (2, 1, 12, 3)), moments[0], rtol=1e-9)
    left_out = log_predictive_per_draw(stacked, two, row_groups=np.repeat(np.arange(12), 3))
    np.testing.assert_allclose(left_out, log_predictive_per_draw(shared, one), rtol=1e-9)


def test_columns_of_a_singular_matrix_are_refused():
    with pytest.raises(NotPositiveDefinite, match="not positive definite"):
        Exact()(np.ones((12, 12)), Y, Gaussian(1e-15))
    with pytest.raises(InvalidInput, match="one value per row"):
        Model(X, Y[:-1], likelihood="gaussian")
    with pytest.raises(InvalidInput, match="one value per row"):
        Model(X, np.sign(Y), likelihood="logistic")


def test_noise_of_outputs():
    noise = OutputNoise(NAMES, [0.1, 0.2, 0.3]).for_rows(STACKED)
    np.testing.assert_array_equal(noise.row_noise(36), np.tile([0.1, 0.2, 0.3], 12))
    np.testing.assert_array_equal(noise.noise_at(STACKED[[4, 0]]), [0.2, 0.1])
    np.testing.assert_allclose(noise.pull_back(np.arange(36.0)), [3.0 * 66 + 12 * a for a in range(3)])
    same = OutputNoise(NAMES, 0.1).for_rows(STACKED)
    np.testing.assert_allclose(same.pull_back(np.arange(36.0)), [630.0])
    assert OutputNoise(list(NAMES), 0.1) == OutputNoise(NAMES, 0.1)
    assert hash(OutputNoise(NAMES, [0.1, 0.2, 0.3])) == hash(OutputNoise(NAMES, (0.1, 0.2, 0.3)))
    for bad in (STACKED + 0.5, STACKED + 1.0, STACKED - 1.0):
        with pytest.raises(InvalidInput, match="number of the output, 0 to 2"):
            OutputNoise(NAMES, 0.1).for_rows(bad)
    with pytest.raises(InvalidInput, match=r"use for_rows\(X\)"):
        noise.row_noise(5)
    with pytest.raises(InvalidInput, match="2 known variances of the noise for 36 rows"):
        OutputNoise(NAMES, known=[1.0, 2.0]).for_rows(STACKED)
    with pytest.raises(InvalidInput, match=r"a value of -1.0 in row 1"):
        OutputNoise(NAMES, known=[1.0, -1.0])


@pytest.mark.parametrize(
    ("kernel", "free"),
    [
        (Matern(), ["length_scale"]),
        (Matern(variance=LogNormal(0.0, 1.0)), ["variance", "length_scale"]),
        (Matern(variance=2.0), ["length_scale"]),
        (Matern().on(0) + Constant(), ["length_scale", "variance"]),
        (Matern() * Periodic(), ["matern.length_scale", "periodic.length_scale", "period"]),
        (0.5 * Matern().on("x1"), ["length_scale"]),
    ],
    ids=str,
)
def test_b_carries_the_variances_that_were_left_open(kernel, free):
    model = Model(STACKED, Y.ravel(), kernel=coregionalised(kernel, 2, NAMES), likelihood=OutputNoise(NAMES, 0.1))
    assert sorted(p.name for p in model.parameters) == sorted([*free, "scale", "mixing"])


def test_density_of_vectors_with_missing_parts():
    rng = np.random.default_rng(8)
    A = rng.normal(size=(4, 3, 3))
    covariance, mean, y = A @ A.transpose(0, 2, 1) + np.eye(3), rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    y[1, 0] = y[2, 1] = y[2, 2] = np.nan
    found = mixture.joint_log_density(y, mean, covariance)
    for i in range(4):
        seen = ~np.isnan(y[i])
        expected = multivariate_normal(mean[i, seen], covariance[i][np.ix_(seen, seen)]).logpdf(y[i, seen])
        assert found[i] == pytest.approx(expected, rel=1e-12)
