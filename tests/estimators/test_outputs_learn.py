"""An output with a gap learns from one that it is correlated with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hmcgp import GPRegressor
from hmcgp.kernels import SquaredExponential
from scripts.pictures import outputs as picture_outputs
from tests.helpers.outputs import quick

pytestmark = [
    pytest.mark.usefixtures("clean_pyplot"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
]


def two_outputs(seed, correlation=-0.95, n=40):
    """Two correlated functions, the second with a gap of half its range and more noise."""
    rng = np.random.default_rng(seed)
    x = np.linspace(-3.0, 3.0, n)[:, None]
    root = np.linalg.cholesky(SquaredExponential(1.0, 0.7)(x) + 1e-9 * np.eye(n))
    g = root @ rng.normal(size=(n, 2))
    truth = np.column_stack([g[:, 0], correlation * g[:, 0] + np.sqrt(1.0 - correlation**2) * g[:, 1]])
    Y = truth + np.array([0.05, 0.15]) * rng.normal(size=(n, 2))
    Y[(x[:, 0] > -1.5) & (x[:, 0] < 1.5), 1] = np.nan
    return x, Y, truth


def test_a_sparse_output_learns_from_the_other_at_the_most_probable_point():
    ratios, correlations = [], []
    for seed in range(6):
        x, Y_all, truth = two_outputs(seed)
        together = quick(outputs="coregional", sampler="map").fit(x, Y_all)
        seen = ~np.isnan(Y_all[:, 1])
        alone = quick(sampler="map").fit(x[seen], Y_all[seen, 1])
        both = (together.predict(x)[:, 1], alone.predict(x))
        error, error_alone = (np.sqrt(np.mean((mean - truth[:, 1]) ** 2)) for mean in both)
        ratios.append(error / error_alone)
        correlations.append(together.output_covariance(correlation=True)[0, 0, 1])
    assert np.median(ratios) < 0.75
    assert sum(ratio < 1.0 for ratio in ratios) >= 5
    assert np.median(correlations) == pytest.approx(-0.95, abs=0.12)


@pytest.mark.slow
def test_sampling_recovers_a_correlation_without_divergences():
    x, Y_all, truth = two_outputs(4)
    settings: dict[str, Any] = {
        "draws": 500,
        "tune": 500,
        "chains": 2,
        "n_jobs": 1,
        "progressbar": False,
        "random_state": 1,
    }
    gp = GPRegressor(outputs="coregional", **settings).fit(x, Y_all)
    assert not gp.trace_.stats["diverging"].any()
    assert gp.summary()["r_hat"].max() < 1.03
    low, high = np.quantile(gp.output_covariance(correlation=True)[:, 0, 1], [0.025, 0.975])
    assert low < -0.95 < high < 0.0
    noise = gp.summary()["mean"][["noise[0]", "noise[1]"]].to_numpy() * gp._targets.unit**2
    assert 0.05**2 / 3.0 < noise[0] < 3.0 * 0.05**2
    assert 0.15**2 / 3.0 < noise[1] < 3.0 * 0.15**2
    seen, gap = ~np.isnan(Y_all[:, 1]), np.isnan(Y_all[:, 1])
    alone = GPRegressor(**settings).fit(x[seen], Y_all[seen, 1])
    together = gp.log_predictive_density(x[gap], np.column_stack([np.full(gap.sum(), np.nan), truth[gap, 1]]))
    assert together.mean() > alone.log_predictive_density(x[gap], truth[gap, 1]).mean() + 0.5
    shared = GPRegressor(**settings).fit(x, truth + 0.1 * np.random.default_rng(0).normal(size=truth.shape))
    assert not shared.trace_.stats["diverging"].any()


def test_the_picture_of_a_gap():
    ours = picture_outputs.two_outputs(sampler="map")
    figure = picture_outputs.draw(ours)
    assert [ax.get_ylabel() for ax in figure.axes] == ["first", "second", "second"]
    gap = ours.held_out.notna()
    assert (ours.Y["second"].isna() == gap).all()
    error, alone = (
        np.sqrt(np.mean((mean - ours.held_out[gap]) ** 2))
        for mean in (ours.together.predict(ours.X[gap])[:, 1], ours.alone.predict(ours.X[gap]))
    )
    assert error < 0.5 * alone
