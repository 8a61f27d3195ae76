"""Covariance functions and the ways to combine them."""

from hmcgp.kernels.additive import Additive, LocallyLinear
from hmcgp.kernels.algebra import On, Product, Scaled, Sum
from hmcgp.kernels.base import Kernel, Parameter, parameter
from hmcgp.kernels.categorical import Categorical, CategoryEffects
from hmcgp.kernels.checking import check_gradient
from hmcgp.kernels.coregional import Coregional
from hmcgp.kernels.derivatives import WithDerivatives
from hmcgp.kernels.gibbs import Gibbs
from hmcgp.kernels.neural import NeuralNetwork
from hmcgp.kernels.nonstationary import Constant, IntegratedWiener, Linear, Polynomial, White, Wiener
from hmcgp.kernels.separable import ExponentialPower, Periodic
from hmcgp.kernels.stationary import Matern, RationalQuadratic, Spherical, SquaredExponential, Triangle
from hmcgp.kernels.transformed import Embedded, MonotoneWarp, Rescaled, SinhArcsinh, Warped
from hmcgp.numerics.basis import RadialBasis

__all__ = [
    "Additive",
    "Categorical",
    "CategoryEffects",
    "Constant",
    "Coregional",
    "Embedded",
    "ExponentialPower",
    "Gibbs",
    "IntegratedWiener",
    "Kernel",
    "Linear",
    "LocallyLinear",
    "Matern",
    "MonotoneWarp",
    "NeuralNetwork",
    "On",
    "Parameter",
    "Periodic",
    "Polynomial",
    "Product",
    "RadialBasis",
    "RationalQuadratic",
    "Rescaled",
    "Scaled",
    "SinhArcsinh",
    "Spherical",
    "SquaredExponential",
    "Sum",
    "Triangle",
    "Warped",
    "White",
    "Wiener",
    "WithDerivatives",
    "check_gradient",
    "parameter",
]
