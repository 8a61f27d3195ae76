"""The attack finds promises that are broken, replays them, and finds none in the package."""

import pickle
import signal
import zipfile
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hmcgp import GPClassifier, Model, kernels
from hmcgp.errors import InvalidInput
from scripts.attack import child, damage, files, fits, models, pool, program
from scripts.attack.cases import Case, run_case
from tests.helpers.attack_cases import run_hard


@pytest.mark.slow
def test_the_package_keeps_its_promises(capsys):
    """Reduced: the full run takes about 25 minutes."""
    options = "--evaluations 1200 --fits 24 --files 30 --interrupts 6 --jobs 2"
    status = program.main(options.split())
    assert status == 0, capsys.readouterr().out


# -- the frame ---------------------------------------------------------------------------------------------------------


def test_a_case_depends_on_its_place_alone():
    draws = [Case(*place).rng.random() for place in [("files", 3, 8), ("files", 3, 8), ("files", 4, 8), ("fits", 3, 8)]]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


def test_replay_reproduces_a_case(monkeypatch, capsys):
    evaluate = Model.evaluate

    def sometimes_nan(self, u, carry=None, gradient=True):
        evaluation = evaluate(self, u, carry)
        return evaluation._replace(logdensity=np.nan) if u[0] > 0.0 else evaluation

    monkeypatch.setattr(Model, "evaluate", sometimes_nan)
    report = run_case("models", 0, 3)
    assert report.broken
    assert run_case("models", 0, 3) == report
    assert program.main(["--replay", "models:0:3"]) == 1
    told = capsys.readouterr().out
    assert all(f"BROKEN: {what}" in told for what in report.broken)
    assert f"{len(report.broken)} broken promises" in told
    assert "X = array" in told


@pytest.mark.slow
def test_a_process_that_dies_or_hangs_is_a_broken_promise(monkeypatch):
    monkeypatch.setattr(pool, "PATIENCE", 0.05)
    reports = {report.number: report for report in pool.run_cases("models", 0, range(4), 2, run_hard)}
    assert sorted(reports) == [0, 1, 2, 3]
    assert reports[0].outcomes == reports[3].outcomes == {"fine": 1}
    assert reports[1].broken == [f"the process died, with exit code {-signal.SIGABRT}"]
    assert reports[2].broken == ["no answer within 90 seconds of work"]


def test_a_broken_promise_is_printed_and_fails(monkeypatch, capsys):
    def broken(section, seed, indices, jobs):
        for index in indices:
            case = Case(section, seed, index)
            case.count("fitted")
            if index == 1:
                case.breaks("bad\nluck", ValueError("why"))
            yield case.report

    monkeypatch.setattr(program, "run_cases", broken)
    assert program.main(["--sections", "fits", "--fits", "3", "--seed", "9"]) == 1
    told = capsys.readouterr().out
    assert "BROKEN bad luck: ValueError: why   --replay fits:9:1" in told
    assert "fitted 3" in told
    assert program.main(["--sections", "fits", "--fits", "1"]) == 0


# -- models ------------------------------------------------------------------------------------------------------------


def tree(kernel):
    found = {type(kernel).__name__}
    for inner in kernel.children().values():
        found |= tree(inner)
    return found


def test_every_kernel_and_every_pair_is_tried():
    found, pairs = set(), set()
    for index in range(400):
        settings = models.random_question(Case("models", 0, index).rng).settings
        given = settings["kernel"]
        found |= set().union(*(tree(k) for k in (given if isinstance(given, list) else [given])))
        pairs.add((type(settings["evidence"]), type(settings["likelihood"])))
    public = {name for name in kernels.__all__ if isinstance(getattr(kernels, name), type)}
    public = {name for name in public if issubclass(getattr(kernels, name), kernels.Kernel)} - {"Kernel"}
    assert found >= public
    assert pairs == set(models.PAIRS)


