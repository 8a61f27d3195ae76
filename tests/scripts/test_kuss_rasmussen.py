"""Kuss & Rasmussen (2005): Laplace's probabilities are too timid on crabs, EP's are not."""

import numpy as np
import pytest

from scripts.papers import kuss_rasmussen as paper
from scripts.papers.barber_williams import Split, crabs_splits

METHODS = ["Laplace, probit", "EP, probit"]


def test_information_is_measured_from_the_share_of_each_class():
    """Guessing the share tells nothing; knowing every label tells their entropy."""
    y = np.repeat([1.0, -1.0], [30, 10])
    split = Split(None, y, None, y)
    guess = np.tile([0.25, 0.75], (40, 1))
    np.testing.assert_allclose(paper.score(split, guess).information, 0.0, atol=1e-12)
    known = np.stack([y < 0.0, y > 0.0], axis=1).astype(float)
    entropy = 2.0 - 0.75 * np.log2(3.0)  # of (1/4, 3/4)
    np.testing.assert_allclose(paper.score(split, known).information, entropy, atol=1e-12)


@pytest.mark.slow
def test_ep_loses_at_most_three_quarters_of_what_laplace_loses():
    """Three of the ten splits, short chains."""
    results = {
        name: [paper.run(split, name, draws=100, tune=150, chains=2) for split in crabs_splits(10)[:3]]
        for name in METHODS
    }
    assert paper.ratio(results) <= paper.TARGET, results
    laplace, ep = (np.mean([r.hmc.information for r in results[name]]) for name in METHODS)
    assert laplace < ep < 1.0
    assert all(r.n_failed == 0 for rows in results.values() for r in rows)
