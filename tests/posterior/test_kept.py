"""What predictions keep of the draws between calls changes their time only."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hmcgp.errors import InvalidInput, NotConverged
from hmcgp.evidence import Laplace, products
from hmcgp.kernels import Constant, Linear, Matern, SquaredExponential
from hmcgp.kernels.algebra import Sum
from hmcgp.likelihoods import Gaussian, LabelNoise
from hmcgp.model import Model
from hmcgp.posterior import intervals, joint, kept, predict
from hmcgp.posterior.kept import KeptPredictors
from hmcgp.posterior.packed import packed_moments
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.runtime.memory import array_bytes
from tests.helpers.checks import classification_problem

X, Y, _ = classification_problem(40, 2, seed=3)
NEW = np.random.default_rng(5).normal(size=(33, 2)) * 2.0
THETA = np.exp(np.random.default_rng(6).normal(0.5, 0.4, size=(60, 2)))
WEIGHT = np.random.default_rng(7).gamma(3.0, size=60)
CODES = np.random.default_rng(8).integers(0, 3, size=40).astype(float)


def model_of(name):
    if name == "numbers":
        return Model(X, np.column_stack([X[:, 0], Y]), kernel=SquaredExponential(), likelihood=Gaussian(noise=0.1))
    if name == "classes":
        return Model(X, CODES, kernel=SquaredExponential(), likelihood="softmax")
    if name == "label noise":
        return Model(X, Y, kernel=SquaredExponential(), likelihood=LabelNoise(flip=0.1))
    return Model(X, Y, kernel=SquaredExponential(), evidence=name)


def keeping(model, theta=THETA):
    return WeightedDraws(theta, WEIGHT[: len(theta)] / WEIGHT[: len(theta)].mean(), KeptPredictors(model))


def without(draws):
    return WeightedDraws(draws.theta, draws.weight)


def calls(name):
    """Every sort of prediction."""
    if name == "numbers":
        return [
            lambda m, d: np.array(predict.mixture_moments(m, d, NEW, observed=True)),
            lambda m, d: predict.mean(m, d, NEW),
            lambda m, d: predict.quantiles(m, d, NEW, np.array([0.1, 0.7])),
            lambda m, d: predict.log_density(m, d, NEW, np.tile(NEW[:, :1], 2)),
        ]
    return [
        lambda m, d: predict.probabilities(m, d, NEW),
        lambda m, d: predict.probabilities(m, d, NEW[:1]),
        lambda m, d: predict.probabilities_per_draw(m, d, NEW),
        lambda m, d: np.array(predict.mixture_moments(m, d, NEW)),
        lambda m, d: intervals.probability_intervals(m, d, NEW[:5], 0.9),
    ]


@pytest.mark.parametrize("name", ["laplace", "ep", "numbers", "classes", "label noise"])
def test_results_are_the_same_to_the_last_bit(name, monkeypatch):
    theta = THETA[:6] if name == "classes" else THETA
    model = model_of(name)
    draws = keeping(model, theta)
    first = [call(model, draws) for call in calls(name)]
    nbytes = draws.kept.nbytes
    monkeypatch.setattr(model, "posterior", None, raising=False)  # nothing is solved any more
    again = [call(model, draws) for call in calls(name)]
    assert draws.kept.nbytes == nbytes > 0
    monkeypatch.undo()
    for one, two, three in zip(first, again, (call(model, without(draws)) for call in calls(name)), strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_draws_beyond_the_limit_are_solved_again_and_change_nothing(share, monkeypatch):
    model = model_of("ep")
    draws = keeping(model)
    whole = predict.probabilities(model, draws, NEW)
    limit = int(share * draws.kept.nbytes)
    monkeypatch.setattr(kept, "KEPT_BYTES", limit)
    draws.kept.clear()
    assert draws.kept.nbytes == 0
    solved, solve = [], model.posterior
    monkeypatch.setattr(model, "posterior", lambda *args: solved.append(1) or solve(*args), raising=False)
    for n in (60, round(60 * (1.0 - share))):
        solved.clear()
        np.testing.assert_array_equal(predict.probabilities(model, draws, NEW), whole)
        assert abs(len(solved) - n) <= 1
        assert draws.kept.nbytes <= limit


def test_memory_is_counted_with_all_parts():
    model = model_of("classes")
    draws = keeping(model, THETA[:2])
    predict.probabilities(model, draws, NEW)
    posterior = draws.kept.get(0).predictor.posterior
    arrays = [part for part in vars(posterior).values() if isinstance(part, np.ndarray)]
    assert array_bytes(draws.kept.get(0)) >= sum(part.nbytes for part in arrays) > 4 * 8 * 40**2
    assert draws.kept.nbytes == array_bytes(draws.kept.get(0)) + array_bytes(draws.kept.get(1))


class Fussy(Laplace):
    """Laplace, but only from a start that lies near the solution where the variance is large."""

    def __call__(self, K, y, likelihood, start=None, *, gradient=True):
        evidence = super().__call__(K, y, likelihood, start, gradient=gradient)
        if K[0, 0] > 50.0 and (start is None or np.abs(start - evidence.posterior.f).max() > 2.5):
            raise NotConverged("started too far away")
        return evidence


def test_draws_that_failed_at_first_come_last_again(monkeypatch):
    theta = np.array([[90.0, 1.0], [2.0, 1.0], [3.0, 1.5], [400.0, 0.8], [2.5, 1.1]])
    model = Model(X, Y, kernel=SquaredExponential()).with_evidence(Fussy())
    draws = keeping(model, theta)
    rows = np.tile(NEW, (60, 1))  # so many that sums over draws are made one by one
    whole = predict.probabilities(model, draws, rows)
    assert [draws.kept.get(s).failed for s in range(5)] == [True, False, False, True, False]
    monkeypatch.setattr(model, "posterior", None, raising=False)
    np.testing.assert_array_equal(predict.probabilities(model, draws, rows), whole)


def test_another_model_finds_nothing():
    laplace, ep = model_of("laplace"), model_of("laplace").with_evidence("ep")
    draws = keeping(laplace)
    predict.probabilities(laplace, draws, NEW)
    np.testing.assert_array_equal(predict.probabilities(ep, draws, NEW), predict.probabilities(ep, without(draws), NEW))


def test_nothing_is_kept_in_pickles_and_copies():
    model = model_of("laplace")
    draws = keeping(model)
    predict.probabilities(model, draws, NEW)
    for other in (pickle.loads(pickle.dumps(draws.kept)), copy.deepcopy(draws.kept)):
        assert other.nbytes == 0
        assert not other.belongs_to(model)
    assert len(pickle.dumps(draws.kept)) < 200


def test_threads_may_predict_together():
    model = model_of("ep")
    alone = predict.probabilities(model, keeping(model), NEW, n_jobs=1)
    draws = keeping(model)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: predict.probabilities(model, draws, NEW, n_jobs=2), range(8)))
    for one in found:
        np.testing.assert_array_equal(one, alone)
    assert draws.kept.nbytes == sum(array_bytes(draws.kept.get(s)) for s in range(60))


def test_a_failure_leaves_nothing_wrong_behind(monkeypatch):
    model = model_of("ep")
    draws = keeping(model)
    solve, count = model.posterior, []

    def interrupted(*args):
        count.append(1)
        if len(count) == 30:
            raise KeyboardInterrupt
        return solve(*args)

    monkeypatch.setattr(model, "posterior", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt):
        predict.probabilities(model, draws, NEW, n_jobs=1)
    monkeypatch.undo()
    np.testing.assert_array_equal(
        predict.probabilities(model, draws, NEW), predict.probabilities(model, without(draws), NEW)
    )


# -- few rows ----------------------------------------------------------------------------------------------------------


def packs_of(draws):
    return draws.kept.get("packed")


@pytest.mark.parametrize("evidence", ["laplace", "ep"])
@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(),
        SquaredExponential(ard=True),
        Matern(nu=1.5),
        SquaredExponential(ard=True) + Linear() + Constant(9.0),
    ],
)
def test_few_rows_have_the_moments_of_each_draw(evidence, kernel):
    model = Model(X, Y, kernel=kernel, evidence=evidence)
    theta = np.exp(np.random.default_rng(6).normal(0.5, 0.4, size=(30, model.n_dim)))
    theta[::3, 0] = 4000.0  # a variance for which float32 does not do
    draws = keeping(model, theta)
    predict.probabilities(model, draws, NEW)
    for rows in (NEW[:1], NEW[:4], NEW[1:4, ::-1]):
        moments = packed_moments(draws.kept, len(draws), rows)
        np.testing.assert_allclose(moments, predict.latent_moments(model, without(draws), rows), rtol=1e-12, atol=1e-12)
    precise = 30 if isinstance(kernel, Sum) else 10  # an offset of variance 9 is too large for float32
    precisions = {"float64": precise, "float32": 30 - precise}
    assert {pack.F.dtype.name: len(pack.numbers) for pack in packs_of(draws)} == {
        k: n for k, n in precisions.items() if n
    }
    assert packed_moments(draws.kept, len(draws), NEW[:5]) is None
    draws.kept.clear()
    assert packs_of(draws) is None


def test_draws_are_packed_within_the_bound_only(monkeypatch):
    model = model_of("laplace")
    draws = keeping(model)
    predict.probabilities(model, draws, NEW)
    alone = draws.kept.nbytes
    monkeypatch.setattr(kept, "KEPT_BYTES", alone + 1000)
    unpacked = predict.probabilities(model, draws, NEW[:1])
    assert packs_of(draws) is None
    monkeypatch.undo()
    np.testing.assert_array_equal(predict.probabilities(model, draws, NEW[:1]), unpacked)
    assert draws.kept.nbytes == alone + sum(array_bytes(pack) for pack in packs_of(draws))
    assert array_bytes(packs_of(draws)) < 0.6 * alone


def test_draws_that_are_no_products_are_not_packed(monkeypatch):
    model = model_of("laplace")
    draws = keeping(model)
    monkeypatch.setattr(products, "CONDITION", 0.5)  # below that of any matrix: by solving
    predict.probabilities(model, draws, NEW)
    assert packed_moments(draws.kept, len(draws), NEW[:1]) is None


def test_few_rows_that_overflow_are_refused():
    model = Model(X, Y, kernel=Linear())
    draws = keeping(model, np.ones((3, model.n_dim)))
    predict.probabilities(model, draws, NEW)
    with pytest.raises(InvalidInput, match="too far from the training inputs"):
        predict.probabilities(model, draws, np.array([[1e200, 0.0]]))


# -- results for each draw, and joint ones -----------------------------------------------------------------------------


def joint_calls(name):
    if name == "numbers":
        return [
            lambda m, d: np.array([cov for _, cov in predict.observed_jointly(m, d, NEW)]),
            lambda m, d: np.array([cov for _, cov in predict.observed_jointly(m, d, NEW, [3, 1])]),
        ]
    return [
        lambda m, d: joint.probability_samples(m, d, NEW, 0),
        lambda m, d: predict.probabilities(m, d, NEW),
    ]


@pytest.mark.parametrize("name", ["laplace", "ep", "numbers", "classes"])
@pytest.mark.parametrize("room", [2**29, 0])
def test_joint_results_solve_once_and_do_not_change(name, room, monkeypatch):
    monkeypatch.setattr(kept, "PARTS_BYTES", room)
    model = model_of(name)
    draws = keeping(model, THETA[:6])
    first = [call(model, draws) for call in joint_calls(name)]
    nbytes, solved, solve = draws.kept.nbytes, [], model.posterior
    monkeypatch.setattr(model, "posterior", lambda *args: solved.append(1) or solve(*args), raising=False)
    again = [call(model, draws) for call in joint_calls(name)]
    assert draws.kept.nbytes == nbytes
    assert bool(solved) == (room == 0)
    for one, two, three in zip(first, again, (call(model, without(draws)) for call in joint_calls(name)), strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)
    draws.kept.clear()
    assert draws.kept.nbytes == 0


def test_parts_share_one_bound(monkeypatch):
    monkeypatch.setattr(kept, "KEPT_BYTES", 100 * 8)
    monkeypatch.setattr(kept, "PARTS_BYTES", 50 * 8)
    whole = KeptPredictors("model")
    part, inner = whole.part("a"), whole.part("a").part("b")
    assert whole.part("a") is part
    assert whole.part("b") is not inner
    assert inner.belongs_to("model")
    assert part.keep(0, np.zeros(30))
    assert not inner.keep(0, np.zeros(30))
    assert inner.keep(1, np.zeros(20))
    assert not part.keep(1, np.zeros(1))
    assert whole.keep(0, np.zeros(50))
    assert whole.nbytes == 800
    assert whole.keep(1, np.zeros(1))  # parts give way
    assert whole.nbytes == 51 * 8
    assert part.get(0) is inner.get(1) is None
    assert part.keep(0, np.zeros(30))
    assert not whole.keep(2, np.zeros(50))
    assert part.get(0) is not None  # nothing is dropped in vain
    whole.clear()
    assert whole.nbytes == part.nbytes == inner.nbytes == 0
    assert part.get(0) is inner.get(1) is None