def examine(spoil, **options):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(12, 2))
    model = Model(X, np.where(X[:, 0] > 0.0, 1.0, -1.0))
    evaluate = model.evaluate
    model.evaluate = lambda u, carry=None, gradient=True: spoil(evaluate(u, carry), carry)  # type: ignore[method-assign]
    return models.examine(model, np.zeros(3), rng, **({"tolerance": 1e-8, "differences": True} | options))


def test_a_sound_model_passes():
    assert examine(lambda evaluation, carry: evaluation) == ("", "finite")


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda e, carry: e._replace(logdensity=np.nan), "value nan"),
        (lambda e, carry: e._replace(logdensity=np.inf), "value inf"),
        (lambda e, carry: e._replace(grad=e.grad * np.nan), "gradient"),
        (lambda e, carry: e._replace(grad=1.02 * e.grad), "gradient off by"),
        (lambda e, carry: e._replace(logdensity=-np.inf, failure=1), "-inf with gradient"),
        (lambda e, carry: e._replace(logdensity=-np.inf, grad=0.0 * e.grad), "failure 0"),
        (lambda e, carry: e._replace(logdensity=e.logdensity + 1e-6), "without a gradient"),
        (lambda e, carry: e if carry is None else e._replace(logdensity=e.logdensity + 1e-6), "warm"),
        (lambda e, carry: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_a_model_that_breaks_a_promise_is_found(spoil, what):
    problem, _ = examine(spoil)
    assert what in problem


def test_a_model_that_gives_another_value_each_time_is_found():
    count = iter(range(100))
    problem, _ = examine(lambda e, carry: e._replace(logdensity=e.logdensity * (1.0 + 1e-15 * next(count))))
    assert "two evaluations differ" in problem


# -- fits --------------------------------------------------------------------------------------------------------------


def refusal(error, sound=False):
    case = Case("fits", 0, 0)
    try:
        raise error
    except Exception as raised:
        fits.judge_refusal(case, "a fault", raised, sound=sound)
    return case.broken


def test_what_counts_as_a_refusal():
    assert not refusal(InvalidInput("'draws' must be positive."))
    assert "no message" in refusal(InvalidInput(""))[0]
    assert "another exception" in refusal(KeyError("draws"))[0]
    assert "from inside" in refusal(ValueError("setting an array element with a sequence"))[0]
    assert "sound fit was refused" in refusal(InvalidInput("no."), sound=True)[0]
    with pytest.raises(ValueError, match="Expected 2D array") as caught:
        GPClassifier().fit(np.zeros(3), [0, 1, 0])
    assert fits.written_for_users(caught.value)


class Fitted(GPClassifier):
    """Something with draws and predictions."""

    def __init__(self, p=(0.25, 0.75), draws=0.0, back=None):
        self.p, self.back, self.classes_ = p, back, np.array([0, 1])
        self.trace_: Any = SimpleNamespace(unconstrained=np.full(3, draws), stats={"lp": np.zeros(3)})

    def predict_proba(self, X):
        return np.array([self.p])

    def save(self, path):
        Fitted.saved = self.back or self

    @classmethod
    def load(cls, path):  # type: ignore[override]
        return cls.saved


@pytest.mark.parametrize(
    ("first", "again", "what"),
    [
        (Fitted(), Fitted(), None),
        (Fitted((np.nan, 1.0)), Fitted((np.nan, 1.0)), "not finite"),
        (Fitted((0.6, 0.6)), Fitted((0.6, 0.6)), "probabilities"),
        (Fitted((-0.1, 1.1)), Fitted((-0.1, 1.1)), "probabilities"),
        (Fitted(), Fitted(draws=1e-16), "other draws when repeated with n_jobs=1"),
        (Fitted(), Fitted((0.25 + 1e-16, 0.75 - 1e-16)), "other predictions"),
        (Fitted(back=Fitted((0.5, 0.5))), Fitted(), "comes back from its file"),
    ],
)
def test_a_fit_that_breaks_a_promise_is_found(first, again, what):
    case = Case("fits", 0, 0)
    fit = SimpleNamespace(estimator=Fitted, settings={"sampler": "hmc"}, new=None, run=lambda n_jobs: again)
    fits.judge_fit(case, fit, first)
    assert not case.broken if what is None else what in case.broken[0]


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "fit.hmcgp"
    np.save(tmp_path / "draws.npy", np.arange(6.0))
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("meta.json", '{"format": "test", "n": [1, 2]}')
        file.write(tmp_path / "draws.npy", "draws.npy")
    return path


def read_all(path):
    """Unpickle whatever a file holds."""
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            if file.read(name).startswith(b"\x80"):
                pickle.loads(file.read(name))
    raise InvalidInput("no.")


def refuse(path):
    raise InvalidInput("it is damaged.")


def crash(path):
    raise KeyError("meta.json")


@pytest.mark.parametrize(
    ("reader", "kind", "what"),
    [
        (refuse, "truncate", None),
        (lambda path: "an estimator", "truncate", "it was read as another str"),
        (lambda path: "an estimator", "numbers_in", "it was read as another str"),
        (crash, "flip", "KeyError"),
        (read_all, "plant_pickle", "the file ran code"),
    ],
)
def test_a_reader_that_breaks_a_promise_is_found(monkeypatch, archive, reader, kind, what):
    known = damage.OF_BYTES | damage.OF_ARCHIVES
    monkeypatch.setattr(damage, "OF_BYTES", {kind: known[kind]})
    monkeypatch.setattr(damage, "OF_ARCHIVES", {})
    monkeypatch.setattr(files, "sound", lambda kind: files.Sound(archive, True, reader, None, None, {}))
    report = run_case("files", 0, 0)
    assert not report.broken if what is None else what in report.broken[0]


def test_a_checkpoint_that_another_run_takes_is_found(monkeypatch, archive):
    taken = {"permuted rows": lambda path: "an estimator"}
    monkeypatch.setattr(files, "sound", lambda kind: files.Sound(archive, False, refuse, None, None, taken))
    case = Case("files", 0, 0)
    files.attempt_another_run(case, "checkpoint", files.sound("checkpoint"))
    assert case.broken == ["checkpoint of another run (permuted rows): something else"]


@pytest.mark.parametrize("name", sorted(damage.OF_BYTES | damage.OF_ARCHIVES))
def test_damage_changes_the_file(archive, monkeypatch, name):
    monkeypatch.setattr(damage, "BOMB", 10_000_000)
    content = archive.read_bytes()
    for seed in range(5):
        changed = (damage.OF_BYTES | damage.OF_ARCHIVES)[name](np.random.default_rng(seed), content, archive)
        assert changed != content


# -- interrupts --------------------------------------------------------------------------------------------------------


def interrupted(monkeypatch, tmp_path, action):
    """Judge a call in which the signal comes."""
    (tmp_path / "sent").touch()
    monkeypatch.setattr(child, "action_of", lambda task: (action, SimpleNamespace(), 1.0))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return child.run({"action": "predict", "sent": tmp_path / "sent", "expected_seconds": 1.0})
    finally:
        signal.signal(signal.SIGINT, before)


def raise_signal():
    signal.raise_signal(signal.SIGINT)


def swallow():
    try:
        raise_signal()
    except KeyboardInterrupt:
        return 1.0


def translate():
    try:
        raise_signal()
    except KeyboardInterrupt as interrupt:
        raise SystemError("returned a result with an exception set") from interrupt


def test_an_interrupt_that_is_raised_is_fine(monkeypatch, tmp_path):
    assert interrupted(monkeypatch, tmp_path, raise_signal) == {"outcome": "raised", "broken": []}


@pytest.mark.parametrize(
    ("action", "what"), [(swallow, "swallowed"), (translate, "SystemError"), (lambda: 2.0, "another result")]
)
def test_an_interrupt_that_is_lost_is_found(monkeypatch, tmp_path, action, what):
    assert what in interrupted(monkeypatch, tmp_path, action)["broken"][0]


def test_draws_kept_are_the_beginning_of_chains():
    whole = np.arange(12.0).reshape(2, 3, 2)
    assert child._is_part(whole[1:, :2], whole)
    assert not child._is_part(whole[:, 1:], whole)
