"""Small log densities whose every moment and quantile is known."""

from __future__ import annotations

from math import inf, lgamma

import numpy as np
from scipy import linalg, optimize, special, stats

from hmcgp.numerics.density import NOT_POSITIVE_DEFINITE, Evaluation


class Gaussian:
    """N(mean, covariance); the natural parameters are u itself."""

    def __init__(self, mean, covariance):
        self.mean = np.asarray(mean, dtype=float)
        self.covariance = np.asarray(covariance, dtype=float)
        # of scipy: the BLAS of numpy 2.5.4 crashes at 1000 x 1000 when it is told to be another processor's
        self.precision = linalg.inv(self.covariance)
        self.n_dim = len(self.mean)
        self.names = [f"x[{i}]" for i in range(self.n_dim)]

    def evaluate(self, u, carry=None, gradient=True):
        r = u - self.mean
        grad = -self.precision.dot(r)
        return Evaluation(0.5 * float(r.dot(grad)), grad)

    def constrain(self, u):
        return u.copy()

    def initial(self, rng):
        return self.mean + 2.0 * np.sqrt(np.diag(self.covariance)) * rng.standard_normal(self.n_dim)

    def marginal(self, i):
        return stats.norm(self.mean[i], np.sqrt(self.covariance[i, i]))


class LogGamma:
    """u_i = log x_i with x_i ~ Gamma(shape_i, 1): skewed, with a long left tail where the shape is small."""

    def __init__(self, shape=(0.7, 3.0)):
        self.shape = np.asarray(shape, dtype=float)
        self.n_dim = len(self.shape)
        self.names = [f"x[{i}]" for i in range(self.n_dim)]
        self.log_norm = sum(lgamma(a) for a in self.shape)

    def evaluate(self, u, carry=None, gradient=True):
        with np.errstate(over="ignore"):
            x = np.exp(u)
        value = float(self.shape.dot(u) - x.sum()) - self.log_norm
        if not value > -inf:
            return Evaluation(-inf, np.zeros_like(u))
        return Evaluation(value, self.shape - x)

    def constrain(self, u):
        return np.exp(u)

    def initial(self, rng):
        return rng.standard_normal(self.n_dim)

    def marginal(self, i):
        return stats.loggamma(self.shape[i])


class Skew(LogGamma):
    """A skewed density in more dimensions."""

    def __init__(self, n_dim=5):
        super().__init__(np.linspace(1.0, 4.0, n_dim))


class NormalMixture:
    """The distribution of x with x | z ~ N(mean(z), sd(z)^2) and z ~ N(0, 1), by quadrature over z."""

    def __init__(self, mean, sd):
        z, weight = special.roots_hermitenorm(120)
        self.weight = weight / weight.sum()
        self.centre, self.sd = mean(z), sd(z)

    def mean(self):
        return float(self.weight @ self.centre)

    def var(self):
        return float(self.weight @ (self.sd**2 + self.centre**2)) - self.mean() ** 2

    def cdf(self, x):
        return float(self.weight @ special.ndtr((x - self.centre) / self.sd))

    def ppf(self, q):
        return optimize.brentq(lambda x: self.cdf(x) - q, -50.0, 50.0)


class HalfSpace(Gaussian):
    """A standard Gaussian that cannot be computed where u_0 < edge."""

    def __init__(self, edge=0.0, n_dim=2):
        super().__init__(np.zeros(n_dim), np.eye(n_dim))
        self.edge = edge

    def evaluate(self, u, carry=None, gradient=True):
        if u[0] < self.edge:
            return Evaluation(-inf, np.zeros_like(u), "bad", 3, 0.5, NOT_POSITIVE_DEFINITE)
        return super().evaluate(u)._replace(carry="good", solver_iterations=2, solver_residual=1e-9)


class Warped(Gaussian):
    """A banana: x_1 is bent along x_0^2, so that the gradient is not linear."""

    def __init__(self, bend=0.5):
        super().__init__(np.zeros(2), np.eye(2))
        self.bend = bend

    def evaluate(self, u, carry=None, gradient=True):
        r = u[1] - self.bend * u[0] ** 2
        grad = np.array([-u[0] + 2.0 * self.bend * u[0] * r, -r])
        return Evaluation(-0.5 * float(u[0] ** 2 + r**2), grad)

    def marginal(self, i):
        return super().marginal(0) if i == 0 else NormalMixture(lambda z: self.bend * z**2, np.ones_like)


class Funnel(Gaussian):
    """A mild funnel: x_0 ~ N(0, 1) and x_1 ~ N(0, exp(x_0)), so that the scale of x_1 spans a factor of 10."""

    def __init__(self):
        super().__init__(np.zeros(2), np.eye(2))

    def evaluate(self, u, carry=None, gradient=True):
        with np.errstate(over="ignore", invalid="ignore"):
            square = u[1] ** 2 * np.exp(-u[0])
            value = -0.5 * float(u[0] ** 2 + u[0] + square)
            if not value > -inf:
                return Evaluation(-inf, np.zeros(2))
            return Evaluation(value, np.array([-u[0] - 0.5 + 0.5 * square, -u[1] * np.exp(-u[0])]))

    def marginal(self, i):
        return super().marginal(0) if i == 0 else NormalMixture(np.zeros_like, lambda z: np.exp(0.5 * z))


class WrongGradient:
    """Another density with its gradient off by a factor."""

    def __init__(self, density, factor=1.02):
        self._density = density
        self._factor = factor

    def __getattr__(self, name):
        return getattr(self._density, name)

    def evaluate(self, u, carry=None, gradient=True):
        evaluation = self._density.evaluate(u, carry)
        return evaluation._replace(grad=self._factor * evaluation.grad)


def step_of(sampler, density):
    """Transition of a sampler whose settings are all given."""
    return sampler.build_step(density, sampler.init_tuning(density, None, None, 0))


def correlated_gaussian():
    """Scales from 0.3 to 3, correlations up to 0.8."""
    correlation = np.array([[1.0, 0.8, -0.3], [0.8, 1.0, 0.1], [-0.3, 0.1, 1.0]])
    scale = np.array([0.3, 1.0, 3.0])
    return Gaussian([1.0, -2.0, 0.5], correlation * np.outer(scale, scale))
