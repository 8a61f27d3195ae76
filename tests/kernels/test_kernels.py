import copy
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

from hmcgp.errors import InvalidInput
from hmcgp.kernels import (
    Constant,
    Kernel,
    Linear,
    LocallyLinear,
    Matern,
    SquaredExponential,
    White,
)
from hmcgp.model import Model
from hmcgp.priors import Gamma, LogNormal
from tests.helpers.checks import check_gradient, random_symmetric, squared_exponential
from tests.helpers.kernels import KERNELS

NAMES = ["FL", "RW", "CL"]
X = np.random.default_rng(3).normal(size=(9, 3)) * [1.0, 2.0, 0.5]
X[3:5, 2], X[6:8, 0] = X[0, 2], X[1, 0]  # some categories in common
X2 = np.random.default_rng(4).normal(size=(5, 3))


def describe(kernel):
    return type(kernel).__name__ + "/" + ",".join(p.name for p in kernel.parameters(NAMES))


def values_of(kernel):
    return [p.value for p in kernel.parameters(NAMES)]


def rebuilt(kernel, theta):
    """The kernel at a flat vector of all its parameters."""
    values, start = [], 0
    for p in kernel.parameters(NAMES):
        part = theta[start : start + p.size]
        values.append(part if p.labels is not None else float(part[0]))
        start += p.size
    return kernel.with_values(values)


@pytest.mark.parametrize("kernel", KERNELS, ids=describe)
def test_vjp_matches_central_differences(kernel):
    G = random_symmetric(np.random.default_rng(0), len(X))

    def fun(theta):
        K, pullback = rebuilt(kernel, theta).vjp(X)
        return np.sum(G * K), pullback(G)

    check_gradient(fun, np.concatenate([np.atleast_1d(v) for v in values_of(kernel)]).astype(float))


@pytest.mark.parametrize("kernel", KERNELS, ids=describe)
def test_inducing_vjp_matches_central_differences(kernel):
    rng = np.random.default_rng(0)
    inputs = np.vstack([X, X2])  # some of them are inducing inputs themselves
    G, g = rng.normal(size=(len(inputs), len(X2))), rng.normal(size=len(inputs))

    def fun(theta):
        K, k, pullback = rebuilt(kernel, theta).inducing_vjp(inputs, X2)
        return np.sum(G * K) + g @ k, pullback(G, g)

    K, k, _ = kernel.inducing_vjp(inputs, X2)
    np.testing.assert_allclose(K, kernel(inputs, X2), rtol=1e-14)
    np.testing.assert_allclose(k, kernel.diag(inputs), rtol=1e-14)
    check_gradient(fun, np.concatenate([np.atleast_1d(v) for v in values_of(kernel)]).astype(float))


@pytest.mark.parametrize("n", [1, 64, 150])
def test_the_default_inducing_pullback_sums_over_blocks_of_rows(n):
    """Against the formula that kernels have of their own."""
    rng = np.random.default_rng(n)
    rows, kernel = rng.normal(size=(n, 3)), SquaredExponential(1.3, [0.5, 1.0, 3.0]) * Linear(0.4) + White(0.2)
    G, g = rng.normal(size=(n, len(X2))), rng.normal(size=n)
    own, default = kernel.inducing_vjp(rows, X2), Kernel.inducing_vjp(kernel, rows, X2)
    np.testing.assert_allclose(default[0], own[0], rtol=1e-13)
    np.testing.assert_allclose(default[2](G, g), own[2](G, g), rtol=1e-10)


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.has_input_vjp], ids=describe)
def test_input_vjp_matches_central_differences(kernel):
    G = random_symmetric(np.random.default_rng(0), len(X))

    def fun(x):
        return np.sum(G * kernel(x.reshape(X.shape))), kernel.input_vjp(x.reshape(X.shape), G).ravel()

    check_gradient(fun, X.ravel())


