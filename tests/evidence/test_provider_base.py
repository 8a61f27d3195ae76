"""What every provider refuses before compiled code sees it, and what posteriors say they can do."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp.errors import InvalidInput
from hmcgp.evidence import (
    EP,
    Exact,
    Iterative,
    Laplace,
    LowerBound,
    MultinomialEP,
    NaiveMeanField,
    SoftmaxLaplace,
    SupportsJointPrediction,
    SupportsLeaveGroupsOut,
    SupportsLeaveOneOut,
    SupportsMoreRows,
    SupportsWarmStart,
    UpperBound,
)
from hmcgp.likelihoods import Gaussian, Logistic, MultinomialProbit, Probit, Softmax
from tests.helpers.checks import classification_problem

N = 8
PAIRS = [
    (Laplace(), Logistic()),
    (EP(), Probit()),
    (NaiveMeanField(), Probit()),
    (LowerBound(), Logistic()),
    (UpperBound(), Logistic()),
    (SoftmaxLaplace(), Softmax()),
    (MultinomialEP(), MultinomialProbit()),
    (Exact(), Gaussian(0.3)),
    (Iterative(), Gaussian(0.3)),
]
pair = pytest.mark.parametrize(("provider", "likelihood"), PAIRS, ids=[type(p).__name__ for p, _ in PAIRS])


def problem(likelihood):
    _, y, K = classification_problem(N, 2)
    return K, np.arange(N) % 3.0 if likelihood.targets == "classes" else y


@pair
def test_arrays_that_compiled_code_would_misread_are_refused(provider, likelihood):
    K, y = problem(likelihood)
    name = type(provider).__name__
    for bad, message in (
        (K.astype(np.float32), "must be an array of float64; got an array of float32"),
        (K.tolist(), "must be an array of float64; got a list"),
        (K.T, "must be C-contiguous"),
        (K[:5].copy(), r"must have shape .*\(n, n\).*; got \(5, 8\)"),
        (K[0].copy(), r"must have shape .*; got \(8,\)"),
    ):
        with pytest.raises(InvalidInput, match=f"'K' of {name} {message}"):
            provider(bad, y, likelihood)
    for bad, message in ((y[:5], r"must have shape \(8,\).*; got \(5,\)"), (y.astype(int), "must be .* float64")):
        with pytest.raises(InvalidInput, match=f"'y' of {name} {message}"):
            provider(K, bad, likelihood)


@pair
def test_a_stack_of_covariances_has_one_for_each_class(provider, likelihood):
    K, y = problem(likelihood)
    with pytest.raises(InvalidInput, match=r"'K' (of \w+ must have shape \(n, n\)|must hold one .* 3 classes; got 2)"):
        provider(np.stack([K, K]), y, likelihood)


@pytest.mark.parametrize(("provider", "likelihood"), PAIRS[:7])
def test_a_start_of_other_rows_is_refused(provider, likelihood):
    K, y = problem(likelihood)
    start = provider(K, y, likelihood).posterior.start
    for bad in (start[:-1], np.append(start, 0.0), start.astype(np.float32)):
        with pytest.raises(InvalidInput, match=rf"'start' of {type(provider).__name__} .* shape \({start.size},\)"):
            provider(K, y, likelihood, bad)


@pytest.mark.parametrize(("provider", "likelihood"), PAIRS[:7])
def test_a_start_that_leads_nowhere_is_forgotten(provider, likelihood):
    """The density at a point must not depend on where the sampler came from."""
    K, y = problem(likelihood)
    cold = provider(K, y, likelihood)
    warm = provider(K, y, likelihood, np.full_like(cold.posterior.start, np.nan))
    np.testing.assert_allclose(warm.log_z, cold.log_z, rtol=1e-9)


@pair
@pytest.mark.parametrize("weighted", [False, True])
def test_what_a_posterior_can_do(provider, likelihood, weighted):
    K, y = problem(likelihood)
    posterior = provider(K, y, likelihood.weighted(np.full(N, 2.0)) if weighted else likelihood).posterior
    exact = isinstance(provider, Exact)
    assert isinstance(posterior, SupportsLeaveOneOut) == (not isinstance(provider, UpperBound | Iterative))
    assert isinstance(posterior, SupportsLeaveGroupsOut) == (exact and not weighted)
    assert isinstance(posterior, SupportsMoreRows) == (exact and not weighted)
    assert isinstance(posterior, SupportsJointPrediction)
    warm = isinstance(provider, Laplace | EP | NaiveMeanField | LowerBound | MultinomialEP)
    assert isinstance(posterior, SupportsWarmStart) == warm


def test_an_estimate_is_not_called_exact():
    with pytest.raises(InvalidInput, match=r"Exact\(solver='iterative'\) is now Iterative\(\)"):
        Exact(solver="Iterative")
    with pytest.raises(InvalidInput, match="'solver' of Exact must be 'cholesky'; got 'lu'"):
        Exact("lu")
    assert Exact("cholesky") == Exact()
