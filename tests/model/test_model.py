import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from hmcgp import datasets
from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import Evidence, Exact, Laplace
from hmcgp.evidence.laplace import LaplacePosterior
from hmcgp.kernels import Constant, Linear, SquaredExponential, White
from hmcgp.likelihoods import Logistic, Probit
from hmcgp.model import Model
from hmcgp.numerics.density import NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.parameters import parameter
from hmcgp.parameters.declaration import Value
from hmcgp.priors import Beta, Gamma, HalfCauchy, HalfNormal, InverseGamma, LogNormal, Normal
from hmcgp.samplers.integrators import init, leapfrog
from tests.helpers.checks import check_gradient, classification_problem

X, Y, _ = classification_problem(30, 3, seed=7)
FRAME = pd.DataFrame(X, columns=["FL", "RW", "CL"])


KERNELS = [
    None,
    SquaredExponential(LogNormal(-3, 3), LogNormal(1.5, 1.5), ard=True),
    SquaredExponential(HalfNormal(2.0), InverseGamma(3.0, 2.0)),
    SquaredExponential(HalfCauchy(1.0), 2.0) + Linear(Gamma(2.0, 1.0), ard=True) + White(0.1),
    Beta(2.0, 2.0) * SquaredExponential(3.0, ard=True).on(["RW", "CL"]) + Constant(1.0),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("likelihood", ["logistic", "probit"])
def test_gradient_of_the_log_density(kernel, likelihood):
    model = Model(FRAME, Y, kernel=kernel, likelihood=likelihood)
    rng = np.random.default_rng(1)
    for _ in range(3):
        check_gradient(model.logdensity_and_grad, 0.7 * rng.normal(size=model.n_dim), rtol=1e-5, atol=1e-6)


def test_log_density_is_evidence_plus_prior_plus_jacobian():
    model = Model(FRAME, Y, kernel=SquaredExponential(LogNormal(-3, 3), Gamma(2.0, 1.0)))
    theta = np.array([0.7, 1.3])
    log_z, _ = model.log_evidence(theta)
    expected = log_z + LogNormal(-3, 3).logpdf(theta[:1]) + Gamma(2.0, 1.0).logpdf(theta[1:]) + np.log(theta).sum()
    np.testing.assert_allclose(model.logdensity_and_grad(np.log(theta))[0], expected.item(), rtol=1e-13)


@pytest.mark.parametrize("evidence", ["laplace", "ep", "lower"])
def test_value_without_gradient(evidence):
    model = Model(FRAME, Y, evidence=evidence)
    u = model.initial(np.random.default_rng(3))
    whole, value = model.evaluate(u), model.evaluate(u, gradient=False)
    np.testing.assert_allclose(value.logdensity, whole.logdensity, rtol=1e-12)
    assert np.isnan(value.grad).all()
    failed = model.evaluate(np.full(4, 750.0), gradient=False)
    assert (failed.logdensity, failed.failure) == (-np.inf, NOT_POSITIVE_DEFINITE)


def test_every_parameter_may_be_fixed():
    model = Model(FRAME, Y, kernel=SquaredExponential(1.0, 2.0))
    assert (model.n_dim, model.names) == (0, [])
    empty = np.empty(0)
    value, grad = model.logdensity_and_grad(empty)
    assert (value, grad.shape) == (model.log_evidence({})[0], (0,))
    assert model.unconstrain(model.constrain(empty)).shape == model.initial(np.random.default_rng(0)).shape == (0,)
    free = Model(FRAME, Y, kernel=SquaredExponential(LogNormal(0, 1), 2.0))
    np.testing.assert_allclose(value, free.log_evidence(np.ones(1))[0], rtol=1e-12)


def test_names_follow_the_columns():
    assert Model(FRAME, Y).names == ["variance", "length_scale[FL]", "length_scale[RW]", "length_scale[CL]"]
    assert Model(X, Y).names[1] == "length_scale[x0]"
    mixed = Model(FRAME, Y, kernel=SquaredExponential(1.0, ard=True).on("RW") + Linear())
    assert mixed.names == ["length_scale[RW]", "variance"]


def test_coordinates_go_there_and_back():
    model = Model(FRAME, Y, kernel=KERNELS[4])
    u = np.array([0.3, -1.2, 2.0])
    np.testing.assert_allclose(model.unconstrain(model.constrain(u)), u, rtol=1e-12)


def test_theta_by_name():
    model = Model(FRAME, Y)
    expected = model.unconstrain(np.array([2.0, 1.0, 1.0, 5.0]))
    by_name: dict[str, Any] = {"variance": 2.0, "length_scale": [1.0, 1.0, 5.0]}
    np.testing.assert_array_equal(model.unconstrain(by_name), expected)
    np.testing.assert_array_equal(
        model.unconstrain({"variance": 2.0, "length_scale": 1.0, "length_scale[CL]": 5.0}), expected
    )


@pytest.mark.parametrize(
    ("theta", "message"),
    [
        ({"variance": 1.0}, "gives no value for"),
        ({"variance": 1.0, "lengthscale": 1.0}, "names \\['lengthscale'\\]"),
        (np.ones(3), "must have shape \\(4,\\)"),
        (np.array([-1.0, 1.0, 1.0, 1.0]), "outside the support of its prior: variance = -1. It holds natural"),
        (np.array([1.0, np.nan, 1.0, 1.0]), "outside the support"),
        ({"variance": 1.0, "length_scale": [1.0, 2.0]}, "takes one number or 3"),
    ],
)
def test_wrong_theta_is_explained(theta, message):
    with pytest.raises(InvalidInput, match=message):
        Model(FRAME, Y).unconstrain(theta)


def test_wrong_lengths_are_refused():
    model = Model(FRAME, Y)
    for call in (model.logdensity_and_grad, model.constrain):
        with pytest.raises(InvalidInput, match=r"'u' must have shape \(4,\)"):
            call(np.zeros(5))
    for theta in (np.full(4, -1.0), np.zeros(4)):  # logarithms, as scikit-learn has them
        with pytest.raises(InvalidInput, match="not their logarithms"):
            model.log_evidence(theta)


def test_initial_is_a_draw_from_the_prior():
    model = Model(FRAME, Y, kernel=SquaredExponential(LogNormal(-3, 3), LogNormal(1.5, 1.5), ard=True))
    rng = np.random.default_rng(2)
    u = np.array([model.initial(rng) for _ in range(4000)])
    standard_error = np.array([3.0, 1.5, 1.5, 1.5]) / np.sqrt(4000)
    assert (np.abs(u.mean(axis=0) - [-3.0, 1.5, 1.5, 1.5]) < 4.0 * standard_error).all()


@dataclass(frozen=True)
class Failing(Laplace):
    error: type[Exception] = NotConverged
    supports: ClassVar = (Logistic,)

    def __call__(self, *args, **kwargs):
        raise self.error("no")


@pytest.mark.parametrize(
    ("error", "code"), [(NotConverged, NOT_CONVERGED), (NotPositiveDefinite, NOT_POSITIVE_DEFINITE)]
)
def test_numerical_trouble_becomes_minus_infinity_and_a_code(error, code):
    carry = (np.ones(30),)
    e = Model(FRAME, Y, evidence=Failing(error=error)).evaluate(np.zeros(4), carry)
    assert (e.logdensity, e.failure) == (-np.inf, code)
    assert (e.grad == 0.0).all()
    assert e.carry is carry


def test_a_bug_is_not_swallowed():
    with pytest.raises(KeyError):
        Model(FRAME, Y, evidence=Failing(error=KeyError)).evaluate(np.zeros(4))


@dataclass(frozen=True)
class TwoParameters(Probit):
    """Stands for any likelihood with parameters of its own; the provider below uses nothing else of it."""

    variance: Value = parameter("variance")  # the name of a parameter of the kernel, too
    flip: Value = parameter("flip", support=(0.0, 0.5))


@dataclass(frozen=True)
class ClosedForm:
    """log Z = -½ variance tr K + n log flip, whose derivatives are known."""

    supports: ClassVar = (TwoParameters,)

    def __call__(self, K, y, likelihood, start=None, *, gradient=True):
        n, variance, flip = len(y), likelihood.variance, likelihood.flip
        log_z = -0.5 * variance * np.trace(K) + n * np.log(flip)
        dlik = np.array([-0.5 * np.trace(K), n / flip])
        return Evidence(log_z, -0.5 * variance * np.eye(n), dlik, LaplacePosterior(y, y, y, None), 0, 0.0)


@pytest.mark.parametrize(
    ("likelihood", "names"),
    [
        (TwoParameters(LogNormal(0, 1), Beta(1, 4, 0.5)), ["likelihood.variance", "flip"]),
        (TwoParameters(0.3, Beta(1, 4, 0.5)), ["flip"]),
        (TwoParameters(Gamma(2.0, 1.0), 0.1), ["likelihood.variance"]),
        (TwoParameters(0.3, 0.1), []),
    ],
    ids=str,
)
def test_parameters_of_a_likelihood_are_sampled_with_those_of_the_kernel(likelihood, names):
    kernel = SquaredExponential(LogNormal(0, 1), 1.5)
    model = Model(FRAME, Y, kernel=kernel, likelihood=likelihood, evidence=ClosedForm())
    assert model.names == ["variance", *names]
    u = np.array([0.3, -0.8, 0.5])[: model.n_dim]
    check_gradient(model.logdensity_and_grad, u)
    likelihood = model.likelihood_at(model.constrain(u))
    assert 0.0 < likelihood.flip < 0.5
    log_z, _ = model.log_evidence(model.constrain(u))
    assert log_z == pytest.approx(-15.0 * likelihood.variance * np.exp(0.3) + 30.0 * np.log(likelihood.flip), rel=1e-12)


def test_a_prior_beyond_the_support_of_a_likelihood_is_refused():
    with pytest.raises(InvalidInput, match=r"'flip' must be strictly between 0 and 0\.5, but its prior Beta"):
        Model(FRAME, Y, likelihood=TwoParameters(1.0, Beta(1, 1)), evidence=ClosedForm())


@pytest.mark.parametrize("u", [-1e4, -701.0, -300.0, 300.0, 699.0, 1e300, np.inf, np.nan])
def test_extreme_coordinates_never_give_nan(u):
    model = Model(FRAME, Y)
    for direction in np.eye(4):
        position = np.where(direction == 1.0, u, 0.0)
        value, grad = model.logdensity_and_grad(position)
        assert np.isfinite(value) or (value == -np.inf and (grad == 0.0).all())
        assert np.isfinite(grad).all()


def test_the_carry_changes_the_work_and_not_the_answer():
    model = Model(FRAME, Y)
    u = np.array([1.0, 0.5, 0.2, 1.0])
    carry = None
    for step in range(4):
        warm = model.evaluate(u + 0.05 * step, carry)
        carry = warm.carry
    cold = model.evaluate(u + 0.15)
    assert warm.solver_iterations < cold.solver_iterations
    np.testing.assert_allclose(warm.logdensity, cold.logdensity, rtol=1e-12)
    np.testing.assert_allclose(warm.grad, cold.grad, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"likelihood": "logit"},
            r"'likelihood' must be one of \['binomial', 'gaussian', 'label_noise', 'logistic', 'multinomial_probit', '",
        ),
        (
            {"evidence": "laplac"},
            r"'evidence' must be one of \['ep', 'exact', 'iterative', 'laplace', 'lower', 'multinomial_ep', 'naive', "
            r"'sampled', 'softmax', 'tap', 'upper'\]",
        ),
        ({"likelihood": Failing()}, "'likelihood' must be"),
        ({"evidence": Logistic()}, "'evidence' must be"),
        (
            {"likelihood": Probit(), "evidence": Failing()},
            r"Failing cannot integrate Probit \(it takes Logistic\): take evidence='laplace' or evidence='ep'",
        ),
        (
            {"likelihood": "gaussian", "evidence": "laplace"},
            r"Laplace cannot .* Gaussian .*evidence='exact' or .*'iterative'\.$",
        ),
        ({"likelihood": "probit", "evidence": "exact"}, r"Exact cannot integrate Probit .*take evidence='laplace'"),
        ({"kernel": "rbf"}, r"'kernel' must be a kernel of hmcgp.kernels, .*got 'rbf'"),
        ({"kernel": SquaredExponential("wide")}, "must be a number, .* or a prior"),
        (
            {"kernel": SquaredExponential(length_scale=Normal(0.5, 1.0))},
            "'length_scale' is positive, but its prior Normal",
        ),
        ({"evidence": Laplace}, r"evidence=Laplace\(\)"),
        ({"input_names": ["a", "b"]}, "need 3 different names"),
        ({"input_names": ["a", "b", "a"]}, "need 3 different names"),
        ({"kernel": SquaredExponential().on("BD")}, "'BD', which is not among the inputs: FL, RW, CL"),
    ],
)
def test_bad_settings_are_explained(change, message):
    with pytest.raises(InvalidInput, match=message):
        Model(FRAME, Y, **change)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (X[:, 0], Y, "Expected 2D array"),
        (X + 1j, Y, "Complex data not supported"),
        (X.astype(str), (Y + 1) / 2, "labels -1|could not convert"),
        (X, Y[:-1], "one value per row"),
        (X, (Y + 1) / 2, "labels -1 and \\+1"),
        (X, np.ones(30), "labels -1 and \\+1"),
        (np.where(X > 2, np.nan, X) * np.inf, Y, "contains (NaN|infinity)"),
    ],
)
def test_bad_data_are_explained(X, y, message):
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=message):
        Model(X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [(np.where(Y > 0, np.nan, Y), "'y' must be finite; it holds nan in row 0"), (Y[:-1], "one value per row")],
)
def test_bad_numbers_are_explained(y, message):
    with pytest.raises(InvalidInput, match=message):
        Model(X, y, likelihood="gaussian")


