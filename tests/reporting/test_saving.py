"""What is saved comes back, to the last bit."""

from __future__ import annotations

import inspect
import json
import pickle
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone

from hmcgp import GPClassifier, GPRegressor, evidence, kernels, likelihoods, priors, samplers
from hmcgp.errors import InvalidInput
from hmcgp.reporting.conformity import field_types
from hmcgp.reporting.encoding import Decoder, Encoder, own_classes, own_fields
from tests.helpers.saved import KINDS, LABELS, MIXED, THREE, X, Y, fit, members, more_rows, quick

pytestmark = pytest.mark.filterwarnings("ignore::hmcgp.errors.HmcgpWarning")


def there_and_back(gp, path, **options):
    gp.save(path)
    return type(gp).load(path, **options)


def outputs(gp):
    """Everything that a fitted estimator says, as arrays."""
    table: Any = MIXED if gp.n_features_in_ == 3 else X
    table = table if hasattr(gp, "feature_names_in_") else table.to_numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if gp.targets == "labels":
            yield from (gp.predict_proba(table), gp.predict(table), *gp.latent_mean_and_variance(table))
        else:
            yield from gp.predict(table, return_std=True)
        yield gp.loo().pointwise
        yield gp.summary().drop(columns="units").to_numpy()
        tree = gp.to_arviz()
    for group in ("posterior", "sample_stats", "observed_data", "constant_data", "warmup_posterior"):
        if group in (tree.groups() if callable(tree.groups) else [g.strip("/") for g in tree.groups]):
            yield from (tree[group][name].values for name in sorted(tree[group].data_vars))
    yield from (np.array([gp.log_marginal_likelihood()]), gp._best)


def assert_same(one, other):
    first, second = list(outputs(one)), list(outputs(other))
    assert len(first) == len(second) > 6
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_estimator_is_the_one_that_was_saved(kind, tmp_path):
    gp = KINDS[kind]()
    again = there_and_back(gp, tmp_path / "gp")
    assert set(vars(again)) == set(vars(gp))
    assert_same(gp, again)
    again.save(tmp_path / "again")
    assert members(tmp_path / "again")["content.json"] == members(tmp_path / "gp")["content.json"]
    rows, known = more_rows(gp)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gp.append(*rows, **known)
        again.append(*rows, **known)
    assert_same(gp, again)
    assert_same(gp, there_and_back(again, tmp_path / "gp"))  # with the posteriors that append left
    if isinstance(gp.random_state, np.random.Generator):
        assert [g.random() for g in gp.random_state.spawn(2)] == [g.random() for g in again.random_state.spawn(2)]
        assert gp.random_state.random() == again.random_state.random()


def test_one_that_is_not_fitted(tmp_path):
    gp = GPRegressor(kernels.Matern(nu=1.5).on(["a"]) + 2.0 * kernels.Linear(), checkpoint=tmp_path / "x.nc")
    again = there_and_back(gp, tmp_path / "gp")
    assert again.get_params(deep=False) == gp.get_params(deep=False)
    assert set(vars(again)) == set(vars(gp))


def test_what_metadata_routing_was_told(tmp_path):
    with config_context(enable_metadata_routing=True):
        gp = quick().set_fit_request(sample_weight=True)
        again = there_and_back(gp, tmp_path / "gp")
        assert again.get_metadata_routing().fit.requests == {"sample_weight": True}
        assert there_and_back(quick(), tmp_path / "gp").get_metadata_routing().fit.requests == {"sample_weight": None}


SE = kernels.SquaredExponential()
SPECIAL = {
    kernels.Additive: kernels.Additive(SE),
    kernels.Coregional: kernels.Coregional(2).on(1) * SE.on(0),
    kernels.Embedded: kernels.Embedded(kernels.Matern(), period=2.0),
    kernels.LocallyLinear: kernels.LocallyLinear(SE, kernels.Matern(length_scale=[1.0, 2.0])),
    kernels.MonotoneWarp: kernels.MonotoneWarp(SE, [-1.0, 0.0, 1.0]).on(0),
    kernels.On: SE.on("b"),
    kernels.Product: SE * kernels.Constant(),
    kernels.Rescaled: kernels.Rescaled(SE, basis=kernels.RadialBasis([[0.0, 1.0], [1.0, 0.0]], 1.0)),
    kernels.Scaled: 3.0 * SE,
    kernels.SinhArcsinh: kernels.SinhArcsinh(SE, ard=True),
    kernels.Sum: SE + kernels.White(),
    kernels.Warped: kernels.Warped(SE, np.exp),
    kernels.WithDerivatives: kernels.WithDerivatives(SE),
    kernels.Triangle: kernels.Triangle().on(0),
    kernels.IntegratedWiener: kernels.IntegratedWiener().on(0),
    kernels.Wiener: kernels.Wiener().on(0),
}
PRIORS = {
    priors.Beta: priors.Beta(2, 2.5, upper=0.5),
    priors.HalfCauchy: priors.HalfCauchy(1.5),
    priors.HalfNormal: priors.HalfNormal(1.5),
    priors.LogNormal: priors.LogNormal(0.1, 1.0, lower=0.01),
    priors.PooledLogNormal: priors.PooledLogNormal(0.5, 1.0, 0.5),
    priors.SAAS: priors.SAAS(),
}


