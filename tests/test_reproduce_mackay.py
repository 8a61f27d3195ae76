"""The figures of MacKay (1998), within limits that a wrong model would break."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import reproduce_mackay as paper

from hmcgp import diagnostics

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


@pytest.mark.slow
def test_the_sampler_visits_both_in_proportion(two_ways, trace):
    shares = two_ways.wiggly_share(trace)
    expected = paper.exact_share(two_ways)
    assert 0.2 < expected < 0.8
    assert ((shares > 0.02) & (shares < 0.98)).all(), shares
    # the chains differ in their shares by the autocorrelation of the jumps: four of them give its standard error
    assert abs(shares.mean() - expected) < 4.0 * max(shares.std(ddof=1) / np.sqrt(len(shares)), 0.02)


@pytest.mark.slow
def test_a_short_run_says_that_its_chains_disagree(two_ways):
    short = paper.both_sampled(two_ways, draws=100, tune=200)
    assert "r_hat" in [finding.kind for finding in diagnostics.check(short)]


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


@pytest.mark.slow
def test_mean_surface_and_picture(two_ways, trace, tmp_path):
    hilly = paper.surface(sampler="map", n_jobs=1)
    assert paper.surface_error(hilly) < 0.35 * hilly.noise
    paper.draw(two_ways, trace, paper.with_gap(sampler="map", n_jobs=1), hilly, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