@pytest.mark.parametrize("kernel", KERNELS, ids=describe)
def test_matrix_cross_and_diagonal_agree(kernel):
    K, _ = kernel.vjp(X)
    np.testing.assert_allclose(K, kernel(X), rtol=1e-14)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(kernel.diag(X), np.diag(K), rtol=1e-14)
    together = kernel(np.vstack([X, X2]))
    np.testing.assert_allclose(kernel(X, X2), together[: len(X), len(X) :], rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("kernel", KERNELS, ids=describe)
def test_positive_semidefinite(kernel):
    X = np.random.default_rng(8).normal(size=(40, 3))
    lowest = np.linalg.eigvalsh(kernel(X))[0]
    assert lowest >= -1e-12 * np.max(kernel.diag(X)) * len(X)


@pytest.mark.parametrize("kernel", KERNELS, ids=describe)
def test_binding_its_own_values_changes_nothing(kernel):
    np.testing.assert_array_equal(kernel.with_values(values_of(kernel))(X), kernel(X))


def test_against_scikit_learn():
    length_scale = np.array([0.5, 1.0, 3.0])
    ours = 2.0 * SquaredExponential(1.3, length_scale) + Linear(0.4) + White(0.1) + Constant(0.7)
    theirs = (
        sk.ConstantKernel(2.6) * sk.RBF(length_scale)
        + sk.ConstantKernel(0.4) * sk.DotProduct(sigma_0=0.0)
        + sk.WhiteKernel(0.1)
        + sk.ConstantKernel(0.7)
    )
    np.testing.assert_allclose(ours(X), theirs(X), rtol=1e-13)
    np.testing.assert_allclose(ours(X, X2), theirs(X, X2), rtol=1e-13)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 130])
def test_compiled_squared_exponential_matches_its_twin(n):
    X = np.random.default_rng(n).normal(size=(n, 4))
    kernel = SquaredExponential(1.7, [0.3, 1.0, 2.0, 50.0])
    np.testing.assert_allclose(kernel(X), squared_exponential(X, 1.7, kernel.length_scale), rtol=1e-13, atol=1e-290)


def test_close_points_do_not_cancel():
    X = np.array([[1e6], [1e6 + 1e-3]])
    np.testing.assert_allclose(
        SquaredExponential(1.0, 1e-3)(X)[0, 1], np.exp(-0.5), rtol=1e-6
    )  # 1e6 + 1e-3 is itself rounded


def test_on_reads_only_its_columns():
    kernel = SquaredExponential(1.0, 1.0).on(["CL", "FL"]).with_positions(NAMES)
    np.testing.assert_array_equal(kernel(X), SquaredExponential(1.0, 1.0)(np.ascontiguousarray(X[:, [2, 0]])))


def test_names_are_short_until_two_would_clash():
    def names(k):
        return [n for p in k.parameters(NAMES) for n in p.flat_names]

    assert names(SquaredExponential(ard=True)) == ["variance", *(f"length_scale[{c}]" for c in NAMES)]
    assert names(SquaredExponential()) == ["variance", "length_scale"]
    assert names(SquaredExponential() + Linear() + White()) == [
        "squared_exponential.variance", "length_scale", "linear.variance", "white.variance"
    ]  # fmt: skip
    assert names(SquaredExponential() + Constant()) == [
        "squared_exponential.variance", "length_scale", "constant.variance"
    ]  # fmt: skip
    assert names(Gamma(2.0, 1.0) * SquaredExponential(1.0)) == ["variance", "length_scale", "scale"]
    assert names(SquaredExponential(1.0, ard=True).on(["CL"])) == ["variance", "length_scale[CL]"]
    once = Gamma(2.0, 1.0) * SquaredExponential(1.0, 1.0)
    assert [p.name for p in (Gamma(2.0, 1.0) * once).parameters(NAMES) if p.is_free] == ["scale", "scale_2"]
    assert [p.name for p in (White(0.1) + Constant()).parameters(NAMES) if p.is_free] == ["variance"]


def test_kernels_of_a_kind_are_numbered_in_the_order_of_the_formula():
    def free(k):
        return [p.name for p in k.parameters(NAMES) if p.is_free]

    alike = SquaredExponential(length_scale=1.0)
    assert free(alike + alike) == ["squared_exponential1.variance", "squared_exponential2.variance"]
    assert free(SquaredExponential(1.0, 1.0) + alike * Linear(1.0) + 2.0 * alike.on(0)) == [
        "squared_exponential2.variance", "squared_exponential3.variance"
    ]  # fmt: skip
    scale = Gamma(2.0, 1.0)
    assert free(scale * SquaredExponential(1.0, 1.0) + scale * (Linear(1.0).on(1) + White(1.0))) == [
        "squared_exponential.scale", "sum.scale"
    ]  # fmt: skip
    local = LocallyLinear(Linear() + White(), Linear())
    assert free(local) == ["slope.linear.variance", "slope.white.variance", "offset.variance"]


