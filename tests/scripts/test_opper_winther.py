"""Opper & Winther (1999): sonar by mean fields, and their leave-one-out errors without leaving out."""

import numpy as np
import pytest

from hmcgp.datasets.user_files import SONAR_VARIABLE
from scripts.papers import opper_winther as paper
from scripts.papers.barber_williams import Split
from tests.helpers.checks import classification_problem


def test_exact_errors_are_those_of_refits():
    """Two groups far apart, one row among the other group: it, and nothing else, is wrong when left out."""
    X = np.concatenate([np.linspace(-4.0, -2.0, 8), np.linspace(2.0, 4.0, 8)])[:, None]
    y = np.sign(X[:, 0])
    y[3] = 1.0
    split = Split(X, y, X, y)
    assert paper.exact_loo_errors(split, paper.KERNELS["Gaussian"], "tap", np.array([5.0, 1.5])) == 1


@pytest.mark.parametrize("method", paper.METHODS)
def test_own_and_exact_errors_agree_within_one_case(method):
    X, y, _ = classification_problem(40, 2)
    result = paper.run(Split(X[:30], y[:30], X[30:], y[30:]), paper.KERNELS["arcsine"], method, draws=0)
    assert abs(result.loo - result.exact) <= 1
    assert np.isnan(result.hmc_log_loss)


def test_random_splits_are_halves_with_equal_shares():
    first, second = paper.random_splits(2)
    assert first.X.shape == first.X_test.shape == (104, 60)
    assert abs(first.y.sum() - first.y_test.sum()) <= 2
    assert not np.array_equal(first.X, second.X)
    np.testing.assert_allclose(first.X.mean(axis=0), 0.0, atol=1e-12)


@pytest.mark.parametrize("name", paper.KERNELS)
@pytest.mark.parametrize("method", paper.METHODS)
def test_sonar(name, method):
    split = paper.published_split(None) or paper.random_splits(1)[0]  # the environment may name the file
    result = paper.run(split, paper.KERNELS[name], method, draws=0)
    print(result)
    assert abs(result.loo - result.exact) <= 1
    assert result.errors / 104 < 0.25
    assert result.log_loss < 0.55  # a coin: 0.69


def test_without_the_file_there_is_no_published_split(monkeypatch):
    monkeypatch.delenv(SONAR_VARIABLE, raising=False)
    assert paper.published_split(None) is None
