"""Covariance functions and the ways to combine them."""

from hmcgp.kernels.base import Kernel, Parameter, parameter
from hmcgp.kernels.basis import RadialBasis
from hmcgp.kernels.categorical import Categorical
from hmcgp.kernels.combined import On, Product, Scaled, Sum
from hmcgp.kernels.compact import Spherical, Triangle
from hmcgp.kernels.gibbs import Gibbs
from hmcgp.kernels.neural import NeuralNetwork
from hmcgp.kernels.nonstationary import Constant, Linear, Polynomial, White, Wiener
from hmcgp.kernels.separable import ExponentialPower, Periodic
from hmcgp.kernels.stationary import Matern, RationalQuadratic, SquaredExponential

__all__ = [
    "Categorical",
    "Constant",
    "ExponentialPower",
    "Gibbs",
    "Kernel",
    "Linear",
    "Matern",
    "NeuralNetwork",
    "On",
    "Parameter",
    "Periodic",
    "Polynomial",
    "Product",
    "RadialBasis",
    "RationalQuadratic",
    "Scaled",
    "Spherical",
    "SquaredExponential",
    "Sum",
    "Triangle",
    "White",
    "Wiener",
    "parameter",
]