def public(module, base):
    return [c for n in module.__all__ if inspect.isclass(c := getattr(module, n)) and issubclass(c, base)]


@pytest.mark.parametrize(
    "cls", [c for c in public(kernels, kernels.Kernel) if not inspect.isabstract(c)], ids=lambda c: c.__name__
)
def test_every_kernel(cls, tmp_path):
    table = X.assign(b=np.arange(len(X)) % 2, a=np.abs(X.a) + 0.1)  # codes, for those that want them
    kernel = SPECIAL[cls] if cls in SPECIAL else cls()
    gp = fit(quick(GPRegressor, kernel=kernel, standardize=False), table, Y)
    again = there_and_back(gp, tmp_path / "gp")
    assert again.kernel == kernel
    assert again.model_.names == gp.model_.names
    np.testing.assert_array_equal(again.predict(table), gp.predict(table))
    assert repr(again.kernel_) == repr(gp.kernel_)


@pytest.mark.parametrize(
    "cls", [c for c in public(priors, priors.Prior) if not inspect.isabstract(c)], ids=lambda c: c.__name__
)
def test_every_prior(cls, tmp_path):
    prior = (
        PRIORS[cls] if cls in PRIORS else cls() if cls in (priors.SAAS, priors.RegularizedHorseshoe) else cls(1.0, 2.0)
    )
    if cls is priors.Beta:
        gp = quick(likelihood=likelihoods.LabelNoise(flip=prior), evidence="ep")
    elif cls is priors.Normal:
        gp = quick(kernel=kernels.SinhArcsinh(SE, skew=prior))
    else:
        gp = quick(kernel=kernels.SquaredExponential(length_scale=prior, ard=True))
    gp = fit(gp, X, LABELS)
    again = there_and_back(gp, tmp_path / "gp")
    assert again.kernel == gp.kernel
    assert [p.value for p in again.parameters_] == [p.value for p in gp.parameters_]
    for u in gp.trace_.unconstrained[0]:
        assert gp.model_.log_prior(u)[0] == again.model_.log_prior(u)[0]


@pytest.mark.parametrize(
    "value",
    [
        *[c() for c in (evidence.EP, evidence.TAP, evidence.Exact, evidence.Iterative, evidence.Laplace)],
        *[c() for c in (evidence.MultinomialEP, evidence.NaiveMeanField, evidence.SoftmaxLaplace)],
        *[c() for c in (evidence.LowerBound, evidence.UpperBound)],
        *[likelihoods.Gaussian(0.1, [1.0, 0.0], weights=[1, 2]), likelihoods.LabelNoise(0.1), likelihoods.Logistic()],
        *[likelihoods.MultinomialProbit(4), likelihoods.OutputNoise(["a", "b"], [1.0, 2.0]), likelihoods.Probit()],
        *[likelihoods.Softmax(3), likelihoods.VaryingNoise(basis=kernels.RadialBasis([0.0, 1.0], 0.5))],
    ],
    ids=str,
)
def test_every_evidence_and_likelihood(value):
    encoder = Encoder()
    assert Decoder(encoder.arrays.__getitem__).decode(encoder.encode(value, "")) == value


def test_no_evidence_likelihood_or_sampler_is_forgotten():
    known = set(own_classes().values())
    modules = (evidence, likelihoods, samplers, kernels, priors)
    settings = [
        c
        for m in modules
        for n in m.__all__
        if inspect.isclass(c := getattr(m, n)) and hasattr(c, "__dataclass_fields__")
    ]
    assert len(settings) > 50
    assert set(settings) <= known
    assert all(set(own_fields(cls)) <= set(field_types(cls)) for cls in known)  # each field has a type to be checked


def test_samplers_with_arrays(tmp_path):
    modes = samplers.Modes(np.zeros((1, 3)), np.ones((1, 3)), np.zeros(1), np.eye(3)[None], np.ones(1), ["a", "b", "c"])
    for sampler in (samplers.Metropolis(scale=np.array([0.1, 0.2])), samplers.JumpingHMC(modes=modes)):
        again = there_and_back(quick(sampler=sampler), tmp_path / "gp").sampler
        assert type(again) is type(sampler)
        for name in vars(sampler):
            np.testing.assert_equal(getattr(again, name), getattr(sampler, name))


# -- classes of the user's own ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Halved(kernels.SquaredExponential):
    """A kernel of the user's own."""

    note: str = "mine"


@dataclass(frozen=True, repr=False)
class Shifted(priors.LogNormal):
    """A prior of the user's own."""


@dataclass(frozen=True)
class Own(likelihoods.Probit):
    """A likelihood of the user's own."""


