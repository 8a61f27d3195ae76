"""One suite that every evidence provider of several classes must pass, with a matrix per class."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import MultinomialEP, SoftmaxLaplace
from hmcgp.likelihoods import MultinomialProbit, Softmax
from tests.helpers.checks import CLASS_SIZES, check_gradient, random_symmetric, several_classes, squared_exponential

PAIRS = [(SoftmaxLaplace(), Softmax()), (MultinomialEP(), MultinomialProbit())]

pair = pytest.mark.parametrize(("solve", "likelihood"), PAIRS, ids=["softmax", "multinomial"])
sizes = pytest.mark.parametrize(("n", "n_classes"), CLASS_SIZES)
shared = pytest.mark.parametrize("shared", [True, False], ids=["shared", "per class"])


@sizes
@shared
@pair
def test_dK_matches_central_differences(solve, likelihood, n, n_classes, shared):
    _, y, K = several_classes(n, n_classes, seed=n)
    K = K[0] if shared else K
    dK = solve(K, y, likelihood).dK
    assert dK.shape == K.shape
    rng, h = np.random.default_rng(1), 1e-5
    for _ in range(5):
        V = random_symmetric(rng, n) if shared else np.stack([random_symmetric(rng, n) for _ in range(n_classes)])
        up1, down1, up2, down2 = (solve(K + c * h * V, y, likelihood).log_z for c in (1.0, -1.0, 2.0, -2.0))
        numeric = (8.0 * (up1 - down1) - (up2 - down2)) / (12.0 * h)
        np.testing.assert_allclose(np.sum(dK * V), numeric, rtol=1e-7, atol=1e-8)


@sizes
@pair
def test_one_shared_matrix_is_that_matrix_for_every_class(solve, likelihood, n, n_classes):
    _, y, K = several_classes(n, n_classes)
    one, each = solve(K[0], y, likelihood), solve(np.stack([K[0]] * n_classes), y, likelihood)
    np.testing.assert_allclose(one.log_z, each.log_z, rtol=1e-12)
    np.testing.assert_allclose(one.dK, each.dK.sum(axis=0), atol=1e-9)


@pair
def test_dK_is_symmetric_to_the_last_bit(solve, likelihood):
    _, y, K = several_classes(70, 4)
    dK = solve(K, y, likelihood).dK
    np.testing.assert_array_equal(dK, dK.transpose(0, 2, 1))


@pair
def test_inputs_are_not_changed(solve, likelihood):
    _, y, K = several_classes(20, 3)
    K0, y0, start = K.copy(), y.copy(), np.full_like(solve(K, y, likelihood).posterior.start, 0.3)
    solve(K, y, likelihood, start)
    np.testing.assert_array_equal(K, K0)
    np.testing.assert_array_equal(y, y0)
    np.testing.assert_array_equal(start, 0.3)


@pair
def test_only_the_lower_triangle_is_read(solve, likelihood):
    _, y, K = several_classes(20, 3)
    broken = K + np.triu(np.full((20, 20), np.nan), 1)
    assert solve(broken, y, likelihood).log_z == solve(K, y, likelihood).log_z
    one, two = (solve(matrix, y, likelihood, gradient=False).posterior.cavity() for matrix in (K, broken))
    np.testing.assert_array_equal(one[0], two[0])


@pair
def test_order_of_rows_and_of_classes_does_not_matter(solve, likelihood):
    _, y, K = several_classes(30, 3)
    rows, classes = np.random.default_rng(5).permutation(30), np.array([2, 0, 1])
    one = solve(K, y, likelihood)
    two = solve(K[np.ix_(classes, rows, rows)], np.argsort(classes)[y.astype(int)][rows].astype(float), likelihood)
    np.testing.assert_allclose(two.log_z, one.log_z, rtol=1e-12)
    np.testing.assert_allclose(two.dK, one.dK[np.ix_(classes, rows, rows)], atol=1e-9)


@shared
@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
@pair
def test_cold_and_warm_starts_agree(solve, likelihood, shared, scale):
    _, y, K = several_classes(40, 4)
    K = K[0] if shared else K
    start = solve(scale * K + 0.05 * np.eye(40), y, likelihood).posterior.start
    cold, warm = solve(K, y, likelihood), solve(K, y, likelihood, start)
    np.testing.assert_allclose(warm.log_z, cold.log_z, rtol=1e-11)
    np.testing.assert_allclose(warm.dK, cold.dK, atol=1e-9)
    assert warm.residual <= 1e-10
    again = solve(K, y, likelihood, cold.posterior.start)
    np.testing.assert_allclose(again.dK, cold.dK, atol=1e-10)


@pytest.mark.parametrize("start", [1e3, -1e3, "random"])
@pair
def test_an_absurd_start_is_survived(solve, likelihood, start):
    _, y, K = several_classes(40, 4)
    cold = solve(K, y, likelihood)
    size = cold.posterior.start.size
    value = 300.0 * np.random.default_rng(0).normal(size=size) if start == "random" else np.full(size, start)
    np.testing.assert_allclose(solve(K, y, likelihood, value).log_z, cold.log_z, rtol=1e-11)


@pair
def test_a_budget_of_one_iteration_is_not_enough(solve, likelihood):
    _, y, K = several_classes(20, 3)
    with pytest.raises(NotConverged, match=r"(decrement|residual) .* after 1 factorisation"):
        type(solve)(max_iter=1)(K, y, likelihood)


@pair
def test_what_is_no_covariance_is_refused(solve, likelihood):
    _, y, K = several_classes(10, 3)
    with pytest.raises(NotPositiveDefinite, match=type(solve).__name__):
        solve(-100.0 * K, y, likelihood)
    with pytest.raises(NotPositiveDefinite):
        solve(np.full((10, 10), np.nan), y, likelihood)


@pair
def test_without_the_gradient_the_value_is_the_same_and_with_it_there_are_no_predictions(solve, likelihood):
    _, y, K = several_classes(25, 3)
    ev = solve(K, y, likelihood)
    assert solve(K, y, likelihood, gradient=False).log_z == ev.log_z
    with pytest.raises(InvalidInput, match="gradient=False to predict"):
        ev.posterior.predict(K, np.einsum("cii->ci", K))


@pytest.mark.parametrize("kind", ["overlapping", "separable", "duplicates", "all different"])
@pytest.mark.parametrize("length_scale", [1e-3, 0.3, 3.0, 1e4])
@pytest.mark.parametrize("variance", [1e-6, 1.0, 1e3, 1e8])
@pair
def test_survives_what_a_sampler_visits(solve, likelihood, kind, length_scale, variance):
    """Converges, and its gradient is right, in every corner that the priors allow."""
    X, y, _ = several_classes(24, 4, seed=2)
    if kind == "separable":
        y = np.searchsorted(np.quantile(X[:, 0], [0.25, 0.5, 0.75]), X[:, 0]).astype(float)
    elif kind == "duplicates":
        variance = min(variance, 1e6)  # contradictions leave |α| of order 1: Kα is rounded to 1e-8 beyond
        X, y = np.vstack([X, X]), np.concatenate([y, (y + 1.0) % 4.0])
    elif kind == "all different":
        X, y = X[:8], np.arange(8.0)

    def log_z(u):  # u = log variance, log length scale
        K = squared_exponential(X, np.exp(u[0]), np.exp(u[1]))
        ev = solve(K, y, likelihood)
        Z = X / np.exp(u[1])
        r2 = np.sum((Z[:, None] - Z[None]) ** 2, axis=2)
        return ev.log_z, np.array([np.sum(ev.dK * K), np.sum(ev.dK * K * r2)])

    u = np.log([variance, length_scale])
    value, grad = log_z(u)
    assert np.isfinite(value)
    assert np.isfinite(grad).all()
    # rounding in f = Kα, about eps * variance * |α|, moves log|B| of all rows; the difference quotient divides by 1e-5
    noise = 1e-16 * max(variance, 1.0) * len(y) / 1e-5
    check_gradient(log_z, u, rtol=1e-5, atol=1e-6 + noise)


@pair
def test_leaving_out_a_row_is_close_to_refitting_without_it(solve, likelihood):
    X, y, _ = several_classes(40, 3, seed=4)
    K = squared_exponential(X, 3.0, 1.0)
    quick = likelihood.log_average(y, *solve(K, y, likelihood, gradient=False).posterior.cavity())
    for i in range(0, 40, 5):
        rest = np.arange(40) != i
        posterior = solve(K[np.ix_(rest, rest)], y[rest], type(likelihood)(3), gradient=False).posterior
        slow = likelihood.log_average(y[[i]], *posterior.predict(K[rest][:, [i]], K[[i], [i]]))
        np.testing.assert_allclose(np.exp(quick[i]), np.exp(slow[0]), atol=0.02)
