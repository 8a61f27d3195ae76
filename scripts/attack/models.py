"""Random models at random hyperparameters: `Model.evaluate` gives a number that can be relied on, or -inf."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from hmcgp import Model
from hmcgp.errors import InvalidInput
from hmcgp.evidence import EP, Iterative, Laplace, LatentSampling, UpperBound
from hmcgp.evidence.rounding import LOST_NATS
from hmcgp.likelihoods import Binomial, Gaussian, LabelNoise, Ordinal, OutputNoise, StudentT
from hmcgp.model.compatibility import PROVIDERS
from scripts.attack import trees
from scripts.attack.cases import Case
from scripts.attack.trees import chance, pick
from scripts.benchmarks import stress

POINTS = 10  # evaluations of each model
WARM = {
    "prior": 1e-8,
    "wide": 1e-6,
    "extreme": 1e-6,
}  # warm and cold agree so far, relative to the value, or to 1, or as rounding permits
GRADIENT = 1e-3  # largest relative error of a directional derivative at a draw from the prior
STEPS = (1e-3, 1e-4, 1e-2, 1e-5, 1e-6)  # of the differences
FINE_STEPS = (1e-8, 1e-10)  # tried last: inputs of 1e8 pass through many periods in 1e-6
STEEP = 1e4  # slope beyond which the density is not smooth on the scale of the shortest step
PAIRS = [
    (provider, likelihood)
    for provider in PROVIDERS.values()
    for likelihood in provider.supports
    if provider not in (UpperBound, LatentSampling)  # no density to follow
]
SETTINGS = {  # of labels, that make no difference to the answer
    EP: ("sweeps", ["parallel", "sequential"]),
    Laplace: ("newton", ["cholesky", "conjugate_gradients"]),
}


class Question(NamedTuple):
    """Arguments of a model."""

    X: Any
    y: Any
    settings: dict[str, Any]

    def model(self) -> Model:
        """Build the model."""
        return Model(self.X, self.y, **self.settings)


def random_question(rng: np.random.Generator) -> Question:
    """Random data, with a kernel and a pair of likelihood and evidence that fits."""
    provider, kind = pick(rng, PAIRS)
    n, d = int(rng.integers(2, 41)), int(rng.integers(1, 5))
    kernel: Any
    y: Any
    X, kernel, likelihood, evidence = trees.inputs(rng, n, d), trees.tree(rng, d), kind, provider()
    if kind.targets == "classes":
        c = int(rng.integers(2, 5))
        n, y = max(n, c), rng.integers(c, size=max(n, c)).astype(float)
        y[:c] = rng.permutation(c)
        X = trees.inputs(rng, n, d)
        likelihood, kernel = kind(), [trees.tree(rng, d, 2) for _ in range(c)] if chance(rng, 0.3) else kernel
    elif kind.targets == "labels":
        y = trees.labels(rng, X)
        likelihood = LabelNoise(link=pick(rng, ["probit", "step"])) if kind is LabelNoise else kind()
        if kind is not LabelNoise and provider in SETTINGS:
            name, values = SETTINGS[provider]
            evidence = provider(**{name: pick(rng, values)})
    elif kind.targets == "counts":
        likelihood, y = random_counts(rng, kind, n)
    elif kind.targets == "levels":
        levels = int(rng.integers(2, 6))
        likelihood, y = Ordinal(tuple(map(str, range(levels)))), rng.integers(levels, size=n).astype(float)
        y[:2] = 0.0, 1.0  # one level alone is refused
    else:
        if kind is OutputNoise:
            X, kernel = trees.coregional(rng, X, 2)
            likelihood = OutputNoise(("a", "b"))
        elif chance(rng, 0.1):
            X, kernel = trees.with_derivatives(rng, X)
        if kind is Gaussian:
            likelihood = Gaussian(pick(rng, [None, None, None, 1e-6, 1.0]))
        elif kind is not OutputNoise:
            likelihood = kind()
        y = trees.numbers(rng, X, (n, 2) if kind is Gaussian and chance(rng, 0.2) else (n,))
        if kind is not StudentT and chance(rng, 0.1):
            evidence = Iterative()
    settings = {"kernel": kernel, "likelihood": likelihood, "evidence": evidence}
    if chance(rng, 0.15) and kind.__name__ != "MultinomialProbit":
        settings["weights"] = rng.uniform(0.1, 3.0, size=n)
    return Question(X, y, settings)


def random_counts(rng: np.random.Generator, kind: Any, n: int) -> tuple[Any, Any]:
    """Likelihood and counts, of rows that may be none, few, or thousands."""
    if kind is Binomial:
        trials = rng.integers(1, pick(rng, [2, 10, 5000]), size=n)
        return Binomial(trials), rng.binomial(trials, rng.random()).astype(float)
    exposure = pick(rng, [None, rng.uniform(0.1, 100.0, size=n)])
    return kind(exposure=exposure), rng.poisson(pick(rng, [0.0, 1.0, 20.0, 5000.0]), size=n).astype(float)


def random_points(rng: np.random.Generator, model: Model) -> list[tuple[str, Any]]:
    """Ten positions u, from draws of the prior to where nothing makes sense."""
    p = model.n_dim
    ordinary = [("prior", model.initial(rng)) for _ in range(4)]
    far = model.initial(rng)
    far[int(rng.integers(max(p, 1))) : p][:1] = rng.choice([-50.0, -20.0, 20.0, 50.0])
    odd = pick(rng, [np.zeros(p), np.full(p, 750.0), np.full(p, np.nan), np.full(p, -np.inf), np.full(p, 50.0)])
    return [
        *ordinary,
        ("wide", 3.0 * model.initial(rng)),
        ("wide", 3.0 * rng.normal(size=p)),
        ("extreme", rng.uniform(-50.0, 50.0, size=p)),
        ("extreme", rng.choice([-50.0, 50.0], size=p)),
        ("extreme", far),
        ("extreme", odd),
    ]


def attempt(case: Case) -> None:
    """Build one model and evaluate it at ten points."""
    rng = case.rng
    question = random_question(rng)
    case.note(question.settings, f"X = {question.X!r}", f"y = {question.y!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            model = question.model()
        except InvalidInput as error:
            case.note(f"refused: {error}")
            case.count("model refused")
            case.breaks("a sound model was refused", error)
            return
        what = f"{type(model.evidence).__name__} of {type(model.likelihood).__name__}"
        for i, (kind, u) in enumerate(random_points(rng, model)):
            case.note(f"point {i} ({kind}): u = {u!r}")
            problem, outcome = examine(model, u, rng, tolerance=WARM[kind], differences=i == 0)
            case.count(outcome)
            if problem:
                case.breaks(f"{what}, point {i} ({kind}): {problem}")


def examine(model: Model, u: Any, rng: np.random.Generator, *, tolerance: float, differences: bool) -> tuple[str, str]:
    """Evaluate at u in all ways.

    Parameters
    ----------
    model : Model
    u : ndarray of shape (p,)
    rng : Generator
    tolerance : float
        To which warm and cold evaluations agree.
    differences : bool
        Compare the gradient with differences too.

    Returns
    -------
    problem : str
        The promise that was broken, or nothing.
    outcome : str
    """
    try:
        cold = model.evaluate(u.copy())
    except Exception as error:
        return f"evaluate raised {type(error).__name__}: {error}", "raised"
    value, grad = cold.logdensity, np.asarray(cold.grad)
    if grad.shape != u.shape:
        return f"a gradient of shape {grad.shape}", "wrong"
    if value == -np.inf:
        outcome = {1: "not positive definite", 2: "not converged"}.get(cold.failure, "-inf without a reason")
        problem = "" if not grad.any() and cold.failure else f"-inf with gradient {grad} and failure {cold.failure}"
        return problem or _twice(model, u, cold), outcome
    if not (np.isfinite(value) and np.isfinite(grad).all() and cold.failure == 0):
        return f"value {value}, gradient {grad}, failure {cold.failure}", "wrong"
    problem = _twice(model, u, cold) or _without_gradient(model, u, value, tolerance)
    if not problem and differences and not _is_random(model):
        problem = _differences(model, u, grad, rng)
    warm = _warm(model, u, cold, rng, tolerance)
    if warm and isinstance(model.likelihood, LabelNoise):  # not log-concave: EP may have several fixed points
        return problem, "finite, another solution from another start"
    return problem or warm, "finite"


def _twice(model: Model, u: Any, first: Any) -> str:
    """The same point again, with arrays at other addresses."""
    shift = [np.empty(size) for size in (1, 3, 5)]  # noqa: F841  moves what is allocated next
    again = model.evaluate(np.concatenate([[0.0], u])[1:])
    same = again.logdensity == first.logdensity and np.array_equal(again.grad, first.grad)
    difference = np.max(np.abs(again.grad - first.grad), initial=0.0)  # there may be no hyperparameters
    values = f"{again.logdensity!r} and {first.logdensity!r}"
    return "" if same else f"two evaluations differ: {values}, gradients by {difference:.1e}"


def _warm(model: Model, u: Any, cold: Any, rng: np.random.Generator, tolerance: float) -> str:
    near = model.evaluate(u + 0.01 * rng.normal(size=u.size))
    if near.failure:
        return ""
    warm = model.evaluate(u, near.carry)
    difference = abs(warm.logdensity - cold.logdensity)
    if difference <= tolerance * max(1.0, abs(cold.logdensity)) or difference <= min(_rounding(model, u), LOST_NATS):
        return ""
    return f"warm {warm.logdensity!r}, cold {cold.logdensity!r}"


def _covariance_and_slopes(model: Model, u: Any) -> tuple[Any, Any]:
    """K and ∂ log Z/∂K."""
    theta = model.constrain(u)
    with np.errstate(all="ignore"):
        K, _ = model.kernel_at(theta).vjp(model.X)
        return K, model.evidence(K, model.y, model.likelihood_at(theta)).dK


def _rounding(model: Model, u: Any) -> float:
    """Nats by which log Z changes, to first order, if every entry of K is off by its last bit: no more is known."""
    K, slopes = _covariance_and_slopes(model, u)
    return float(np.finfo(float).eps * np.abs(slopes * K).sum())


def _roughness(model: Model, u: Any, direction: Any) -> float:
    """Nats of rounding that come by way of K, whose entries may be worse than their last bit (an arcsine near 1)."""
    K, slopes = _covariance_and_slopes(model, u)
    ends = (model.kernel_at(model.constrain(u + h * direction)).vjp(model.X)[0] for h in (-STEPS[-1], STEPS[-1]))
    return max(_rounding(model, u), abs(float((slopes * (sum(ends) - 2.0 * K)).sum())))


def _without_gradient(model: Model, u: Any, value: float, tolerance: float) -> str:
    theta = model.constrain(u)
    with np.errstate(all="ignore"):
        K, _ = model.kernel_at(theta).vjp(model.X)
        try:
            evidence = model.evidence(K, model.y, model.likelihood_at(theta), None, gradient=False)
        except Exception as error:
            return f"without a gradient {type(error).__name__}: {error}"
        other = evidence.log_z + model.log_prior(u)[0]
    same = abs(other - value) <= tolerance * max(1.0, abs(value))
    return "" if same else f"{other!r} without a gradient, {value!r} with one"


def _is_random(model: Model) -> bool:
    """Whether the gradient is that of the value only to the tolerance of an iterative solver."""
    return isinstance(model.evidence, Iterative)


def _differences(model: Model, u: Any, grad: Any, rng: np.random.Generator) -> str:
    direction = rng.normal(size=u.size)
    direction /= np.linalg.norm(direction)
    answer = stress.evaluate(model, u)
    if answer.failure or answer.grad is None:
        return f"evaluate has an answer, and the evidence has not ({answer.failure}{answer.wrong})"
    answer = answer._replace(grad=grad - model.log_prior(u)[1])
    if not u.size or np.abs(answer.grad).max() > STEEP or _jumps(model, u, direction, answer):
        return ""
    error = stress.gradient_error(model, u, direction, answer, (*STEPS, *FINE_STEPS))
    scale = max(abs(float(answer.grad @ direction)), 1e-3 * abs(answer.log_z))
    if not error > GRADIENT or _roughness(model, u, direction) > GRADIENT * scale * STEPS[0]:
        return ""  # differences are rounding
    return f"gradient off by {error:.1e}"


def _jumps(model: Model, u: Any, direction: Any, answer: stress.Answer) -> bool:
    """Whether neighbours of a likelihood that is not log-concave are led to different solutions."""
    if not isinstance(model.likelihood, LabelNoise):
        return False
    steps = [k * STEPS[-1] for k in (-2, -1, 1, 2)]
    values = [stress.evaluate(model, u + h * direction, answer.start).log_z for h in steps]
    return not max(values) - min(values) < 1e-3