class OwnGP(GPClassifier):
    """An estimator of the user's own, that keeps something."""

    def fit(self, *args, **options):
        super().fit(*args, **options)
        self.remembered_ = {"rows": len(args[0])}
        return self


class Offset:
    """A callable with slots."""

    __slots__ = ("by",)

    def __init__(self, by):
        self.by = by

    def __call__(self, X):
        return X + self.by


def squared(X):
    return X**2


def test_classes_of_the_users_own_are_named_and_loaded_when_trusted(tmp_path):
    kernel = Halved(variance=Shifted(0.0, 1.0)) + kernels.Warped(Halved(note="b"), Offset(np.float64(2.0)))
    gp = fit(quick(kernel=kernel, likelihood=Own()), X, LABELS)
    path = tmp_path / "gp"
    gp.save(path)
    names = ", ".join(f"{__name__}.{c.__name__}" for c in (Halved,))
    with pytest.raises(InvalidInput, match=names) as caught:
        GPClassifier.load(path)
    assert all(name in str(caught.value) for name in ("Halved", "Shifted", "Offset", "Own", "trusted=["))
    with pytest.raises(InvalidInput, match=rf"{__name__}\.Own, which"):
        GPClassifier.load(path, trusted=[Halved, Shifted, Offset])
    again = GPClassifier.load(path, trusted=[Halved, Shifted, Offset, Own])
    assert type(again.kernel.left) is Halved
    assert again.kernel.right.kernel == Halved(note="b")
    assert again.kernel.right.warp.by == 2.0
    assert_same(gp, again)


def test_functions_by_name_and_lambdas_not_at_all(tmp_path):
    gp = fit(quick(kernel=kernels.Warped(SE, squared)), X, LABELS)
    gp.save(tmp_path / "gp")
    with pytest.raises(InvalidInput, match=rf"{__name__}\.squared, which are not part.*trusted=\[squared\]"):
        GPClassifier.load(tmp_path / "gp")
    again = GPClassifier.load(tmp_path / "gp", trusted=[squared])
    np.testing.assert_array_equal(again.predict_proba(X), gp.predict_proba(X))
    with pytest.raises(InvalidInput, match=r"'trusted' lists classes and functions; got 'squared'"):
        GPClassifier.load(tmp_path / "gp", trusted=["squared"])
    before = (tmp_path / "gp").read_bytes()

    def local(X):
        return X

    for function in (lambda X: X, local, print):
        with pytest.raises(InvalidInput, match=r"cannot be saved: it holds, as GPClassifier.parameters.kernel.warp, "):
            quick(kernel=kernels.Warped(SE, function)).save(tmp_path / "gp")
    assert (tmp_path / "gp").read_bytes() == before


def test_a_subclass_is_loaded_by_itself(tmp_path):
    gp = fit(quick(OwnGP), X, THREE)
    again = there_and_back(gp, tmp_path / "gp")
    assert type(again) is OwnGP
    assert again.remembered_ == {"rows": len(X)}
    with pytest.raises(InvalidInput, match=rf"holds a {__name__}\.OwnGP, not a GPClassifier"):
        GPClassifier.load(tmp_path / "gp")
    assert type(GPClassifier.load(tmp_path / "gp", trusted=[OwnGP])) is OwnGP
    with pytest.raises(InvalidInput, match="OwnGP, not a GPRegressor"):
        GPRegressor.load(tmp_path / "gp", trusted=[OwnGP])


def test_what_was_defined_in_a_script_may_move(tmp_path, monkeypatch):
    import sys

    monkeypatch.setattr(Halved, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Halved", Halved, raising=False)
    quick(kernel=Halved()).save(tmp_path / "gp")
    assert b"__main__.Halved" in members(tmp_path / "gp")["content.json"]
    monkeypatch.undo()
    assert GPClassifier.load(tmp_path / "gp", trusted=[Halved]).kernel == Halved()


# -- the file --------------------------------------------------------------------------------------------------------


def test_the_file_is_open(tmp_path):
    gp = KINDS["regression"]()
    gp.save(tmp_path / "gp")
    content = members(tmp_path / "gp")
    meta = json.loads(content["meta.json"])
    assert (meta["format"], meta["format_version"]) == ("hmcgp-estimator", 2)
    assert meta["versions"]["numpy"] == np.__version__
    assert meta["estimator"] == "GPRegressor"
    assert {name.rpartition(".")[2] for name in content} == {"json", "npy"}
    assert any(np.array_equal(array, gp.trace_.draws) for array in map(loads, only_arrays(content)))


def only_arrays(content):
    return [body for name, body in content.items() if name.endswith(".npy")]


def loads(body):
    import io

    return np.load(io.BytesIO(body), allow_pickle=False)


def test_pickle_and_clone_are_as_they_were(tmp_path):
    gp = there_and_back(KINDS["softmax"](), tmp_path / "gp")
    assert_same(gp, pickle.loads(pickle.dumps(gp)))
    assert clone(gp).get_params() == gp.get_params()
