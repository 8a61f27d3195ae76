"""Numbers and priors in the units of the table: fits do not depend on the units in which a table is written."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from hmcgp import GPClassifier, GPCounts, GPOrdinal, GPRegressor
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.kernels import (
    Additive,
    Categorical,
    Constant,
    Embedded,
    Gibbs,
    IntegratedWiener,
    Linear,
    LocallyLinear,
    Matern,
    MonotoneWarp,
    NeuralNetwork,
    Periodic,
    Polynomial,
    RadialBasis,
    Rescaled,
    SinhArcsinh,
    SquaredExponential,
    Warped,
    White,
    Wiener,
)
from hmcgp.likelihoods import Gaussian, OutputNoise, VaryingNoise
from hmcgp.priors import SAAS, Gamma, HalfNormal, InverseGamma, LogNormal, Normal
from hmcgp.priors.units import InUnits
from tests.helpers.checks import check_gradient

RNG = np.random.default_rng(5)
X = RNG.normal(size=(14, 3)) * [1.0, 5.0, 0.2] + [0.0, 40.0, 3.0]
Y = 7.0 + 3.0 * np.sin(X[:, 0]) + 0.1 * RNG.normal(size=14)
LABELS = np.where(X[:, 0] > 0.0, "a", "b")
NEW = X[:4] + 0.1
C, B = 1000.0, 20.0  # factors of units of inputs and target


def model_of(kernel, X=X, y=Y, **settings):
    kind = GPClassifier if y is LABELS else GPRegressor
    more = {"refine": None} if y is LABELS else {}
    return kind(kernel, sampler="map", random_state=0, progressbar=False, **more, **settings)


def built(kernel, X, y, **settings):
    """The model of a fit without the fit."""
    gp = model_of(kernel, X, y, **settings)
    return gp._training_table(X, y, None, None).model(gp.evidence, standardize=True)


def scaled_log(X):
    """A function of the inputs in kilo-units, as `np.log1p(np.abs(...))` is of units."""
    return np.log1p(np.abs(X / C))


def plain_log(X):
    return np.log1p(np.abs(X))


def same_in_other_units(kernel, other, **settings):
    """Compare log densities and gradients of two models at several points."""
    one, two = built(kernel, X, Y, **settings), built(other, C * X, B * Y, **settings)
    rng = np.random.default_rng(0)
    assert one.names == two.names
    for _ in range(3):
        theta = one.constrain(one.initial(rng))
        a, b = (m.evaluate(m.unconstrain(theta)) for m in (one, two))
        np.testing.assert_allclose(b.logdensity, a.logdensity, rtol=1e-8)
        np.testing.assert_allclose(b.grad, a.grad, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(two.kernel_at(theta)(two.X), one.kernel_at(theta)(one.X), rtol=1e-8)


def kernels(c, b):
    """Kernels in which every number is written in units c times smaller, and targets b times smaller."""
    v, ell = LogNormal(np.log(2.0 * b**2), 0.5), LogNormal(np.log(3.0 * c), 0.4)
    return {
        "ard": SquaredExponential(v, ell, ard=True),
        "shared prior": Matern(variance=v, length_scale=Gamma(3.0, 1.0 / c)),
        "shared number": Matern(variance=v, length_scale=2.0 * c),
        "numbers": SquaredExponential(2.0 * b**2, [c, 5.0 * c, 0.3 * c]) + White(HalfNormal(b**2)),
        "columns": SquaredExponential(v, ell).on([1]) + Linear(0.3 * b**2 / c**2).on([2]) + Wiener(b**2 / c, c).on(0),
        "spline": IntegratedWiener(0.1 * b**2 / c**3, -4.0 * c).on(0) + Constant(b**2),
        "product": Periodic(v, 1.0, period=7.0 * c).on([1]) * SquaredExponential(1.0, 30.0 * c).on([1]),
        "open": SquaredExponential(1.0, 30.0 * c).on([1]) * Periodic(period=7.0 * c).on([1]) + Constant(b**2),
        "factor": 2.0 * SquaredExponential(v, 3.0 * c) + (b**2 * Categorical(0.7)).on([0]),
        "additive": Additive(
            SquaredExponential(v, InverseGamma(3.0, 4.0 * c)) + Matern(variance=0.1 * b**2, length_scale=2.0 * c)
        ),
        "gibbs": Gibbs(v, ell, Normal(0.0, 0.3 / c), ard=True),
        "bumps": Gibbs(v, 2.0 * c, 0.2, RadialBasis([35.0 * c, 45.0 * c], 4.0 * c)).on([1]),
        "amplitude": Rescaled(SquaredExponential(v, ell, ard=True), weight=[0.1 / c, 0.02 / c, 0.3 / c]),
        "local": LocallyLinear(SquaredExponential(0.5 * b**2 / c**2, ell), Constant(b**2)).on([1]),
        "neural": NeuralNetwork(v, 0.5, Gamma(2.0, 3.0 * c**2), ard=True),
        "polynomial": Polynomial([0.2 * b / c**2, 0.01 * b / c**2, b / c**2], 0.5 * b, degree=2),
        "circle": Embedded(Matern(variance=v, length_scale=1.5), period=LogNormal(np.log(8.0 * c), 0.2)).on([1]),
        "circles": Embedded(SquaredExponential(v, 1.5), period=LogNormal(np.log(8.0 * c), 0.2)),
        "bent": SinhArcsinh(SquaredExponential(v, ell, ard=True), tail=1.1, skew=0.2),
        "knots": MonotoneWarp(SquaredExponential(v, 2.0 * c), [35.0 * c, 40.0 * c, 45.0 * c], [0.5, 1.0, 3.0]).on([1]),
        "warp": Warped(SquaredExponential(v, 1.5), plain_log if c == 1.0 else scaled_log),
        "sparse": SquaredExponential(v, SAAS(), ard=True),
        "standardized": SquaredExponential(2.0, LogNormal(0.0, 1.0), standardized=True),
    }


@pytest.mark.parametrize("name", kernels(1.0, 1.0))
def test_a_model_does_not_depend_on_the_units_of_the_table(name):
    same_in_other_units(kernels(1.0, 1.0)[name], kernels(C, B)[name])


def test_likelihoods_are_in_the_units_of_the_target():
    noise = [Gaussian(0.3 * b**2) for b in (1.0, B)]
    prior = [VaryingNoise(LogNormal(np.log(b**2), 1.0), Normal(0.0, 0.2 / c)) for b, c in ((1.0, 1.0), (B, C))]
    bumps = [VaryingNoise(b**2, basis=RadialBasis([[0, 40 * c, 3 * c]], 3.0 * c)) for b, c in ((1.0, 1.0), (B, C))]
    for one, two in (noise, prior, bumps):
        gps = built(None, X, Y, likelihood=one), built(None, C * X, B * Y, likelihood=two)
        u = gps[0].initial(np.random.default_rng(1))
        theta = gps[0].constrain(u)
        values = [m.evaluate(m.unconstrain(theta)).logdensity for m in gps]
        np.testing.assert_allclose(values[1], values[0], rtol=1e-9)
    assert gps[0].likelihood.noise == pytest.approx(1.0 / Y.std() ** 2)


def test_a_fit_gives_the_same_draws_in_other_units():
    short: dict[str, Any] = {
        "draws": 6,
        "tune": 12,
        "chains": 1,
        "random_state": 3,
        "progressbar": False,
        "refine": None,
    }
    fits = []
    for c in (1.0, C):
        kernel = SquaredExponential(2.0, LogNormal(np.log(2.0 * c), 0.5), ard=True)
        with pytest.warns(match="chain"):
            fits.append(GPClassifier(kernel, sampler="hmc", **short).fit(c * X, LABELS))
    np.testing.assert_allclose(fits[1].trace_.draws, fits[0].trace_.draws, rtol=1e-7)
    np.testing.assert_allclose(fits[1].predict_proba(C * NEW), fits[0].predict_proba(NEW), atol=1e-7)


def test_a_period_is_in_the_units_of_the_input():
    month, rng = np.arange(72.0), np.random.default_rng(0)
    y = 3.0 + np.sin(2.0 * np.pi * month / 12.0) + 0.05 * rng.normal(size=72)

    def error(kernel):
        gp = model_of(kernel).fit(month[:48, None], y[:48])
        return np.sqrt(np.mean((gp.predict(month[48:, None]) - y[48:]) ** 2))

    assert error(Periodic(period=12.0)) < 0.07
    with pytest.warns(DataWarning, match=r"the period 166.2 is longer than the range of its input 'x0', 47"):
        assert error(Periodic(period=12.0, standardized=True)) > 0.5  # a period of twelve standard deviations


def test_length_scales_far_beyond_the_range_are_named():
    with pytest.warns(DataWarning, match="the length scale 1000 is longer than the range of its input 'x2', 0."):
        built(SquaredExponential(length_scale=1000.0).on([2]), X, Y)


@pytest.mark.parametrize(
    ("kernel", "y", "settings"),
    [
        (Gibbs(length_scale=LogNormal(0.0, 1.0)), Y, {}),  # slopes in the default units, one length scale in the user's
        (LocallyLinear(SquaredExponential(1.0), Constant()), Y, {}),  # a slope along three inputs
        (Constant(2.0), np.column_stack([Y, 9.0 * Y]), {}),  # a variance of two outputs
        (None, np.column_stack([Y, 9.0 * Y]), {"likelihood": Gaussian(0.1)}),
    ],
)
def test_a_number_of_several_units_is_refused(kernel, y, settings):
    with pytest.raises(InvalidInput, match=r"in the units of the table, but it belongs to several columns.*ard=True"):
        built(kernel, X, y, **settings)


def test_outputs_with_a_noise_of_their_own_have_units_of_their_own():
    YY = np.column_stack([Y, 9.0 * Y])
    model = built(None, X, YY, outputs="coregional", likelihood=Gaussian(0.1))
    assert isinstance(model.likelihood, OutputNoise)
    np.testing.assert_allclose(model.likelihood.noise, 0.1 / YY.std(axis=0) ** 2)
    free = built(None, X, YY, outputs="coregional", likelihood=Gaussian(LogNormal(0.0, 1.0)))
    assert free.parameters[-1].value.unit == pytest.approx(tuple(YY.var(axis=0)))


def test_categories_keep_their_codes():
    table = pd.DataFrame({"a": X[:, 1], "g": np.array(["u", "v"])[(X[:, 2] > 3.0).astype(int)]})
    kernel = SquaredExponential(length_scale=[7.0]).on("a") * Categorical(0.5).on("g")
    model = built(kernel, table, Y)
    assert model.kernel.left.kernel.length_scale == pytest.approx((7.0 / X[:, 1].std(),))
    assert model.kernel.right.kernel.weight == 0.5


@pytest.mark.parametrize("prior", [LogNormal(0.3, 0.8), LogNormal(0.3, 0.8, lower=0.1), Gamma(2.0, 1.5), Normal(1, 2)])
@pytest.mark.parametrize("unit", [3.0, (3.0, 0.2, 50.0)])
def test_a_prior_changes_with_its_variable(prior, unit):
    """p_x(x) = p(unit x) unit, with its slope, and in u with the Jacobian of x = T(u)/unit."""
    changed, units = prior.in_units(unit), np.broadcast_to(unit, 3)
    x = np.array([0.7, 1.4, 2.9]) / units
    np.testing.assert_allclose(np.exp(changed.logpdf(x)), np.exp(prior.logpdf(units * x)) * units, rtol=1e-12)
    check_gradient(lambda v: (float(changed.logpdf(v).sum()), changed.dlogpdf(v)), x)
    u = changed.transform.unconstrain(x)
    np.testing.assert_allclose(changed.transform.constrain(u), x, rtol=1e-12)
    value, slope = changed.logpdf_unconstrained(u)
    np.testing.assert_allclose(value, changed.logpdf(x) + changed.transform.log_jacobian(u), rtol=1e-10, atol=1e-12)
    check_gradient(lambda v: (float(changed.logpdf_unconstrained(v)[0].sum()), slope), u)
    check_gradient(lambda v: (float(changed.transform.constrain(v).sum()), changed.transform.dconstrain(u)), u)
    drawn = changed.sample(np.random.default_rng(0), 3)
    np.testing.assert_allclose(drawn * units, prior.sample(np.random.default_rng(0), 3))


def test_a_unit_must_be_positive():
    with pytest.raises(InvalidInput, match="positive and finite"):
        InUnits(LogNormal(0.0, 1.0), -2.0)


def test_summary_and_arviz_answer_in_either_units():
    kernel = SquaredExponential(ard=True) + Matern(length_scale=2.0) + Periodic(1.0, 1.0, period=9.0).on([1])
    gp = model_of(kernel).fit(X, Y)
    standard, own = gp.summary(None), gp.summary(None, units="input")
    spread = X.std(axis=0)
    ratio = own["mean"] / standard["mean"]
    np.testing.assert_allclose(ratio[[f"length_scale[x{i}]" for i in range(3)]], spread, rtol=1e-12)
    np.testing.assert_allclose(ratio["noise"], Y.var(), rtol=1e-12)
    assert set(standard["units"]) == {"standardized"}
    assert set(own["units"]) == {"input"}
    tree = gp.to_arviz(units="input", prior=3)
    assert tree.attrs["units"] == "input"
    np.testing.assert_allclose(np.ravel(tree["posterior"]["noise"]), own.loc["noise", "mean"])
    shared = model_of(SquaredExponential()).fit(X, Y).summary(units="input")
    assert shared["units"].to_dict() == {"variance": "input", "length_scale": "standardized", "noise": "input"}
    with pytest.raises(InvalidInput, match="units"):
        gp.summary(units="metres")


def test_a_saved_fit_keeps_its_units(tmp_path):
    kernel = Additive(SquaredExponential(2.0, LogNormal(0.0, 1.0))) + Matern(variance=1.0, length_scale=Gamma(2.0, 1.0))
    gp = model_of(kernel + Gibbs(1.0, 2.0, basis=RadialBasis([38.0, 42.0], 3.0)).on([1])).fit(X, Y)
    gp.save(tmp_path / "gp")
    again = GPRegressor.load(tmp_path / "gp")
    np.testing.assert_array_equal(again.predict(NEW), gp.predict(NEW))
    pd.testing.assert_frame_equal(again.summary(units="input"), gp.summary(units="input"))
    assert again.kernel == gp.kernel
    assert again.model_.kernel == gp.model_.kernel
    assert "weight[38]" in gp.model_.names


def test_kernels_say_what_differs_from_their_defaults():
    assert repr(SquaredExponential(length_scale=2.0, ard=True)) == "SquaredExponential(length_scale=2.0, ard=True)"
    assert repr(Gaussian(0.1, standardized=True)) == "Gaussian(noise=0.1, standardized=True)"


def test_settings_are_those_that_users_write():
    settings = GPRegressor(Additive(Matern(length_scale=2.0))).get_params()
    assert settings["kernel__kernel__standardized"] is False
    assert not {"kernel__units", "kernel__in_units", "kernel__kernel__units"} & set(settings)
    gp = GPRegressor(SquaredExponential(ard=True)).set_params(kernel__length_scale=3.0, kernel__standardized=True)
    assert gp.kernel == SquaredExponential(length_scale=3.0, ard=True, standardized=True)


@pytest.mark.parametrize("estimator", [GPCounts, GPOrdinal])
def test_kernels_of_counts_and_ordered_classes_are_in_the_units_of_the_inputs(estimator):
    y = np.digitize(Y, np.quantile(Y, [0.3, 0.7]))
    settings = {"sampler": "map", "random_state": 0, "progressbar": False}
    one, other = (estimator(SquaredExponential(1.0, 4.0 * c), **settings).fit(c * X[:, 1:2], y) for c in (1.0, C))
    assert one.kernel_.length_scale == pytest.approx(4.0 / X[:, 1].std())
    assert other.kernel_.length_scale == pytest.approx(one.kernel_.length_scale)
    np.testing.assert_allclose(
        other.latent_mean_and_variance(C * X[:, 1:2])[0], one.latent_mean_and_variance(X[:, 1:2])[0], rtol=1e-6
    )
