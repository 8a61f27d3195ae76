"""The script that measures robustness finds what it looks for, and nothing else."""

from argparse import Namespace

import numpy as np
import pytest

from hmcgp.errors import NotConverged
from hmcgp.evidence import Laplace
from hmcgp.likelihoods import Logistic
from scripts.benchmarks import stress

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


# each of these raised NotConverged before the double loop, TAP's way out and the rounding of the naive mean field
ONCE_FAILED = [
    "crabs/default/ep-noise-step/1217",  # sweeps creep
    "crabs/wide/ep-noise-probit/49",  # and cycle, here and below
    "crabs/wide/ep-noise-step/41",
    "pima/wide/ep-noise-step/96",  # prior variance 2e6
    "pima/wide/ep-noise-step/124",
    "pima/wide/ep-noise-step/151",
    "pima/wide/ep-noise-step/155",
    "pima/wide/ep-noise-step/162",
    "thyroid/wide/ep-noise-probit/927",  # stops at the noise of the sites
    "thyroid/wide/tap-probit/96",  # diverges
    "thyroid/wide/naive-probit/96",  # stops at the noise of Kx
    "thyroid/wide/naive-probit/1797",
]


@pytest.mark.slow
@pytest.mark.parametrize("place", ONCE_FAILED)
def test_what_once_failed_has_the_right_gradient(place):
    data, width, pair, i = place.split("/")
    prior = stress.prior_of(stress.build(data, pair), stress.WIDTHS[width])
    u, direction = prior.draw(0, int(i))
    answer = stress.evaluate(prior.model, u)
    assert not answer.failure
    assert not answer.wrong
    assert stress.gradient_error(prior.model, u, direction, answer) < stress.GOOD_GRADIENT


@pytest.mark.slow
@pytest.mark.parametrize("pair", [name for name in stress.PAIRS if name.startswith(("ep", "tap", "naive"))])
@pytest.mark.parametrize("width", stress.WIDTHS)
@pytest.mark.parametrize("data", ["crabs", "pima"])
def test_vectors_of_the_prior_have_answers(data, width, pair):
    """The targets of the script, with fewer vectors: 98 % of 30 are all of them."""
    row = stress.stress(data, width, pair, Namespace(n=30, gradients=5, seed=1))
    assert row["converged"] >= row["target"]
    assert all(not row[what] for what in ("failures", "wrong", "bad_gradients"))


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
