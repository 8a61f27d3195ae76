"""What a kernel hands over is checked before compiled code sees it, and the error names the kernel."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest

from hmcgp import Model
from hmcgp.errors import InvalidInput
from hmcgp.kernels import SquaredExponential
from hmcgp.posterior.predict import latent_moments
from hmcgp.priors import LogNormal
from tests.helpers.custom_kernels import Cauchy, N, X, Y, bent
from tests.helpers.processes import child_environment


def like(value):
    return lambda self, K, *_: value(K)


REFUSED = {
    "float32": ({"bend": like(lambda K: K.astype(np.float32))}, "Mine.vjp returned an array of float32"),
    "complex": ({"bend": like(lambda K: K.astype(complex))}, "Mine.vjp returned an array of complex128"),
    "big endian": ({"bend": like(lambda K: K.astype(">f8"))}, "Mine.vjp returned an array of >f8"),
    "one number": ({"bend": like(lambda K: K[:1, :1])}, r"Mine.vjp returned an array of shape \(1, 1\)"),
    "a row less": ({"bend": like(lambda K: K[:-1])}, r"Mine.vjp returned an array of shape \(59, 60\)"),
    "a list": ({"bend": like(lambda K: K.tolist())}, "Mine.vjp returned an object of type list"),
    "asymmetric": ({"bend": like(np.tril)}, "Mine.vjp returned a matrix that is not symmetric"),
    "negative": ({"bend": like(np.negative)}, "Mine.vjp returned a negative variance"),
    "indefinite": (
        {"bend": like(lambda K: K - 0.9 * K.mean())},
        "Mine.vjp returned a matrix that is no covariance: it has a negative eigenvalue",
    ),
    "NaN": ({"bend": like(lambda K: np.nan * K)}, "Mine.vjp returned NaN or infinity at each of 10 draws"),
    "no pullback": ({"vjp": lambda self, X: self(X)}, r"Mine.vjp returned an object of type ndarray.*\(K, pullback\)"),
    "two derivatives": (
        {"bend_grad": like(lambda g: np.append(g, g))},
        r"Mine.vjp's pullback returned an array of shape \(2,\), where \(1,\) is needed",
    ),
    "a float for derivatives": ({"bend_grad": like(lambda g: float(g[0]))}, "pullback returned an object of type"),
    "float32 at prediction": (
        {"bend_call": like(lambda K: K.astype(np.float32))},
        "Mine.__call__ returned an array of float32",
    ),
    "transposed at prediction": (
        {"bend_call": lambda self, K, X2: K.T},
        r"Mine.__call__ returned an array of shape \(2, 60\), where \(60, 2\) is needed",
    ),
    "a matrix as diagonal": ({"bend_diag": like(np.diag)}, r"Mine.diag returned an array of shape \(60, 60\)"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("place", ["alone", "in a sum"])
def test_a_broken_contract_is_refused_before_sampling(name, place):
    methods, message = REFUSED[name]
    kernel = bent(**methods)
    if place == "in a sum":
        if name == "NaN":
            message = "Sum.vjp returned NaN"
        kernel = SquaredExponential() + kernel.on([0, 1])
    with pytest.raises(InvalidInput, match=message):
        Model(X, Y, kernel=kernel)


def test_one_of_several_classes_is_named():
    with pytest.raises(InvalidInput, match=r"Mine.vjp returned an array of float32"):
        Model(X, np.arange(N) % 3, kernel=[Cauchy(), bent(**REFUSED["float32"][0]), Cauchy()], likelihood="softmax")


@pytest.mark.parametrize(
    "bend",
    [np.asfortranarray, lambda K: np.repeat(K, 2, axis=1)[:, ::2], lambda K: K[::-1, ::-1][::-1, ::-1]],
    ids=["Fortran order", "strides", "views"],
)
def test_other_memory_orders_give_the_evidence_of_c_order(bend):
    u = np.array([0.3])
    expected = Model(X, Y, kernel=Cauchy()).evaluate(u)
    found = Model(X, Y, kernel=bent(bend=like(bend))).evaluate(u)
    assert found.logdensity == expected.logdensity
    assert found.grad.tolist() == expected.grad.tolist()


def test_read_only_matrices_are_taken():
    def constant(self, X):
        C = np.ones((len(X), len(X)))
        return np.broadcast_to(np.float64(self.variance), C.shape), lambda G: np.array([np.sum(G * C)])

    model = Model(
        X,
        Y,
        kernel=bent(
            vjp=constant,
            __call__=lambda self, X, X2=None: np.full((len(X), len(X if X2 is None else X2)), self.variance),
        ),
    )
    assert np.isfinite(model.evaluate(np.zeros(1)).logdensity)


def test_overflow_is_no_broken_contract():
    """Infinities at extreme hyperparameters give -inf, whatever the provider."""
    kernel = bent(bend=lambda self, K: K * 1e300 if self.variance > 1e20 else K)
    for evidence in ("laplace", "ep"):
        evaluation = Model(X, Y, kernel=kernel, evidence=evidence).evaluate(np.array([60.0]))
        assert evaluation.logdensity == -np.inf
        assert evaluation.failure != 0
        assert evaluation.grad.tolist() == [0.0]


def test_a_negative_variance_at_some_hyperparameters_is_rejected():
    kernel = bent(bend=lambda self, K: -K if self.variance > 1e20 else K)
    model = Model(X, Y, kernel=kernel)
    assert model.evaluate(np.array([60.0])).logdensity == -np.inf
    assert np.isfinite(model.evaluate(np.array([0.0])).logdensity)


def test_a_dtype_that_changes_later_is_refused_when_it_does():
    kernel = bent(bend=lambda self, K: K.astype(np.float32) if self.variance > 1e20 else K)
    model = Model(X, Y, kernel=kernel)
    with pytest.raises(InvalidInput, match=r"Mine.vjp returned an array of float32"):
        model.evaluate(np.array([60.0]))


def test_predictions_check_what_they_are_given():
    def bend_call(self, K, X2):
        return K.astype(np.float32) if X2 is not None and 7 in K.shape else K

    model = Model(X, Y, kernel=bent(bend_call=bend_call))
    assert latent_moments(model, np.ones((1, 1)), X[:5])[0].shape == (1, 5)
    with pytest.raises(InvalidInput, match=r"Mine.__call__ returned an array of float32"):
        latent_moments(model, np.ones((1, 1)), X[:7])


@pytest.mark.parametrize("method", ["vjp", "__call__", "diag"])
def test_writing_to_the_inputs_is_refused(method):
    def standardising(self, X, *more):
        X -= X.mean(axis=0)
        return getattr(Cauchy, method)(self, X, *more)

    before = X.copy()
    with pytest.raises(InvalidInput, match=rf"Mine.{method} changed its inputs in place"):
        Model(X, Y, kernel=bent(**{method: standardising}))
    assert np.array_equal(X, before)


@dataclass(frozen=True)
class Buffered(Cauchy):
    """Writes every matrix into the same memory."""

    buffer: dict = field(default_factory=lambda: {"K": np.empty((N, N))})

    def bend(self, K):
        self.buffer["K"][:] = K
        return self.buffer["K"]


def test_a_reused_buffer_is_refused():
    with pytest.raises(InvalidInput, match=r"Buffered.vjp wrote into an array that it had returned before"):
        Model(X, Y, kernel=Buffered())


@dataclass(frozen=True)
class Cached(Cauchy):
    """Keeps its correlations, and hands them over as they are."""

    kept: dict = field(default_factory=dict)

    def _correlation(self, X, X2):
        key = X.tobytes() + X2.tobytes()
        if key not in self.kept:
            self.kept[key] = super()._correlation(X, X2)
        return self.kept[key]

    def bend(self, K):
        return self.kept.setdefault(("K", float(self.variance), K.shape), K)


@pytest.mark.parametrize(
    ("likelihood", "evidence"),
    [
        ("logistic", "laplace"),
        ("probit", "ep"),
        ("probit", "tap"),
        ("logistic", "lower"),
        ("gaussian", "exact"),
        ("softmax", "laplace"),
        ("multinomial_probit", "ep"),
    ],
)
def test_no_provider_writes_to_a_matrix_that_the_kernel_keeps(likelihood, evidence):
    y = (np.arange(N) % 3).astype(float) if likelihood in {"softmax", "multinomial_probit"} else Y
    kernel = Cached(variance=LogNormal(0.0, 1.0))
    model = Model(X, y, kernel=kernel, likelihood=likelihood, evidence=evidence)
    u = np.full(model.n_dim, 0.2)
    first = model.evaluate(u)
    model.posterior(model.constrain(u))
    copies = {key: K.copy() for key, K in kernel.kept.items()}
    again = model.evaluate(u)
    model.posterior(model.constrain(u))
    assert all(np.array_equal(copies[key], kernel.kept[key]) for key in copies)
    assert again.logdensity == first.logdensity


FLOAT32 = """
import numpy as np
from hmcgp import GPClassifier
from hmcgp.errors import InvalidInput
from tests.helpers.custom_kernels import X, Y, bent

try:
    GPClassifier(bent(bend=lambda self, K: K.astype(np.float32)), draws=5, tune=5, chains=1).fit(X, Y)
except InvalidInput as e:
    print(e)
"""


def test_float32_does_not_reach_compiled_code():
    """In a process of its own: it used to corrupt the heap, SIGABRT."""
    command = [sys.executable, "-c", FLOAT32]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=child_environment(), encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert "Mine.vjp returned an array of float32" in done.stdout


def test_kernels_of_the_package_are_not_evaluated_to_build_a_model(monkeypatch):
    """They have been tested: a model of them costs nothing more."""
    monkeypatch.setattr(SquaredExponential, "vjp", None)
    Model(X, Y, kernel=SquaredExponential(ard=True) + 2.0 * SquaredExponential().on([0]))