def test_a_number_fixes_a_parameter_and_a_prior_infers_it():
    free = {p.name: p.is_free for p in SquaredExponential(LogNormal(-3, 3), 1.0).parameters(NAMES)}
    assert free == {"variance": True, "length_scale": False}


def test_evaluating_a_question_says_what_to_do():
    with pytest.raises(InvalidInput, match="'variance' of SquaredExponential is left to its default prior"):
        SquaredExponential()(X)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, [1.0, -2.0, 1.0]], ids=str)
def test_impossible_values_are_refused(bad):
    with pytest.raises(InvalidInput, match="must be positive and finite"):
        SquaredExponential(1.0, bad)


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["BD"], "'BD', which is not among"), ([3], "only 3 inputs"), ([], "empty"), ([0, -3], "an input twice")],
)
def test_missing_columns_are_named(columns, message):
    with pytest.raises(InvalidInput, match=message):
        SquaredExponential().on(columns).parameters(NAMES)


@pytest.mark.parametrize("columns", [[True, False], [1.0], None, slice(2)], ids=str)
def test_columns_that_are_neither_positions_nor_names(columns):
    with pytest.raises(InvalidInput, match="must be positions or names"):
        SquaredExponential().on(columns)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SquaredExponential(variance=[1.0, 2.0]), "takes one number"),
        (lambda: SquaredExponential(length_scale=np.ones((2, 2))), "one number per input"),
        (lambda: SquaredExponential(length_scale=[LogNormal(0, 1)] * 2), "or one prior"),
        (lambda: [1.0, 2.0] * SquaredExponential(), "takes one number"),  # type: ignore[operator]
        (lambda: SquaredExponential(1.0, [1.0, 2.0])(X), "2 length scales"),
        (lambda: SquaredExponential(1.0, 1.0)(X, X[:, :2]), "3 and 2 columns"),
        (lambda: SquaredExponential(1.0, 1.0).on("FL")(X), "with_positions"),
        (lambda: Matern(variance=1.0, length_scale=1.0)(X, X[:, :2]), "3 and 2 columns"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_wrong_number_of_length_scales():
    with pytest.raises(InvalidInput, match="2 values for 3 inputs"):
        SquaredExponential(1.0, [1.0, 2.0]).parameters(NAMES)


def test_only_kernels_can_be_added():
    kernel: Any = SquaredExponential(1.0, 1.0)
    assert sum([kernel, White(0.1)]) == kernel + White(0.1)
    for add in (lambda: kernel + 2.0, lambda: 2.0 + kernel):
        with pytest.raises(TypeError, match="Constant"):
            add()


class Opaque(Linear):
    """A kernel without derivatives in its inputs."""

    input_vjp = Kernel.input_vjp


def test_kernels_without_input_derivatives_say_so():
    kernel = 2.0 * (SquaredExponential(1.0, 1.0) + Opaque(1.0))
    assert SquaredExponential(1.0, 1.0).has_input_vjp
    assert not kernel.has_input_vjp
    with pytest.raises(InvalidInput, match="Opaque does not know its derivatives"):
        kernel.input_vjp(X, np.eye(len(X)))


def test_kernels_are_values():
    kernel: Any = SquaredExponential(1.0, [2.0, 1.0, 3.0]) + White(0.1)
    assert len({kernel, copy.deepcopy(kernel)}) == 1
    assert kernel == copy.deepcopy(kernel) == pickle.loads(pickle.dumps(kernel))
    with pytest.raises(AttributeError):
        kernel.left.variance = 3.0


def test_every_kernel_is_tested():
    """A new kernel must appear in the list of tests/helpers/kernels.py."""
    import hmcgp.kernels as module

    def parts(k):
        return {type(k)}.union(*[parts(c) for c in k.children().values()])

    public = {v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Kernel) and v is not Kernel}
    # those whose input is a code: test_kernels_derivatives, test_coregional
    public -= {module.WithDerivatives, module.Coregional}
    assert public <= set().union(*[parts(k) for k in KERNELS])


def test_one_fixed_number_for_all_inputs_is_one_parameter():
    # with ard=True too: the pullback gives one derivative for it
    kernel = SquaredExponential(LogNormal(0, 1), 1.5, ard=True)
    assert [p.size for p in kernel.parameters(NAMES)] == [1, 1]
    model = Model(X, np.sign(X[:, 0]), kernel=kernel)
    check_gradient(model.logdensity_and_grad, np.array([0.3]), rtol=1e-5)
