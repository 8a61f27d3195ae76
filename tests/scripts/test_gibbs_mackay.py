"""The figures of Gibbs & MacKay (2000), within limits that a wrong model would break."""

import numpy as np
import pytest
from scipy.special import expit

from scripts.papers import barber_williams
from scripts.papers import gibbs_mackay as paper
from scripts.papers import gibbs_mackay_effects as effects

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pima():
    return barber_williams.pima()


def test_figure_1():
    a = np.linspace(-8.0, 8.0, 161)
    for nu in (paper.TOUCHING[0], 0.1, 1.0, 3.0, 7.0):
        assert (paper.sigmoid_lower_bound(a, nu) <= expit(a) * (1.0 + 1e-12)).all()
        touching = np.array([-nu, nu])
        np.testing.assert_allclose(paper.sigmoid_lower_bound(touching, nu), expit(touching), rtol=1e-12)
    for mu in (paper.TOUCHING[1], 0.01, 0.1, 0.5, 0.95):
        assert (paper.sigmoid_upper_bound(a, mu) >= expit(a) * (1.0 - 1e-12)).all()
        touching = np.log((1.0 - mu) / mu)
        np.testing.assert_allclose(paper.sigmoid_upper_bound(touching, mu), expit(touching), rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_figure_2(seed, tmp_path):
    """The lower bound is the more confident; both go to ½ away from the data; the steep change is seen where it is."""
    toy = paper.toy(seed=seed)
    sure = paper.confidence(toy)
    assert sure.lower > 1.2 * sure.upper
    assert sure.exception < 0.01
    assert max(sure.lower_far, sure.upper_far) < 0.01
    for p in (toy.lower, toy.upper):
        inside = (toy.grid > 0.0) & (toy.grid < paper.RANGE)
        crossings = toy.grid[inside][1:][np.diff(np.sign(p[inside] - 0.5)) != 0.0]
        assert len(crossings) == 2
        assert abs(crossings[0] - paper.SHARP) < 1.5
        assert paper.GENTLE[0] < crossings[1] < paper.GENTLE[1]
    lower, upper = toy.brackets
    assert (lower < upper).all()
    assert (np.diff(upper) > 0.0).all()
    assert 0 < np.argmax(lower) < len(lower) - 1
    paper.draw(toy, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_pima(pima):
    """Published: 70 ± 7.4 errors of 332."""
    best = paper.optimum(pima)
    assert "agrees" in paper.table_one("Pima", best.errors), best
    assert best.n_agree == 20, best.starts
    assert best.bounds[0] < best.bounds[1]
    assert best.log_loss < 0.46  # logistic regression: 0.446


def test_pima_sampled(pima):
    ours = paper.sampled(pima, draws=100, tune=150, chains=2)
    assert 62 <= ours.errors <= 74
    assert ours.log_loss < 0.46
    assert (ours.bounds.lower < ours.bounds.upper).all()


def test_crabs_on_ten_splits():
    """Published: 4 ± 2 errors of 120, and starts that end almost alike."""
    rows = [paper.optimum(split) for split in barber_williams.crabs_splits(10, species=True)]
    counts = [row.errors for row in rows]
    assert "agrees" in paper.table_one("crabs", float(np.mean(counts))), counts
    assert [row.n_agree for row in rows] == [20] * 10


def test_table_3_and_figure_3(tmp_path):
    """On the breast cancer data, as on their welds: both bounds decide alike, and the upper one is the less sure."""
    ours = effects.halves("breast cancer")
    scores = ours.scores()
    assert "as in the paper" in effects.verdict(scores), scores
    assert scores["lower"].errors <= scores["network"].errors + 5
    assert scores["lower"].log_likelihood > scores["network"].log_likelihood - 5.0
    name = effects.strongest(ours.gp, 1)[0]
    lower, upper = (ours.from_bound(bound).effect(name, at="median", random_state=0) for bound in effects.BOUNDS)
    assert np.ptp(lower.mean) > np.ptp(upper.mean) > 0.1
    assert (upper.high - upper.low > lower.high - lower.low).all()
    effects.draw(ours, tmp_path / "picture.png", n_inputs=2)
    assert (tmp_path / "picture.png").stat().st_size > 10_000
