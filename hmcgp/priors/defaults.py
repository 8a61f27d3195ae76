"""Default priors of hyperparameters, and the data they expect."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.priors.densities import Beta, LogNormal, Normal, Prior


def default_prior(role: str, n_inputs: int, targets: str = "labels") -> Prior:
    """Prior of a hyperparameter that the user left open, for standardised inputs.

    Parameters
    ----------
    role : str
        Of the hyperparameter: "variance", "length_scale", "noise", "flip", "weight", "bias", "shape", "power",
        "period", "tail", "skew", "part_variance", "coefficient", "log_slope", "log_noise", "scale", "mixing",
        "log_length_slope", "degrees_of_freedom", "dispersion", "cut", "width" or "slope".
    n_inputs : int
        Number d of inputs that share the distance in which the length scale counts, or the sum that a weight is in.
    targets : {"labels", "classes", "levels", "numbers", "counts"}, default="labels"
        Targets behind the latent function: two classes, several, ordered ones, standardised numbers, or counts, of
        whose rate it is the logarithm.

    Returns
    -------
    Prior
        `LogNormal(2, 2)` for a variance behind labels: median 7.4, 95 % within 0.15 to 370.
        `LogNormal(0, 1.5)` for a variance behind numbers or counts: median 1, 95 % within 0.05 to 19.
        `LogNormal(0.5 + log(d)/2, 1)` for a length scale: median 1.65 sqrt(d), 95 % within 0.23 to 11.7 sqrt(d).
        `Beta(1, 4, upper=0.5)` for the rate of flipped labels: mean 0.1, most probable at 0, 95 % below 0.26.
        `LogNormal(-3, 2, lower=1e-6)` for the variance of the noise on numbers: median 0.05, 95 % within 0.001 to 2.5;
        the limit keeps the covariance of numbers without noise, such as a simulator's, from becoming singular.
        `LogNormal(-log(d), 2)` for a weight that multiplies products or squares of inputs: median 1/d, so that their
        sum over d standardised inputs is of order 1; 1/weight is a squared length scale, hence twice its spread.
        `LogNormal(-log(d), 1)` for a coefficient of that kind that is raised to a power.
        `LogNormal(0, 1)` for the bias beside such a sum: median 1, 95 % within 0.14 to 7.1.
        `LogNormal(0.7, 1)` for the shape of a rational quadratic: median 2, 95 % within 0.3 to 14.
        `Beta(2, 1, upper=2)` for the power of a distance: density rising towards 2, the smooth end; median 1.4.
        `LogNormal(0, 1)` for a period: median 1, 95 % within 0.14 to 7.1; give one of your own where you can, as the
        evidence has a peak near every multiple and fraction of the true one.
        `Normal(0, 0.5/sqrt(d))` for a slope of the logarithm of an amplitude, whose d terms then add up to a factor of
        e^±½, and `Normal(0, 0.5/d)` for one of a length scale, whose changes count once more for each of d inputs.
        `LogNormal(0, 0.3)` and `Normal(0, 0.5)` for the tail and the skew of a map of an input near the identity.
        `LogNormal(0, 1)` for the slope at a knot of a warp: the identity, stretched or shrunk up to sevenfold.
        `LogNormal(0, 0.75)` and `Normal(0, 1)` for the diagonal and the rest of the factor of a covariance between
        outputs: of two, the correlation is beyond ±0.5 in 52 % of the draws, beyond ±0.9 in 13 %.
        `LogNormal(1, 1.5, lower=2)` for the degrees of freedom of noise with heavy tails: median 4.7, 95 % within 2.1
        to 53; it has a variance.
        `LogNormal(-2, 2, lower=1e-6)` for the dispersion of a negative binomial: median 0.14, 95 % within 0.003 to 7.
        `Normal(-1.5, 3)` for the first cut point between ordered levels, and `LogNormal(0, 1)` for the widths of the
        inner ones, in units of the noise.
        As for a variance, with the median divided by d^1.5, for the variance of one of d functions that are added: the
        median of the sum is then about the same for every d (heavy tails add up faster than d).

    Notes
    -----
    *Length scale.*  Standardised rows lie about sqrt(2 d) apart, so a length scale that does not grow with sqrt(d) says
    that no two rows have anything to do with each other when d is large.  Hvarfner et al. (2024, ICML) scale the median
    of a log-normal by sqrt(d) for that reason, as do we.  Their numbers, LogNormal(sqrt(2) + log(d)/2, sqrt(3)), are
    meant for optimisation in the unit cube; used here they would put more than 95 of 100 rows on one side of p = 1/2
    in 62, 22 and 3 % of the draws for d = 1, 7, 30 (ours: last line of the table), which two classes seldom look like.
    At our upper end, 11.7 sqrt(d), an input adds about 1/(70 d) to the scaled squared distance of two rows: it is
    switched off, which is what relevance needs.

    *Variance.*  The latent function has standard deviation 0.4 to 19, from "the inputs say nothing" to nearly separable
    classes.  With this prior and 80 training rows of the crabs data, the most probable variance (in the log, with
    scikit-learn's Laplace evidence, five random stratified training sets) was 500 to 1200: between 2.1 and 2.6 prior
    standard deviations up, so the prior pulls on such data but does not forbid it.

    *What the prior says about probabilities.*  Measured by drawing from it: 2000 times, hyperparameters from this prior
    (one length scale per input), 100 standard normal rows, standardised, a latent function with squared-exponential
    covariance there, and p its logistic transform.

    ======================================================  ======  ======  ======
    number of inputs d                                           1       7      30
    ======================================================  ======  ======  ======
    share of p within (0.1, 0.9)                              0.58    0.59    0.58
    share of p below 0.01 or above 0.99                       0.22    0.21    0.22
    quartiles of p, lower (the upper mirrors it)              0.14    0.17    0.16
    latent correlation of nearest rows, median                1.00    0.82    0.42
    the same, exceeded by 90 % of the draws                   1.00    0.48    0.13
    the same, exceeded by 10 % of the draws                   1.00    0.94    0.64
    latent correlation of any two rows, median                0.83    0.38    0.20
    standard deviation of p within a data set, median         0.12    0.25    0.31
    nearest rows on the same side of p = 1/2, share           0.99    0.79    0.64
    draws with more than 95 of 100 rows on one side           0.43    0.11    0.01
    ======================================================  ======  ======  ======

    Every probability is likely enough beforehand, none is forced, and neighbours resemble each other in every d.
    The same length-scale prior without the factor sqrt(d) gives nearest rows a median correlation of 0.23 in d = 7 and
    0.00 in d = 30: white noise.

    *Numbers.*  The same experiment with y = f + noise, for targets that a user has given variance 1:

    ======================================================  ======  ======  ======
    number of inputs d                                           1       7      30
    ======================================================  ======  ======  ======
    standard deviation of y within a data set, median         0.58    0.87    1.00
    the same, exceeded by 95 % of the draws                   0.14    0.28    0.33
    the same, exceeded by 5 % of the draws                     2.2     2.9     3.1
    share of the variance of y that is f, lower quartile      0.23    0.62    0.71
    the same, median                                          0.72    0.91    0.93
    ======================================================  ======  ======  ======

    The variance may rise well above 1, as it must where the length scale is long and f nearly a straight line.  The
    noise reaches from 3 % of the standard deviation of y (0.001) to all of it.

    *Other kernels.*  The first experiment with 300 draws, one length scale or weight per input where there is a choice:

    ================================  =====  =====  =====  =====  =====  =====
    share of p within (0.1, 0.9), then correlation of nearest rows, median
    --------------------------------------------------------------------------
    number of inputs d                    1      7     30      1      7     30
    ================================  =====  =====  =====  =====  =====  =====
    Matern, nu = 1.5                   0.61   0.58   0.57   1.00   0.70   0.32
    RationalQuadratic                  0.54   0.56   0.61   1.00   0.83   0.53
    ExponentialPower                   0.61   0.57   0.58   1.00   0.67   0.35
    NeuralNetwork                      0.68   0.60   0.64   1.00   0.84   0.48
    Polynomial, degree 2               0.68   0.59   0.58   1.00   0.81   0.45
    Gibbs (one length scale)           0.56   0.58   0.58   1.00   0.93   0.82
    Additive squared exponentials      0.61   0.54   0.58   1.00   0.92   0.79
    Rescaled squared exponential       0.62   0.58   0.58   1.00   0.81   0.39
    SinhArcsinh squared exponential    0.55   0.58   0.63   1.00   0.72   0.21
    ================================  =====  =====  =====  =====  =====  =====
    """
    if isinstance(n_inputs, bool) or not isinstance(n_inputs, int | np.integer) or n_inputs < 1:
        raise InvalidInput(f"'n_inputs' must be a positive whole number; got {n_inputs!r}.")
    if role not in _DEFAULTS:
        raise InvalidInput(f"no default prior for the role {role!r}; known are {', '.join(_DEFAULTS)}. Give a prior.")
    return _DEFAULTS[role](n_inputs, targets)


def _variance(targets: str) -> LogNormal:
    return LogNormal(0.0, 1.5) if targets in ("numbers", "counts") else LogNormal(2.0, 2.0)


def _part_variance(n_inputs: int, targets: str) -> Prior:
    whole = _variance(targets)
    return LogNormal(whole.mu - 1.5 * math.log(n_inputs), whole.sigma)


_DEFAULTS: dict[str, Callable[[int, str], Prior]] = {  # by role, of the number of inputs and the kind of targets
    "variance": lambda d, targets: _variance(targets),
    "length_scale": lambda d, targets: LogNormal(0.5 + 0.5 * math.log(d), 1.0),
    "noise": lambda d, targets: LogNormal(-3.0, 2.0, lower=1e-6),
    "flip": lambda d, targets: Beta(1.0, 4.0, upper=0.5),
    "weight": lambda d, targets: LogNormal(-math.log(d), 2.0),
    "bias": lambda d, targets: LogNormal(0.0, 1.0),
    "shape": lambda d, targets: LogNormal(0.7, 1.0),
    "power": lambda d, targets: Beta(2.0, 1.0, upper=2.0),
    "period": lambda d, targets: LogNormal(0.0, 1.0),
    "tail": lambda d, targets: LogNormal(0.0, 0.3),
    "skew": lambda d, targets: Normal(0.0, 0.5),
    "part_variance": _part_variance,
    "coefficient": lambda d, targets: LogNormal(-math.log(d), 1.0),
    "log_slope": lambda d, targets: Normal(0.0, 0.5 / math.sqrt(d)),
    "log_noise": lambda d, targets: Normal(0.0, 1.0 / math.sqrt(d)),
    "scale": lambda d, targets: LogNormal(0.0, 0.75),
    "mixing": lambda d, targets: Normal(0.0, 1.0),
    "log_length_slope": lambda d, targets: Normal(0.0, 0.5 / d),
    "degrees_of_freedom": lambda d, targets: LogNormal(1.0, 1.5, lower=2.0),
    "dispersion": lambda d, targets: LogNormal(-2.0, 2.0, lower=1e-6),
    "cut": lambda d, targets: Normal(-1.5, 3.0),
    "width": lambda d, targets: LogNormal(0.0, 1.0),
    "slope": lambda d, targets: LogNormal(0.0, 1.0),
}
