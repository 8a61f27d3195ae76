"""The figures of MacKay (1998), within limits that a wrong model would break."""

import re

import numpy as np
import pytest

from hmcgp import Model, find_modes, sample
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian
from hmcgp.priors import LogNormal
from hmcgp.reporting import diagnostics
from hmcgp.samplers import JumpingHMC
from scripts.papers import mackay as paper
from scripts.papers import mackay_sections as sections

SHORT = {"draws": 60, "tune": 100, "chains": 2, "n_jobs": 1}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # chains here are short


@pytest.fixture(scope="module")
def two_ways():
    return paper.two_ways()


@pytest.fixture(scope="module")
def trace(two_ways):
    return paper.both_sampled(two_ways)


def test_two_starts_find_two_modes(two_ways):
    wiggly, smooth = two_ways.optima["wiggly"], two_ways.optima["smooth"]
    assert wiggly.converged
    assert smooth.converged
    assert wiggly.parameters[0] < 0.3 * smooth.parameters[0]
    assert wiggly.parameters[1] < 0.3 * smooth.parameters[1]
    assert abs(wiggly.logdensity - smooth.logdensity) > 0.5
    assert "as in the paper" in two_ways.verdict()
    once = two_ways._replace(optima=dict.fromkeys(("wiggly", "smooth"), wiggly))
    assert "DIFFERS" in once.verdict()
    # a valley between them: the straight way from one to the other leads below both
    way = np.linspace(wiggly.position, smooth.position, 21)
    along = [two_ways.model.logdensity_and_grad(u)[0] for u in way]
    assert min(along) < min(wiggly.logdensity, smooth.logdensity) - 2.0


def test_the_evidence_has_two_peaks_as_well(two_ways):
    """So it is the data, not the prior, that see two explanations."""
    log_z = two_ways.log_evidence
    n, m = np.subtract(log_z.shape, 2)
    around = [log_z[i : i + n, j : j + m] for i, j in np.ndindex(3, 3) if (i, j) != (1, 1)]
    _, columns = np.nonzero(log_z[1:-1, 1:-1] > np.max(around, axis=0))
    peaks = np.sort(two_ways.length_scales[1 + columns])
    assert len(peaks) == 2, peaks
    assert peaks[0] < two_ways.divide < peaks[1]


def test_jumps_visit_both_in_proportion(two_ways):
    modes = two_ways.modes()
    np.testing.assert_allclose(
        modes.parameters, [two_ways.optima[name].parameters for name in ("wiggly", "smooth")], rtol=1e-4
    )
    trace = paper.both_sampled(two_ways, JumpingHMC(modes=modes), draws=500, tune=100)
    share = paper.wiggly_share(two_ways, trace)
    assert share.error < 0.04
    assert abs(share.mean - paper.exact_share(two_ways, 60)) < 4.0 * share.error
    assert "r_hat" not in [finding.kind for finding in diagnostics.check(trace) if "They occupy" in finding.message]


@pytest.mark.slow
def test_long_chains_visit_both_in_proportion(two_ways):
    """Chains change modes every few hundred draws: the Monte Carlo error is that of a few hundred visits."""
    share = paper.wiggly_share(two_ways, paper.both_sampled(two_ways, draws=10_000, tune=1000))
    assert share.error < 0.1
    assert abs(share.mean - paper.exact_share(two_ways)) < 3.0 * share.error


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_chains_that_disagree_name_both_modes(two_ways, seed):
    """The modes that the finding names are the optima, roughly: medians of draws against modes."""
    (finding,) = [f for f in diagnostics.check(paper.both_sampled(two_ways, seed=seed)) if f.kind == "r_hat"]
    named = re.findall(r"'(length_scale|noise)' about ([0-9.]+), with mean log density (-[0-9.]+)", finding.message)
    assert len(named) == 2, finding.message
    column = two_ways.model.names.index(named[0][0])
    for (_, median, level), name in zip(named, ("wiggly", "smooth"), strict=True):
        optimum = two_ways.optima[name]
        assert abs(np.log(float(median) / optimum.parameters[column])) < np.log(2.0)
        assert optimum.logdensity - 2.5 < float(level) < optimum.logdensity  # two parameters: one nat below, about


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_chains_on_one_hill_name_no_modes(seed):
    """One of the two explanations excluded by the prior: there is one mode, and runs short enough to disagree."""
    model = paper.two_ways().model
    calm = Model(
        model.X, model.y, kernel=SquaredExponential(1.0, LogNormal(0.0, 0.5)), likelihood=Gaussian(LogNormal(-2.0, 2.0))
    )
    assert len(find_modes(calm, n_restarts=10, random_state=seed).found) == 1
    short = sample(calm, draws=60, tune=60, chains=4, random_state=seed, progressbar=False)
    assert not [f for f in diagnostics.check(short) if "They occupy" in f.message]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_error_bars_widen_in_the_gap(seed):
    ours = paper.with_gap(seed, **SHORT)
    assert len(ours.y) == 37
    middle, half = np.mean(paper.GAP), np.ptp(paper.GAP) / 2.0
    assert (np.abs(ours.X - middle) >= half).all()
    width = paper.widths(ours)
    assert width.gap > 1.5 * width.data, width
    assert width.function_gap > 1.5 * width.function_data, width
    assert width.function_data < ours.noise
    assert "as in the paper" in width.verdict()
    assert "DIFFERS" in width._replace(gap=width.data).verdict()
    assert 1 <= paper.starts_that_agree(ours, 3) <= 3


@pytest.mark.slow
def test_mean_surface_and_picture(two_ways, trace, tmp_path):
    hilly = paper.surface(sampler="map", n_jobs=1)
    assert paper.surface_error(hilly) < 0.35 * hilly.noise
    paper.draw(two_ways, trace, paper.with_gap(sampler="map", n_jobs=1), hilly, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_outputs_find_the_warp_that_they_share_together():
    rows = [sections.warp_errors(seed) for seed in range(6)]
    one, both = np.array([[row["first"], row["second"]] for row in rows]), np.array([row["both"] for row in rows])
    assert np.median(both) < 0.6 * np.median(one)
    assert np.mean(both[:, None] < one) > 0.75
    identity = np.sqrt(np.mean((np.linspace(0.0, 1.0, 101) - sections._shape(sections.TRUE_WARP)) ** 2))
    assert np.median(both) < 0.2 * identity


def test_both_solvers_of_figure_7_agree():
    """By products alone, the evidence is an estimate: close to that of Cholesky's factor where K is of low rank."""
    for solver in sections.BY_PRODUCTS.values():
        assert sections.solver_times(200, solver, paper.hills, seconds=0.0)["error"] < 1.0


def test_the_verdict_on_figure_7():
    for crossing, word in ((None, "not pay"), (1200.0, "later"), (250.0, "as early"), (60.0, "earlier")):
        assert word in sections.crossover_verdict(crossing)
