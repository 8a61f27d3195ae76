"""Warnings about tables that can be fitted, but perhaps not as meant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import DataWarning, warn_user
from hmcgp.estimators.columns import listed
from hmcgp.kernels import Kernel, Parameter
from hmcgp.kernels.per_class import PerClass
from hmcgp.runtime.typing import Array

SCALES_APART = 100.0  # ratio of the largest to the smallest standard deviation of inputs that are not standardised


def warn_about_constants(names: Sequence[str], constant: NDArray[np.bool_]) -> None:
    """Name inputs that never change."""
    found = [name for name, flag in zip(names, constant, strict=True) if flag]
    if found:
        warn_user(
            f"{len(found)} of {len(names)} inputs are constant in the training rows ({listed(found)}): they cannot "
            "inform the fit, and their length scales follow the prior. Drop these columns.",
            DataWarning,
        )


def warn_about_copies(X: Array, targets: Array) -> None:
    """Count rows with the inputs of another row, and those among them with another label."""
    _, place, sizes = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    place = place.ravel()
    copies = int((sizes[place] > 1).sum())
    if not copies:
        return
    pairs = np.unique(np.column_stack([place, targets]), axis=0)  # a place and a label that is found there
    labels = np.bincount(pairs[:, 0].astype(int))
    torn = int((labels[place] > 1).sum())
    conflict = f", {torn} of them those of a row with another label" if torn else ""
    warn_user(
        f"{copies} of {len(X)} rows repeat the inputs of another row{conflict}. The fit works and counts each as a "
        "case of its own, which is right where few or rounded inputs coincide; accidental copies would make the "
        "probabilities over-confident: drop those.",
        DataWarning,
    )


def warn_about_scales(X: Array, names: Sequence[str], parameters: Sequence[Parameter]) -> None:
    """Compare the scales of inputs whose length scales have default priors.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Inputs that are not standardised.
    names : sequence of str
        Of the inputs.
    parameters : sequence of Parameter
        Of the kernel, as the user gave them: None is a default prior.
    """
    spread = _spread_by_default(X, names, parameters)
    if len(spread) < 2:
        return
    least, most = min(spread, key=spread.__getitem__), max(spread, key=spread.__getitem__)
    if spread[most] > SCALES_APART * spread[least]:
        warn_user(
            f"standardize=False, and the scales of the inputs are orders of magnitude apart: the standard deviation is "
            f"{spread[least]:.2g} in {least!r} and {spread[most]:.2g} in {most!r}. The default priors expect about 1. "
            "Take standardize=True, scale these columns, or give the kernel a prior for each length scale.",
            DataWarning,
        )


def _spread_by_default(X: Array, names: Sequence[str], parameters: Sequence[Parameter]) -> dict[str, float]:
    """Standard deviations of the inputs whose length scales have default priors; constant inputs are left out."""
    by_default = [p for p in parameters if p.role == "length_scale" and p.value is None]
    labels = {label for p in by_default for label in (names if p.labels is None else p.labels)}
    return {name: float(sd) for name, sd in zip(names, X.std(axis=0), strict=True) if name in labels and sd > 0.0}


def warn_about_hyperparameters(
    n_hyperparameters: int, n_rows: int, kernel: Kernel, parameters: Sequence[Parameter]
) -> None:
    """Say when there are more hyperparameters than rows, and which kernels have fewer."""
    if n_hyperparameters <= n_rows:
        return
    remedies = []
    if isinstance(kernel, PerClass):
        remedies.append("share one kernel among all classes (kernel=SquaredExponential(ard=True))")
    if any(p.is_free and p.labels is not None and p.role == "length_scale" for p in parameters):
        remedies.append("share one length scale among all inputs (kernel=SquaredExponential())")
    remedies += ["drop inputs", "fix some hyperparameters to numbers"]
    what = f"{', '.join(remedies[:-1])}, or {remedies[-1]}"
    warn_user(
        f"there are {n_hyperparameters} hyperparameters for {n_rows} rows: most of them will only follow their priors, "
        f"and sampling takes long. {what[0].upper()}{what[1:]}.",
        DataWarning,
    )
