"""Names of likelihoods and evidence providers, and which of them go together."""

from typing import Any

from hmcgp import evidence as providers
from hmcgp import likelihoods
from hmcgp.errors import InvalidInput
from hmcgp.evidence import EvidenceProvider
from hmcgp.likelihoods import Classes, Likelihood
from hmcgp.runtime.checks import lowered, name_among, refuse_class

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "logistic": likelihoods.Logistic,
    "probit": likelihoods.Probit,
    "label_noise": likelihoods.LabelNoise,
    "gaussian": likelihoods.Gaussian,
    "varying_noise": likelihoods.VaryingNoise,
    "student_t": likelihoods.StudentT,
    "softmax": likelihoods.Softmax,
    "multinomial_probit": likelihoods.MultinomialProbit,
    "poisson": likelihoods.Poisson,
    "negative_binomial": likelihoods.NegativeBinomial,
    "binomial": likelihoods.Binomial,
    "ordinal": likelihoods.Ordinal,
}
PROVIDERS: dict[str, type[Any]] = {
    "exact": providers.Exact,
    "iterative": providers.Iterative,
    "laplace": providers.Laplace,
    "ep": providers.EP,
    "tap": providers.TAP,
    "naive": providers.NaiveMeanField,
    "lower": providers.LowerBound,
    "upper": providers.UpperBound,
    "softmax": providers.SoftmaxLaplace,
    "multinomial_ep": providers.MultinomialEP,
    "sampled": providers.LatentSampling,
}
_ESTIMATORS = {  # of each type of targets, and likelihoods that it takes
    "labels": ("GPClassifier", "'logistic' or 'probit'"),
    "numbers": ("GPRegressor", "'gaussian'"),
    "counts": ("GPCounts", "'poisson', 'negative_binomial' or 'binomial'"),
    "levels": ("GPOrdinal", "'ordinal'"),
}
_NO_DENSITY = {"upper", "sampled"}  # evaluated at draws that were made with another evidence
_OF_CLASSES = {"laplace": "softmax", "ep": "multinomial_ep"}  # names of the methods for several classes


def as_likelihood(likelihood: str | Likelihood, type_of_targets: str | None = None) -> Likelihood:
    """Instance of a likelihood from its name, or itself; one of other targets ("labels", "numbers", …) is refused."""
    refuse_class("likelihood", likelihood)
    found: Any = likelihood
    if not isinstance(likelihood, Likelihood):
        known = [name for name, kind in LIKELIHOODS.items() if _explains(kind, type_of_targets)]
        name = lowered(likelihood)
        if name not in LIKELIHOODS:
            name_among("likelihood", likelihood, known, " or a Likelihood, such as Probit()")
        found = LIKELIHOODS[name]()
    if not _explains(found, type_of_targets):
        (own, names), (other, _) = _ESTIMATORS[str(type_of_targets)], _ESTIMATORS[_family(found)]
        raise InvalidInput(
            f"likelihood={likelihood!r} is for {found.targets}, and {own} explains {type_of_targets}: take {other} "
            f"for them, or likelihood={names} here."
        )
    return found


def as_provider(evidence: str | EvidenceProvider, *, several_classes: bool = False) -> EvidenceProvider:
    """Instance of an evidence provider from its name, or itself; some names mean another for several classes."""
    refuse_class("evidence", evidence)
    if isinstance(evidence, EvidenceProvider):
        return evidence
    name = name_among("evidence", evidence, PROVIDERS, " or an evidence provider, such as EP()")
    provider: EvidenceProvider = PROVIDERS[_OF_CLASSES.get(name, name) if several_classes else name]()
    return provider


def resolve(
    likelihood: str | Likelihood, evidence: str | EvidenceProvider | None
) -> tuple[Likelihood, EvidenceProvider]:
    """Instances of a likelihood and an evidence provider that fit each other, by names in any case.

    None takes the first of `PROVIDERS` that fits; for several classes, "laplace" is "softmax" and "ep" is
    "multinomial_ep".  Other pairs are refused, with the names of the evidence that fits.
    """
    lik = as_likelihood(likelihood)
    if evidence is None:
        evidence = next((name for name, p in PROVIDERS.items() if isinstance(lik, p.supports)), "laplace")
    provider: Any = as_provider(evidence, several_classes=isinstance(lik, Classes))
    if not isinstance(lik, provider.supports):
        fitting = [
            f"evidence={name!r}"
            for name, p in PROVIDERS.items()
            if isinstance(lik, p.supports) and name not in _NO_DENSITY
        ]
        others = ", ".join(c.__name__ for c in provider.supports)
        raise InvalidInput(
            f"{type(provider).__name__} cannot integrate {type(lik).__name__} (it takes {others}): take "
            f"{' or '.join(fitting) or 'an evidence provider of your own that supports it'}."
        )
    return lik, provider


def check_expectation(evidence: EvidenceProvider, likelihood: Likelihood, *, dense: bool) -> None:
    """Refuse evidence of which EM-EP cannot take expectations, other targets than labels, and what is not `dense`."""
    if not isinstance(evidence, providers.EP | providers.TAP) or likelihood.targets != "labels":
        raise InvalidInput(
            f"EM-EP takes its expectations from 'ep' or 'tap', not from {type(evidence).__name__} of "
            f"{likelihood.targets}: for labels "
            "use model.with_evidence('ep'), or method='lbfgs', which fits every evidence but 'upper'."
        )
    if not dense:
        raise InvalidInput("EM-EP knows dense covariances only: take method='lbfgs', or no inducing inputs.")


def _explains(likelihood: Any, type_of_targets: str | None) -> bool:
    return type_of_targets is None or _family(likelihood) == type_of_targets


def _family(likelihood: Any) -> str:
    """Type of targets by which estimators differ: two classes and several have one."""
    targets: str = likelihood.targets
    return "labels" if targets == "classes" else targets
