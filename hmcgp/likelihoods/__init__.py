"""Likelihoods p(y | f) of a target y given its latent value f.

    Logistic           p(y | f) = σ(y f) = 1/(1 + exp(-y f))   y = ±1
    Probit             p(y | f) = Φ(y f)                       y = ±1
    LabelNoise         p(y | f) = ε + (1 - 2ε) Φ(y f)          y = ±1, flipped at rate ε; or a step H(y f) instead of Φ
    Softmax            p(y | f) = exp f_y/Σ_c exp f_c          y = 0, 1, …, C - 1; a latent value f_c for each class
    MultinomialProbit  p(y | f) = P(f_y + e_y is largest)      as of Softmax, each f_c with noise e_c ~ N(0, 1)
    Gaussian           p(y | f) = N(y; f, noise)               y any number; noise is a variance
    VaryingNoise       p(y | f) = N(y; f, noise(x))            y any number; log noise(x) linear in functions of x
    OutputNoise        p(y | f) = N(y; f, noise_a)             y any number, of the output a that the last input numbers
    StudentT           p(y | f) = t_ν((y - f)/s)/s             y any number, sometimes far off
    Poisson            p(y | f) = Poisson(y; e exp f)          y = 0, 1, 2, …, counted in the exposure e
    NegativeBinomial   as Poisson, of variance m + α m²        y = 0, 1, 2, …
    Binomial           p(y | f) = Binomial(y; N, σ(f))         y = 0, …, N successes of N trials
    Ordinal            p(y | f) = Φ(b_{y+1} - f) - Φ(b_y - f)  y = 0, 1, …, C - 1 in their order; cut points b

A likelihood gives its logarithm with three derivatives, for evidence providers, and for labels its average over a
Gaussian f, for predictions.  Everything is computed in log space: nothing overflows at |f| = 1e3.

A likelihood may have parameters of its own, marked as those of kernels are (`hmcgp.parameters`): a number fixes one, a
prior infers it together with the kernel's.
"""

from __future__ import annotations

from hmcgp.likelihoods.base import Derivatives, Likelihood
from hmcgp.likelihoods.binary import LabelNoise, Logistic, Probit
from hmcgp.likelihoods.binomial import Binomial
from hmcgp.likelihoods.counts import Counts
from hmcgp.likelihoods.numbers import Gaussian, NoisyNumbers, OutputNoise, VaryingNoise, is_gaussian
from hmcgp.likelihoods.ordinal import Ordinal
from hmcgp.likelihoods.poisson import NegativeBinomial, Poisson
from hmcgp.likelihoods.several_classes import Classes, MultinomialProbit, Softmax
from hmcgp.likelihoods.student_t import HeavyTerms, StudentT

__all__ = [
    "Binomial",
    "Classes",
    "Counts",
    "Derivatives",
    "Gaussian",
    "HeavyTerms",
    "LabelNoise",
    "Likelihood",
    "Logistic",
    "MultinomialProbit",
    "NegativeBinomial",
    "NoisyNumbers",
    "Ordinal",
    "OutputNoise",
    "Poisson",
    "Probit",
    "Softmax",
    "StudentT",
    "VaryingNoise",
    "is_gaussian",
]
