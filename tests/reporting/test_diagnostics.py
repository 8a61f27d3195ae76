"""Diagnostics: arviz's numbers in one table, and findings that name cause and remedy."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from hmcgp.errors import ApproximationWarning, InvalidInput
from hmcgp.reporting.diagnostics import COLUMNS, bfmi, check, summary, warn
from hmcgp.reporting.multimodality import levels, two_sides
from hmcgp.runtime import arviz_compat
from hmcgp.samplers.trace import STAT_DTYPE, Trace

NAMES = ["variance", "length_scale[FL]", "length_scale[RW]"]


def make_trace(u, *, sampler="hmc", tune=50, **stats):
    """Build a trace of log-normal parameters from u, (chains, draws, 3); statistics are healthy unless given."""
    chains, draws, n_dim = u.shape
    columns = {name: np.zeros((chains, draws), STAT_DTYPE[name]) for name in STAT_DTYPE.names}
    columns["acceptance_rate"] += 0.9
    columns["energy"] += np.random.default_rng(3).normal(size=(chains, draws))  # white, so BFMI is about 2
    columns |= stats
    return Trace(
        draws=np.exp(u),
        unconstrained=u,
        stats=columns,
        names=NAMES,
        sampler=sampler,
        sampling_time=1.0,
        interrupted=False,
        warmup_draws=np.ones((chains, tune, n_dim)),
        warmup_unconstrained=np.zeros((chains, tune, n_dim)),
        warmup_stats={name: np.zeros((chains, tune), STAT_DTYPE[name]) for name in STAT_DTYPE.names},
        inv_metric=np.ones((chains, n_dim)),
    )


def white(chains=4, draws=500, seed=0):
    return np.random.default_rng(seed).normal(size=(chains, draws, 3))


def slow(rho, chains=4, draws=500, seed=1):
    """Autoregression with unit variance: the ESS is about n (1 - rho) / (1 + rho)."""
    e = white(chains, draws, seed)
    u = e.copy()
    for t in range(1, draws):
        u[:, t] = rho * u[:, t - 1] + np.sqrt(1 - rho**2) * e[:, t]
    return u


def kinds(trace):
    return [finding.kind for finding in check(trace)]


def test_summary_agrees_with_numpy_and_with_arviz_on_its_own_container():
    trace = make_trace(slow(0.3))
    table = summary(trace)
    assert list(table.columns) == COLUMNS
    assert list(table.index) == NAMES
    pooled = trace.draws.reshape(-1, 3)
    np.testing.assert_allclose(table["mean"], pooled.mean(axis=0))
    np.testing.assert_allclose(table["sd"], pooled.std(axis=0, ddof=1))
    np.testing.assert_allclose(table[["q5", "median", "q95"]].T, np.quantile(pooled, [0.05, 0.5, 0.95], axis=0))

    az = arviz_compat.import_arviz()
    data = {name: trace.draws[:, :, j] for j, name in enumerate(NAMES)}
    tree = az.from_dict({"posterior": data}) if arviz_compat.major() >= 1 else az.from_dict(posterior=data)
    reference = {
        "r_hat": az.rhat(tree, method="rank"),
        "ess_bulk": az.ess(tree, method="bulk"),
        "ess_tail": az.ess(tree, method="tail", prob=(0.05, 0.95)),
        "mcse_mean": az.mcse(tree, method="mean"),
    }
    for column, found in reference.items():
        found = found["posterior"] if "posterior" in getattr(found, "children", {}) else found  # noqa: PLW2901
        np.testing.assert_allclose(table[column], [float(found[name]) for name in NAMES], err_msg=column)


def test_bulk_and_tail_are_not_swapped():
    """A chain whose spread, not its centre, drifts slowly: good in the bulk, bad in the tails."""
    u = white() * np.exp(1.5 * slow(0.995, seed=2))
    table = summary(make_trace(u))
    assert (table["ess_bulk"] > 3 * table["ess_tail"]).all()


def test_summary_selects_parameters():
    trace = make_trace(white())
    assert list(summary(trace, "length_scale").index) == NAMES[1:]
    assert list(summary(trace, ["length_scale[RW]", "variance"]).index) == ["variance", "length_scale[RW]"]
    with pytest.raises(InvalidInput, match=r"got \['scale'\].*length_scale\[FL\]"):
        summary(trace, ["variance", "scale"])


@pytest.mark.parametrize(("chains", "draws"), [(1, 200), (1, 4), (2, 3), (4, 1), (2, 0)])
def test_short_and_single_chains_are_nan_and_quiet(chains, draws, caplog):
    trace = make_trace(white(chains, draws))
    with caplog.at_level(logging.INFO):
        table = summary(trace)  # warnings are errors in this suite
        values = bfmi(trace)
    assert caplog.records == []
    assert table.shape == (3, len(COLUMNS))
    assert table["r_hat"].isna().all()
    assert values.shape == (chains,)
    enough = draws >= 4
    assert table["ess_bulk"].notna().all() == enough
    assert np.isfinite(values).all() == enough
    assert table["mean"].notna().all() == (draws > 0)
    assert "r_hat" not in kinds(trace)


def test_bfmi_is_the_ratio_of_its_definition():
    energy = np.cumsum(np.random.default_rng(5).normal(size=(4, 500)), axis=1)
    expected = np.square(np.diff(energy, axis=1)).mean(axis=1) / energy.var(axis=1, ddof=1)
    np.testing.assert_allclose(bfmi(make_trace(white(), energy=energy)), expected)


def test_a_healthy_run_has_no_findings_and_no_warning():
    trace = make_trace(white())
    assert check(trace) == []
    assert warn(trace) == []


def test_chains_that_disagree():
    u = white()
    u[2, :, 1] += 1.0
    u[3, :, 0] += 0.5
    (finding,) = [f for f in check(make_trace(u)) if f.kind == "r_hat"]
    value = summary(make_trace(u))["r_hat"]["length_scale[FL]"]
    assert value > 1.05
    for part in (f"{value:.3f} for 'length_scale[FL]'", "2 of 3", "tune=50, draws=500", "prior"):
        assert part in finding.message


def lp_of(levels, draws=500, seed=6):
    """Log densities that fluctuate by 1.2, as of three hyperparameters, about the level of each chain."""
    return np.asarray(levels)[:, None] + 1.2 * np.random.default_rng(seed).normal(size=(len(levels), draws))


def test_modes_are_named_by_their_log_density():
    u = white()
    u[[0, 2], :, 1] += 3.0
    (finding,) = [f for f in check(make_trace(u, lp=lp_of([-45.0, -52.0, -45.0, -52.0]))) if f.kind == "r_hat"]
    medians = [np.median(np.exp(u[chains, :, 1])) for chains in ([0, 2], [1, 3])]
    assert "2 modes" in finding.message
    assert (
        f"chains [0, 2] at mean log density -45.0, with median {medians[0]:.3g} of 'length_scale[FL]'"
        in finding.message
    )
    assert f"chains [1, 3] at mean log density -52.0, with median {medians[1]:.3g}" in finding.message
    assert "chains=" in finding.message


def test_one_level_is_not_called_modes():
    """Chains that disagree at the same level; and levels apart by luck, in chains that agree."""
    u = white()
    u[2, :, 1] += 1.0
    (finding,) = [f for f in check(make_trace(u, lp=lp_of([-45.0, -45.4, -44.7, -45.1]))) if f.kind == "r_hat"]
    assert "mean log density" not in finding.message
    assert check(make_trace(white(), lp=lp_of([-45.0, -52.0, -45.0, -52.0]))) == []


def otsu(x):
    """The threshold between the halves of greatest variance between them, by trying every draw."""
    cuts = np.unique(x)[:-1]
    return max(cuts, key=lambda c: np.mean(x > c) * np.mean(x <= c) * (x[x > c].mean() - x[x <= c].mean()) ** 2)


def switching(stay, chains=4, draws=500, seed=7):
    """White noise about one of two modes 6 apart; each draw stays in its mode with this probability."""
    rng = np.random.default_rng(seed)
    mode = np.cumsum(rng.random((chains, draws)) > stay, axis=1) + np.arange(chains)[:, None]
    return rng.normal(size=(chains, draws)) + 6.0 * (mode % 2)


@pytest.mark.parametrize("stay", [1.0, 0.99])
def test_modes_of_equal_height_are_named_by_their_medians(stay):
    """Chains stay in one mode each; or all visit both, seldom."""
    u = white()
    u[:, :, 2] = switching(stay)
    low = u[:, :, 2] <= otsu(u[:, :, 2])
    lp = lp_of([-45.0] * 4) - 0.5 * low
    (finding,) = [f for f in check(make_trace(u, lp=lp)) if f.kind == "r_hat"]
    for here in (low, ~low):
        median, shares = np.median(np.exp(u[here][:, 2])), here.mean(axis=1).round(2).tolist()
        assert f"'length_scale[RW]' about {median:.3g}, with mean log density {lp[here].mean():.1f}" in finding.message
        assert f"the shares {shares} of the chains' draws" in finding.message
    assert "2 modes" in finding.message
    assert "sampler='jumps'" in finding.message
    (finding,) = [f for f in check(make_trace(u, lp=lp, sampler="jumps")) if f.kind == "r_hat"]
    assert "raise n_restarts" in finding.message


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_one_hill_is_never_called_two_modes(rho):
    """Not even where chains are so slow that they disagree, or where the hill is lopsided or flat."""
    for seed in range(10):
        u = slow(rho, seed=seed)
        for x in (u[:, :, 0], np.exp(u[:, :, 1]), norm.cdf(u[:, :, 2])):
            assert two_sides(x) is None


def test_two_sides():
    x = switching(0.995)
    np.testing.assert_array_equal(two_sides(x), x > otsu(x))
    assert two_sides(switching(0.5)) is None  # modes that chains change between freely are no trouble
    assert two_sides(np.zeros((2, 50))) is None
    assert two_sides(np.arange(8.0).reshape(2, 4)) is None


def test_levels():
    assert levels(lp_of([-5.0, 1.0, -20.0, -5.3, 1.1]))[0].chains == [1, 4]
    assert [level.chains for level in levels(lp_of([-5.0, 1.0, -20.0, -5.3, 1.1]))] == [[1, 4], [0, 3], [2]]
    assert levels(np.array([[-3.0, -4.0]])) == [([0], -3.5)]
    assert [level.chains for level in levels(np.array([[-3.0, -3.0], [-4.0, -4.0]]))] == [[0], [1]]  # stuck chains


@pytest.mark.parametrize(("share", "found"), [(0.0, False), (0.04, False), (0.06, True)])
def test_trajectories_cut_at_the_largest_depth(share, found):
    cut = np.zeros((4, 500), dtype=bool)
    cut.flat[: int(share * cut.size)] = True
    findings = check(make_trace(white(), sampler="nuts", reached_max_treedepth=cut))
    assert [f.kind for f in findings] == ["max_treedepth"] * found
    assert all("120 of 2000" in f.message and "max_depth" in f.message for f in findings)


@pytest.mark.parametrize(
    ("sampler", "words"),
    [("hmc", "HMC(step_size=...)"), ("nuts", "NUTS(step_size=...)"), ("metropolis", "(scale=...)")],
)
def test_the_setting_named_is_that_of_the_sampler(sampler, words):
    u = white()
    u[:] = u[:, :1]
    stuck, *_ = check(make_trace(u, sampler=sampler, diverging=np.ones((4, 500), dtype=bool)))
    assert words in stuck.message


def test_low_effective_sample_size_names_the_worst_and_the_draws_needed():
    u = slow(0.8)
    u[:, :, 2] = slow(0.97, seed=4)[:, :, 2]
    trace = make_trace(u)
    (finding,) = [f for f in check(trace) if f.kind == "ess"]
    table = summary(trace).loc["length_scale[RW]"]
    lowest = min(table["ess_bulk"], table["ess_tail"])
    assert f"is {lowest:.0f} for 'length_scale[RW]'" in finding.message
    needed = int(finding.message.split("draws=")[1].split()[0])
    assert 500 * 400 / lowest <= needed < 500 * 400 / lowest + 100
    assert "n_steps" in finding.message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"acceptance_rate": np.full((4, 500), 0.2)}, "a smaller HMC(step_size=...)"),
        ({"acceptance_rate": np.full((4, 500), 0.2), "sampler": "nuts"}, "a smaller NUTS(step_size=...)"),
        ({"sampler": "metropolis"}, "sampler='nuts'"),
        ({"sampler": "nuts", "tree_depth": np.full((4, 500), 3)}, "a longer tune="),
    ],
)
def test_the_remedy_for_a_low_sample_size_follows_the_cause(changes, words):
    (finding,) = [f for f in check(make_trace(slow(0.97), **changes)) if f.kind == "ess"]
    assert words in finding.message


@pytest.mark.parametrize(("draws", "words"), [(50, "the run is short"), (3, "too few")])
def test_a_run_of_few_draws_is_told_so(draws, words):
    (finding,) = check(make_trace(white(1, draws)))
    assert finding.kind == "ess"
    assert words in finding.message
    assert "draws=" in finding.message


def test_divergences_are_counted():
    diverging = np.zeros((4, 500), dtype=bool)
    diverging[1, :5] = True
    (finding,) = check(make_trace(white(), diverging=diverging))
    assert finding.kind == "divergences"
    assert "5 of 2000 draws diverged (0.2%)" in finding.message
    assert "HMC(step_size=...)" in finding.message
    assert "target_accept" in finding.message


def test_low_bfmi_is_reported_for_hmc_and_not_for_metropolis():
    energy = np.random.default_rng(0).normal(size=(4, 500))
    energy[3] = np.cumsum(energy[3])
    (finding,) = check(make_trace(white(), energy=energy))
    assert finding.kind == "bfmi"
    assert "1 of 4 chains" in finding.message
    trace = make_trace(white(), energy=energy, sampler="metropolis")
    assert check(trace) == []
    assert np.isnan(bfmi(trace)).all()


def test_a_chain_that_never_moved():
    """Its R-hat is infinite or NaN and arviz gives a constant an ESS of n, so it needs a finding of its own."""
    u = white()
    u[1] = u[1, 0]
    assert kinds(make_trace(u)) == ["stuck"]
    everywhere = make_trace(np.broadcast_to(u[:1, :1], u.shape).copy(), energy=np.zeros((4, 500)))
    (finding,) = check(everywhere)
    assert finding.kind == "stuck"
    assert "4 of 4 chains" in finding.message


def test_findings_come_as_one_warning_per_category_at_the_callers_line():
    counts = np.zeros((4, 500), dtype=int)
    counts[0, :2] = 3
    diverging = counts > 0
    trace = make_trace(slow(0.97), diverging=diverging, not_converged=counts, not_positive_definite=counts)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        findings = warn(trace)
    assert [w.category for w in caught] == [ConvergenceWarning, ApproximationWarning]
    assert all(w.filename == __file__ for w in caught)
    convergence, solver = (str(w.message) for w in caught)
    for finding in findings:
        text = solver if finding.kind in ("not_converged", "not_positive_definite") else convergence
        assert finding.message in text
    assert "in 6 evaluations, within 2 of 2000 kept draws" in solver
    assert "beyond 1e15" in solver
    assert "diverged" not in solver


def test_a_run_without_trouble_in_the_solver_has_no_approximation_warning():
    with pytest.warns(ConvergenceWarning) as caught:
        warn(make_trace(slow(0.97)))
    assert [w.category for w in caught] == [ConvergenceWarning]


def test_findings_look_at_kept_draws_only():
    trace = make_trace(white())
    warmup = {name: values + values.dtype.type(1) for name, values in trace.warmup_stats.items()}
    assert check(dataclasses.replace(trace, warmup_stats=warmup)) == []


def test_arviz_is_imported_only_when_needed():
    modules = "hmcgp.reporting.diagnostics, hmcgp.reporting.arviz_export"
    code = f"import sys, {modules}; sys.exit(any(m.startswith('arviz') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("sampler", ["hmc", "nuts", "jumps"])
def test_advice_is_not_what_is_done_anyway(sampler):
    """Inputs are standardised by default: to advise it helps those only who have switched it off."""
    cut = {"tree_depth": np.full((4, 500), 10), "reached_max_treedepth": np.ones((4, 500), dtype=bool)}
    trace = make_trace(slow(0.98), sampler=sampler, **(cut if sampler == "nuts" else {}))
    told = {finding.kind: finding.message for finding in check(trace)}
    assert "ess" in told
    assert not any("standardi" in message for message in told.values())
    otherwise = {finding.kind: finding.message for finding in check(trace, standardized=False)}
    assert "standardize=True" in otherwise["ess"]
    assert sampler != "nuts" or "standardize=True" in otherwise["max_treedepth"]
    with pytest.warns(ConvergenceWarning, match="standardize=True"):
        warn(trace, standardized=False)
