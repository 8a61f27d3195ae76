"""Covariance functions and the ways to combine them."""

from hmcgp.kernels.base import Kernel, Parameter, parameter
from hmcgp.kernels.combined import On, Product, Scaled, Sum
from hmcgp.kernels.neural import NeuralNetwork
from hmcgp.kernels.nonstationary import Constant, Linear, White
from hmcgp.kernels.stationary import SquaredExponential

__all__ = [
    "Constant",
    "Kernel",
    "Linear",
    "NeuralNetwork",
    "On",
    "Parameter",
    "Product",
    "Scaled",
    "SquaredExponential",
    "Sum",
    "White",
    "parameter",
]