def test_evidence_follows_the_likelihood():
    assert isinstance(Model(X, Y).evidence, Laplace)
    assert isinstance(Model(X, Y, likelihood="gaussian").evidence, Exact)


def test_a_model_pickles():
    model = Model(FRAME, Y)
    u = np.zeros(4)
    assert pickle.loads(pickle.dumps(model)).logdensity_and_grad(u)[0] == model.logdensity_and_grad(u)[0]


@pytest.mark.parametrize("evidence", ["laplace", "lower"])
def test_a_trajectory_there_and_back_returns(evidence):
    """50 leapfrog steps, the momentum reversed, 50 more: warm starts leave no trace in the density."""
    pima = datasets.load_pima()
    inputs = pima.data[pima.train]
    inputs = (inputs - inputs.mean()) / inputs.std()
    model = Model(inputs, np.where(pima.target[pima.train] == "Yes", 1.0, -1.0), evidence=evidence)
    rng = np.random.default_rng(4)
    state = init(model, np.concatenate([[1.0], np.ones(7)]))
    begin, momentum = state.position, rng.normal(size=8)
    for _ in range(2):
        for _ in range(50):
            state, momentum, _ = leapfrog(model, state, momentum, 0.1)
        momentum = -momentum
    np.testing.assert_allclose(state.position, begin, atol=1e-8)


def test_normal_priors_taken_together_are_the_sum_of_each():
    """`HyperPrior` evaluates priors that are normal in u by one formula."""
    X, y = np.random.default_rng(0).normal(size=(6, 2)), np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
    variance, length_scale = LogNormal(0.3, 1.5), LogNormal(-1.0, 0.7)
    model = Model(X, y, kernel=SquaredExponential(variance=variance, length_scale=length_scale, ard=True))
    u = np.array([0.4, -1.3, 2.0])
    parts = [variance.logpdf_unconstrained(u[:1]), length_scale.logpdf_unconstrained(u[1:])]
    value, grad = model.log_prior(u)
    np.testing.assert_allclose(value, sum(v.sum() for v, _ in parts), rtol=1e-14)
    np.testing.assert_allclose(grad, np.concatenate([g for _, g in parts]), rtol=1e-14)
    mixed = Model(X, y, kernel=SquaredExponential(variance=Gamma(2.0, 1.0), length_scale=length_scale, ard=True))
    value, _ = mixed.log_prior(u)
    np.testing.assert_allclose(
        value, Gamma(2.0, 1.0).logpdf_unconstrained(u[:1])[0].sum() + parts[1][0].sum(), rtol=1e-14
    )
