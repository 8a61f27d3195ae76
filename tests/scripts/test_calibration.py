"""Simulation-based calibration: the tests of uniformity can pass and fail, and the pipeline passes them."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.benchmarks import calibration as study

N = 300
ALPHA = 0.05 / 10.0  # five quantities, two tests each: one false alarm in twenty choices of the seed


def test_a_chain_with_too_few_effective_draws_is_run_again(monkeypatch):
    monkeypatch.setattr(study, "LENGTHS", (1, 4))
    monkeypatch.setattr(study, "TUNE", 60)
    done = study.run(study.REGRESSION._replace(n=8, thin=1), 1, seed=3, n_jobs=1)
    assert done[0].length == 4  # 99 draws seldom are 99 effective ones
    assert 0 <= done[0].ranks["noise"] <= study.LEVELS


def uniform_ranks(rng, n=N):
    return rng.integers(0, study.LEVELS + 1, size=n)


def test_the_ecdf_counts_ranks_up_to_each_level():
    counts = study.ecdf(np.array([0, 0, 3, 98, 99]))
    assert counts.shape == (study.LEVELS,)
    assert counts[[0, 2, 3, 97, 98]].tolist() == [2, 2, 3, 3, 4]


def test_the_band_holds_the_whole_curve_as_often_as_it_says():
    lower, upper = study.ecdf_band(N, study.simulated_extremity(N))
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        share = study.ecdf(uniform_ranks(rng)) / N
        inside += bool(((lower <= share) & (share <= upper)).all())
    assert abs(inside / 1000 - 0.95) < 4.0 * np.sqrt(0.05 * 0.95 / 1000)


def test_p_values_of_uniform_ranks_are_uniform():
    rng = np.random.default_rng(1)
    by_chance = study.simulated_extremity(N)
    p = np.array(
        [(study.chi_square_p(r), study.ecdf_p(r, by_chance)) for r in (uniform_ranks(rng) for _ in range(400))]
    )
    for level in (0.05, 0.5):
        assert (np.abs(np.mean(p < level, axis=0) - level) < 4.0 * np.sqrt(level * (1.0 - level) / 400)).all()


@pytest.mark.parametrize(
    "bend",
    [
        lambda x: x**1.4,  # shifted
        lambda x: 0.5 + 0.5 * np.sign(2.0 * x - 1.0) * np.abs(2.0 * x - 1.0) ** 0.7,  # too narrow
        lambda x: 0.5 + 0.75 * (x - 0.5),  # too wide
    ],
)
def test_bent_ranks_are_caught(bend):
    x = bend(np.random.default_rng(2).random(N))
    ranks = np.minimum((x * (study.LEVELS + 1)).astype(int), study.LEVELS)
    assert study.ecdf_p(ranks, study.simulated_extremity(N)) < 0.005


def test_a_replicate_follows_from_its_seed_alone(monkeypatch):
    monkeypatch.setattr(study, "LENGTHS", (1,))
    small = study.REGRESSION._replace(n=8, thin=1)
    one, two = (study.run(small, 2, seed=3, n_jobs=1) for _ in range(2))
    assert one == two
    assert set(one[0].ranks) == {"variance", "length_scale", "noise", "log density", "log evidence"}
    assert one[0].ranks != one[1].ranks


@pytest.mark.slow
def test_regression_is_calibrated():
    """Prior, kernel, exact evidence, gradients, transforms and sampler together: every rank uniform."""
    done = study.run(study.REGRESSION, N, seed=1)
    assert len(done) == N  # replicates with findings are among them
    for verdict in study.judge(done):
        assert min(verdict.chi_square_p, verdict.ecdf_p) > ALPHA, verdict
    assert sum(bool(r.findings) for r in done) < 0.1 * N


@pytest.mark.slow
def test_a_wrong_noise_is_caught():
    """The negative control: data with 1.3 times the noise variance that is called true."""
    verdicts = {v.name: v for v in study.judge(study.run(study.NOISIER, 80, seed=1))}
    assert verdicts["noise"].ecdf_p < ALPHA
    assert verdicts["noise"].z < -4.0  # -7.4 expected of 80 replicates, from -11.7 of 200
