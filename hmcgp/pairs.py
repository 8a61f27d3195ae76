"""Which likelihood goes with which evidence provider, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hmcgp.errors import InvalidInput
from hmcgp.evidence import (
    EP,
    TAP,
    EvidenceProvider,
    Exact,
    Laplace,
    LowerBound,
    MultinomialEP,
    NaiveMeanField,
    SoftmaxLaplace,
    UpperBound,
)
from hmcgp.likelihoods import (
    Classes,
    Gaussian,
    LabelNoise,
    Likelihood,
    Logistic,
    MultinomialProbit,
    Probit,
    Softmax,
    VaryingNoise,
)

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "logistic": Logistic,
    "probit": Probit,
    "label_noise": LabelNoise,
    "gaussian": Gaussian,
    "varying_noise": VaryingNoise,
    "softmax": Softmax,
    "multinomial_probit": MultinomialProbit,
}
PROVIDERS: dict[str, type[Any]] = {
    "exact": Exact,
    "laplace": Laplace,
    "ep": EP,
    "tap": TAP,
    "naive": NaiveMeanField,
    "lower": LowerBound,
    "upper": UpperBound,
    "softmax": SoftmaxLaplace,
    "multinomial_ep": MultinomialEP,
}
_OF_CLASSES = {"laplace": "softmax", "ep": "multinomial_ep"}  # what a method is called where there are several classes


def _named(argument: str, value: Any, known: Mapping[str, type[Any]]) -> Any:
    """An instance from a name or an instance."""
    if isinstance(value, str):
        if value not in known:
            raise InvalidInput(f"'{argument}' must be one of {sorted(known)} or an instance; got {value!r}.")
        return known[value]()
    return value


def resolve(
    likelihood: str | Likelihood, evidence: str | EvidenceProvider | None
) -> tuple[Likelihood, EvidenceProvider]:
    """Instances of a likelihood and an evidence provider that fit each other.

    Parameters
    ----------
    likelihood : str or Likelihood
    evidence : str or EvidenceProvider or None
        None takes the first of `PROVIDERS` that fits; for several classes, "laplace" is "softmax" and "ep" is
        "multinomial_ep".

    Raises
    ------
    InvalidInput
        For an unknown name, or a pair that does not fit, with the list of those that do.
    """
    lik: Any = _named("likelihood", likelihood, LIKELIHOODS)
    if not isinstance(lik, Likelihood):
        raise InvalidInput(f"'likelihood' must be one of {sorted(LIKELIHOODS)} or a Likelihood; got {lik!r}.")
    if evidence is None:
        evidence = next((name for name, p in PROVIDERS.items() if isinstance(lik, p.supports)), "laplace")
    if isinstance(lik, Classes) and isinstance(evidence, str):
        evidence = _OF_CLASSES.get(evidence, evidence)
    provider: Any = _named("evidence", evidence, PROVIDERS)
    if not hasattr(provider, "supports") or isinstance(provider, type):
        raise InvalidInput(f"'evidence' must be one of {sorted(PROVIDERS)} or an evidence provider; got {provider!r}.")
    if not isinstance(lik, provider.supports):
        pairs = "; ".join(f"{p.__name__}: {', '.join(c.__name__ for c in p.supports)}" for p in PROVIDERS.values())
        raise InvalidInput(f"{type(provider).__name__} cannot integrate {type(lik).__name__}. Pairs that fit: {pairs}.")
    return lik, provider
