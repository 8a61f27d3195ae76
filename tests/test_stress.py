"""The script that measures robustness finds what it looks for, and nothing else."""

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import stress

from hmcgp.errors import NotConverged
from hmcgp.evidence import Laplace
from hmcgp.likelihoods import Logistic

OPTIONS = Namespace(n=4, gradients=4, seed=3)


class Broken:
    """Laplace, with an answer that `change` spoils."""

    supports = (Logistic,)

    def __init__(self, change):
        self.change = change

    def __call__(self, *args, **settings):
        return self.change(Laplace()(*args, **settings))


def refuse(evidence):
    raise NotConverged("never")


def crash(evidence):
    raise ZeroDivisionError("by zero")


def broken(monkeypatch, change):
    monkeypatch.setitem(stress.PAIRS, "broken", stress.Pair(Broken(change), Logistic()))
    return stress.stress("crabs", "default", "broken", OPTIONS)


@pytest.mark.parametrize("width", stress.WIDTHS)
def test_a_sound_provider_passes(width):
    row = stress.stress("crabs", width, "laplace-logistic", OPTIONS)
    assert row["converged"] == 1.0
    assert row["gradients"] == OPTIONS.gradients
    assert 0.0 < row["worst_gradient_error"] < stress.GOOD_GRADIENT
    assert all(not row[what] for what in ("failures", "wrong", "bad_gradients"))


def test_a_gradient_two_per_cent_off_is_named(monkeypatch):
    row = broken(monkeypatch, lambda evidence: evidence._replace(dK=1.02 * evidence.dK))
    assert len(row["bad_gradients"]) == OPTIONS.n
    assert row["converged"] == 1.0


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (crash, "ZeroDivisionError: by zero"),
        (lambda evidence: evidence._replace(log_z=np.nan), "not finite"),
        (lambda evidence: evidence._replace(dK=np.full_like(evidence.dK, np.inf)), "not finite"),
        (lambda evidence: evidence._replace(log_z=1.0), "> 0"),
    ],
)
def test_a_wrong_number_is_named(monkeypatch, change, what):
    row = broken(monkeypatch, change)
    assert len(row["wrong"]) == OPTIONS.n
    assert all(what in told for told in row["wrong"].values())
    assert not row["failures"]


def test_giving_up_is_no_wrong_number(monkeypatch):
    row = broken(monkeypatch, refuse)
    assert row["failures"] == {f"crabs/default/broken/{i}": "NotConverged" for i in range(OPTIONS.n)}
    assert row["converged"] == 0.0
    assert not row["wrong"]


def test_a_vector_depends_on_its_index_alone_and_the_wide_prior_is_wide():
    model = stress.build("crabs", "ep-noise-step")
    draws = {w: np.array([stress.prior_of(model, f).draw(0, i)[0] for i in range(5)]) for w, f in stress.WIDTHS.items()}
    centre = stress.prior_of(model, 1.0).centre
    np.testing.assert_allclose(draws["wide"] - centre, 3.0 * (draws["default"] - centre))
    np.testing.assert_array_equal(stress.prior_of(model, 1.0).draw(0, 4)[0], draws["default"][4])
