"""Every pair of evidence provider and likelihood passes the same checks."""

from __future__ import annotations

import pytest

from hmcgp import evidence as providers
from hmcgp.errors import NotConverged
from hmcgp.evidence import EP, Exact, Iterative, Laplace, LatentSampling, MultinomialEP, SoftmaxLaplace
from hmcgp.likelihoods import (
    Binomial,
    MultinomialProbit,
    NegativeBinomial,
    Ordinal,
    OutputNoise,
    Poisson,
    Softmax,
    StudentT,
    VaryingNoise,
)
from tests.helpers import evidence_contract as contract
from tests.helpers.checks import classification_problem
from tests.helpers.evidence_contract import CHECKS, IDS, PAIRS, soft

pair = pytest.mark.parametrize(("provider", "likelihood"), PAIRS, ids=IDS)
iterative = [(p, lik) for p, lik in PAIRS if hasattr(p, "max_iter")]


@pair
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check, provider, likelihood):
    check(provider, likelihood)


@pair
@pytest.mark.parametrize("n", [3, 12, 40])
def test_dK_matches_central_differences(provider, likelihood, n):
    contract.dK_matches_central_differences(provider, likelihood, n)


@pair
@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_cold_and_warm_starts_agree(provider, likelihood, scale):
    contract.cold_and_warm_starts_agree(provider, likelihood, scale)


@pair
@pytest.mark.parametrize("start", [1e3, -1e3, 50.0])
def test_an_absurd_start_is_survived(provider, likelihood, start):
    contract.an_absurd_start_is_survived(provider, likelihood, start)


@pytest.mark.parametrize(("provider", "likelihood"), iterative)
def test_a_budget_of_one_iteration_is_not_enough(provider, likelihood):
    _, y, K = classification_problem(20, 2)
    K = soft(K, likelihood)
    with pytest.raises(NotConverged, match=r"(decrement|residual) .* after [1-5] factorisation"):
        type(provider)(max_iter=1)(K, y, likelihood)


def test_every_public_provider_and_supported_likelihood_is_in_the_suite():
    public = {
        v
        for v in vars(providers).values()
        if isinstance(v, type) and hasattr(v, "supports") and hasattr(v, "__dataclass_fields__")
    }
    # need the inputs of their rows: test_noise.py, test_outputs.py; have a latent value per class: test_softmax.py,
    # test_multinomial.py; are estimates: test_iterative.py, test_sampled.py; are not of labels:
    # test_laplace_responses.py, test_ep_responses.py, test_student_t.py
    elsewhere = {
        (Exact, VaryingNoise),
        (Exact, OutputNoise),
        *((Iterative, lik) for lik in Iterative.supports),
        *((LatentSampling, lik) for lik in LatentSampling.supports),
        *((p, lik) for p in (Laplace, EP) for lik in (Poisson, NegativeBinomial, Binomial, Ordinal)),
        (Laplace, StudentT),
        (SoftmaxLaplace, Softmax),
        (MultinomialEP, MultinomialProbit),
    }
    assert {(p, lik) for p in public for lik in p.supports} == {(type(p), type(lik)) for p, lik in PAIRS} | elsewhere
