"""Convergence statistics and Pareto smoothing: arviz's numbers, computed without it."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from hmcgp.numerics import chain_statistics, pareto
from hmcgp.runtime import arviz_compat


def chains(rng, n_chains, n_draws, rho):
    """Autoregressive chains, started from their stationary distribution."""
    x = rng.normal(size=(n_chains, n_draws))
    x[:, 0] /= np.sqrt(1.0 - rho * rho)
    for t in range(1, n_draws):
        x[:, t] += rho * x[:, t - 1]
    return x


def of_arviz(statistic, x):
    """A statistic by the installed arviz, whichever it is."""
    name, _, method = statistic.partition("_")
    options = {"method": method or "rank", **({"prob": chain_statistics.TAIL} if method == "tail" else {})}
    if arviz_compat.major() >= 1:
        import arviz_stats.base

        stats = arviz_stats.base.array_stats
        return np.asarray(stats.bfmi(x) if name == "bfmi" else getattr(stats, name)(x, **options))
    az = arviz_compat.import_arviz()
    return np.asarray(az.bfmi(x) if name == "bfmi" else getattr(az, name)(x, **options))


@pytest.mark.parametrize("statistic", ["rhat", "ess_bulk", "ess_mean", "ess_tail", "mcse_mean", "bfmi"])
def test_statistics_are_those_of_arviz(statistic):
    """Odd and even lengths, negative and slow autocorrelation, one chain and several, heavy tails."""
    rng = np.random.default_rng(0)
    for n_draws in (4, 5, 7, 12, 51, 333):
        for rho in (-0.9, 0.0, 0.95):
            for n_chains in (1, 2, 5):
                x = np.exp(2.0 * chains(rng, n_chains, n_draws, rho))
                if statistic == "rhat" and n_chains == 1:
                    assert np.isnan(chain_statistics.rhat(x))
                    continue
                found = getattr(chain_statistics, statistic)(x)
                # halves of two draws of equal ranks have no variance, and R-hat is what rounding makes of 1/0
                if statistic != "rhat" or n_draws > 7:
                    np.testing.assert_allclose(found, of_arviz(statistic, x), rtol=1e-9, err_msg=f"{x.shape}, {rho}")


def test_equal_draws_have_their_mean_rank():
    x = np.round(chains(np.random.default_rng(1), 4, 200, 0.5))
    for statistic in ("rhat", "ess_bulk"):
        np.testing.assert_allclose(getattr(chain_statistics, statistic)(x), of_arviz(statistic, x), rtol=1e-9)


def test_statistics_of_few_constant_and_infinite_draws():
    x = np.random.default_rng(2).normal(size=(2, 100))
    assert np.isnan(chain_statistics.ess_bulk(x[:, :3]))
    assert chain_statistics.ess_mean(np.ones((2, 100))) == 200.0
    assert chain_statistics.mcse_mean(np.ones((2, 100))) == 0.0
    x[0, 0] = np.inf
    assert np.isnan(chain_statistics.rhat(x))


@pytest.mark.parametrize(("n_draws", "r_eff"), [(25, 1.0), (101, 0.3), (1000, 2.0)])
def test_smoothed_weights_are_those_of_arviz(n_draws, r_eff):
    rng = np.random.default_rng(n_draws)
    ratios = np.log(rng.pareto([[0.7], [1.5], [10.0]], size=(3, n_draws)) + 1.0)
    log_w, k = pareto.smooth(ratios, r_eff)
    near: dict[str, Any]
    near_w: dict[str, Any]
    if arviz_compat.major() >= 1:
        import arviz_stats.base

        theirs, their_k = arviz_stats.base.array_stats.psislw(-ratios, r_eff=r_eff)
        if n_draws == 25:  # a tail of 5, to which arviz 1 fits nothing
            assert np.isnan(their_k).all()
            return
        near, near_w = (
            {"atol": 0.11},
            {"atol": 0.08},
        )  # its tail has other draws: the fewer there are, the more it matters
    else:
        theirs, their_k = arviz_compat.import_arviz().psislw(ratios, reff=r_eff)
        near, near_w = {"rtol": 1e-9}, {"atol": 1e-9}
    np.testing.assert_allclose(k, their_k, **near)
    theirs = np.asarray(theirs)
    np.testing.assert_allclose(log_w, theirs - np.logaddexp.reduce(theirs, axis=1, keepdims=True), **near_w)


def test_a_fit_does_not_import_arviz():
    """Its import would take longer than this fit, with its weights and its warnings."""
    code = (
        "import sys, warnings, hmcgp\n"
        "warnings.simplefilter('ignore')\n"
        "X, y = hmcgp.datasets.load_crabs(return_X_y=True)\n"
        "gp = hmcgp.GPClassifier(draws=20, tune=20, chains=2, random_state=0, progressbar=False).fit(X[::8], y[::8])\n"
        "gp.predict_proba(X[:3]); gp.summary(); sys.exit(any(m.startswith('arviz') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
