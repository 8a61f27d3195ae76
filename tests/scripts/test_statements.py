"""Statements of pages about the code that were wrong once, compared with the code."""

from __future__ import annotations

from pathlib import Path

import pytest

import hmcgp
from hmcgp import GPClassifier, Model, datasets
from hmcgp.estimators.default_sampler import default_sampler
from hmcgp.model import warm_start
from hmcgp.model.compatibility import LIKELIHOODS
from scripts.benchmarks import fingerprint

ROOT = Path(__file__).parents[2]


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_the_first_fit_is_said_to_use_its_sampler():
    pima = datasets.load_pima()
    X, y = pima.data[pima.train], (pima.target[pima.train] == "Yes") * 2.0 - 1.0
    assert default_sampler(GPClassifier(), Model(X, y)) == "surrogate"
    assert "the default is the [surrogate sampler]" in text_of("scripts/docs/first_fit.md")
    assert "four chains" not in text_of("README.md")


def test_the_header_of_the_demonstration_names_its_data():
    assert "Pima" in text_of("scripts/demo").splitlines()[1]
    assert "datasets.load_pima" in text_of("scripts/demo.py")


def test_the_guide_says_where_newtons_method_starts():
    guide = text_of("scripts/docs/guide.md")
    assert f"the modes of up to {warm_start.MOST} recent evaluations ({warm_start.FEW} under label noise" in guide


@pytest.mark.parametrize("estimator", [name for name in hmcgp.__all__ if name.startswith("GP")])
def test_choosing_names_every_estimator(estimator):
    assert f"`{estimator}(" in text_of("scripts/docs/choose.md")


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_choosing_names_every_likelihood(likelihood):
    words = {"softmax": "softmax", "multinomial_probit": "multinomial probit", "poisson": "Poisson"}
    words |= {"ordinal": "GPOrdinal", "varying_noise": "VaryingNoise"}
    assert words.get(likelihood, f'"{likelihood}"') in text_of("scripts/docs/choose.md")


def test_fingerprints_say_what_they_cover():
    source, header = text_of("scripts/benchmarks/fingerprint.py"), fingerprint.__doc__ or ""
    code = source.replace(header, "")
    covered, absent = header.split("It does not cover")
    for name in ("hmc", "nuts", "metropolis", "jumps", "map", "laplace", "ep", "tap", "naive", "lower"):
        assert f'"{name}"' in covered
        assert f'"{name}"' in code
    for name in ("GPCounts", "GPOrdinal", "surrogate", "sample_jointly"):
        assert name in absent
        assert name not in code
