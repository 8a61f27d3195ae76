"""Checks of the data and the kernel that a model is given."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_array

from hmcgp.errors import InvalidInput
from hmcgp.kernels import Kernel, SquaredExponential, contract
from hmcgp.kernels.gradient_contract import Coordinates, check_derivatives
from hmcgp.kernels.per_class import PerClass
from hmcgp.likelihoods import Classes, Likelihood
from hmcgp.model.hyperparameters import Hyperparameters
from hmcgp.runtime.checks import refuse_class, refuse_huge
from hmcgp.runtime.typing import Array


def weight_rows(likelihood: Likelihood, weights: Any) -> Likelihood:
    """Likelihood with weights for its rows, where they are given; refuses to replace weights of its own."""
    if weights is None:
        return likelihood
    if likelihood.weights is not None:
        raise InvalidInput("'likelihood' has weights of its own: give 'weights' once.")
    return likelihood.weighted(weights)


def check_data(X: Any, y: Any, likelihood: Likelihood) -> tuple[Array, Array]:
    """Copies of inputs and targets: the compiled code wants writable arrays that nobody else changes."""
    if not _is_validated(X):
        X = check_array(X, dtype=np.float64, input_name="X")
    X = np.array(X, order="C")
    y = np.array(y, dtype=float, order="C")
    if y.shape != X.shape[:1] and not (likelihood.targets == "numbers" and y.ndim == 2 and len(y) == len(X)):
        raise InvalidInput(f"'y' must have one value per row of 'X'; got {y.shape} for {X.shape[0]} rows.")
    refuse_huge("y", y)
    likelihood.check_targets(y)
    return X, y


def _is_validated(X: Any) -> bool:
    """Whether scikit-learn would leave an array of inputs as it is, as that of an estimator's table."""
    return type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.size > 0 and bool(np.isfinite(X).all())


def check_input_names(names: Sequence[str] | None, X: Any, n_inputs: int) -> list[str]:
    """Names of the inputs: as given, else of the columns of a DataFrame, else x0, x1 and so on."""
    if names is None:
        names = [str(c) for c in X.columns] if hasattr(X, "columns") else [f"x{i}" for i in range(n_inputs)]
    if len(names) != n_inputs or len(set(names)) != n_inputs:
        raise InvalidInput(f"the inputs need {n_inputs} different names; got {list(names)}.")
    return list(names)


def check_kernel(kernel: Any, likelihood: Likelihood, y: Array) -> Kernel:
    """Kernel of a model: the default for None, `PerClass` for a list of one kernel per class."""
    if kernel is None:
        return SquaredExponential(ard=True)
    if isinstance(kernel, list | tuple):
        kernel = PerClass(tuple(kernel))
    refuse_class("kernel", kernel)
    if not isinstance(kernel, Kernel):
        origin = "" if isinstance(kernel, str) else f" of {type(kernel).__module__}"
        raise InvalidInput(
            f"'kernel' must be a kernel of hmcgp.kernels, such as SquaredExponential(); got {kernel!r}{origin}."
        )
    if isinstance(kernel, PerClass):
        _check_classes(kernel, likelihood, y)
    return kernel


def _check_classes(kernel: PerClass, likelihood: Likelihood, y: Array) -> None:
    if not isinstance(likelihood, Classes):
        raise InvalidInput(f"{type(likelihood).__name__} has one latent function: give one kernel.")
    if len(kernel.kernels) != likelihood.count(y):
        raise InvalidInput(
            f"'kernel' lists {len(kernel.kernels)} kernels for {likelihood.count(y)} classes: give one for each, or "
            "one that all share."
        )


def check_custom_kernel(kernel: Kernel, hyper: Hyperparameters, X: Array) -> None:
    """Check arrays and derivatives of a kernel with classes from outside this package, at draws from the prior."""
    rng = np.random.default_rng(0)
    contract.check_kernel(lambda: hyper.kernel_at(kernel, hyper.prior.sample(rng)), X)

    def gradient(dkernel: Array) -> Array:
        return hyper.gradient(contract.derivatives(kernel, dkernel, hyper.n_kernel), np.zeros(hyper.n_likelihood))

    coordinates = Coordinates(
        names=hyper.names_of_kernel,
        draw=lambda: hyper.prior.unconstrain(hyper.prior.sample(rng)),
        constrain=hyper.prior.constrain,
        kernel_at=lambda theta: hyper.kernel_at(kernel, theta),
        gradient=gradient,
    )
    check_derivatives(coordinates, X)
