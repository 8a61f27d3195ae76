"""Covariance functions and the ways to combine them."""

from hmcgp.kernels.base import Kernel, Parameter, parameter
from hmcgp.kernels.combined import On, Product, Scaled, Sum
from hmcgp.kernels.compact import Spherical, Triangle
from hmcgp.kernels.neural import NeuralNetwork
from hmcgp.kernels.nonstationary import Constant, Linear, White
from hmcgp.kernels.stationary import Matern, RationalQuadratic, SquaredExponential

__all__ = [
    "Constant",
    "Kernel",
    "Linear",
    "Matern",
    "NeuralNetwork",
    "On",
    "Parameter",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "Spherical",
    "SquaredExponential",
    "Sum",
    "Triangle",
    "White",
    "parameter",
]
