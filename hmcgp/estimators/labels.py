"""Tables of labels: two classes as -1 and +1, several as 0, 1, 2, …."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from hmcgp.errors import InvalidInput
from hmcgp.estimators.columns import Columns, plain_targets
from hmcgp.estimators.default_kernel import curve_line_and_offset
from hmcgp.estimators.outputs import OneOutput
from hmcgp.estimators.settings import gaps_allowed, validated
from hmcgp.estimators.table import Inputs, NewRows, Targets, TrainingTable, warn_about_copies
from hmcgp.estimators.weights import class_weights, concatenate_weights, drop_zero_weight_rows
from hmcgp.evidence import EvidenceProvider, MultinomialEP, SoftmaxLaplace
from hmcgp.kernels import Kernel
from hmcgp.kernels.per_class import PerClass
from hmcgp.likelihoods import Classes, Likelihood, MultinomialProbit, Softmax
from hmcgp.model import GrowingModel, Model
from hmcgp.posterior.replicates import replicated_codes
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.runtime.checks import lowered
from hmcgp.runtime.typing import Array

_NAMES_OF_CLASSES = ("softmax", "multinomial_probit")
# names of likelihoods and of evidence for several classes, with the evidence and the likelihood that they then mean
_SEVERAL: list[tuple[tuple[str, ...], tuple[str, ...], type[Any], type[Classes]]] = [
    (("logistic", "softmax"), ("laplace", "softmax"), SoftmaxLaplace, Softmax),
    (("probit", "multinomial_probit"), ("ep", "multinomial_ep"), MultinomialEP, MultinomialProbit),
]


@dataclass(frozen=True, eq=False)
class LabelTargets(Targets):
    """Classes, how the model numbers them, and their weights."""

    layout: ClassVar[OneOutput] = OneOutput()  # type: ignore[misc]
    classes: NDArray[Any]  # (C,), sorted
    has_codes: bool  # True: 0, 1, 2, …; False: -1 and +1
    class_weights: Array | None  # (C,)

    def attributes(self) -> dict[str, Any]:
        return {"classes_": self.classes}

    def from_codes(self, codes: NDArray[Any]) -> Array:
        """Targets of the model from the positions of the labels among the classes."""
        return np.asarray(codes if self.has_codes else 2.0 * codes - 1.0, dtype=np.float64)

    def codes(self, y: Array) -> NDArray[np.intp]:
        """Positions among the classes, from targets of the model."""
        return (y if self.has_codes else (y + 1.0) / 2.0).astype(int)

    def encode(self, y: Any, likelihood: Likelihood) -> Array:
        labels = column_or_1d(plain_targets(y))
        unknown = sorted(set(labels.tolist()) - set(self.classes.tolist()), key=str)
        if unknown:
            raise InvalidInput(f"'y' holds the labels {unknown[:5]}, which are not among {self.classes.tolist()}.")
        return self.from_codes(self.positions(labels))

    def positions(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        """Positions of known labels among the classes, of the shape of the labels."""
        return np.searchsorted(self.classes.astype(labels.dtype), labels)

    def new_rows(self, model: GrowingModel, X: Array, y: Array, weights: Array | None, row_data: Any) -> NewRows:
        new = _row_weights(self.class_weights, self.codes(y), weights)
        both = concatenate_weights((model.likelihood.weights, len(model.y)), (new, len(y)))
        return NewRows(X, y, None if both is None else model.likelihood.weighted(both), self)

    def observed(self, model: Model) -> NDArray[Any]:
        labels = self.classes[self.codes(model.y)]
        return labels if labels.dtype.kind != "O" else labels.astype(str)

    def log_units(self, model: Model) -> Array:
        return np.zeros(len(model.y))

    def replicates(
        self, rng: np.random.Generator, model: Model, draws: WeightedDraws, n_jobs: int | None
    ) -> NDArray[Any]:
        labels = self.classes[replicated_codes(rng, model, draws, n_jobs=n_jobs)]
        return labels if labels.dtype.kind != "O" else labels.astype(str)


def label_table(gp: Any, X: Any, y: Any, sample_weight: Any) -> TrainingTable:
    """Training table of a classifier, which learns the names of the columns; arguments as of `GPClassifier.fit`."""
    X, y, weights, _ = drop_zero_weight_rows(X, y, sample_weight)
    columns = Columns.learn(X, gp.missing)
    X, y = validated(gp, columns.encode(X), gaps_allowed(gp), y, ensure_min_samples=2)
    check_labels(y)
    classes, codes = np.unique(y, return_inverse=True)
    check_several(classes)
    of_class = None
    if gp.class_weight is not None:
        of_class = class_weights(gp.class_weight, classes, codes, y, weights)
        weights = _row_weights(of_class, codes, weights)
        if weights is not None and not weights.all():  # classes of weight 0 are left out
            keep = weights > 0.0
            there, codes = np.unique(codes[keep], return_inverse=True)
            X, weights, classes, of_class = X[keep], weights[keep], classes[there], of_class[there]
            check_several(classes)
    weights = concatenate_weights((weights, len(X)))
    likelihood = _likelihood(gp.likelihood, gp.evidence, len(classes))
    of_codes = isinstance(gp.likelihood, Classes) or lowered(gp.likelihood) in _NAMES_OF_CLASSES
    targets = LabelTargets(classes, len(classes) > 2 or of_codes, of_class)
    inputs = Inputs.learn(gp, X, columns, weights)
    X = inputs.gaps.complete(X)
    encoded = targets.from_codes(codes)
    warn_about_copies(X, encoded)
    kernel = _kernel(gp.kernel, curve_line_and_offset(inputs.categories), classes)
    names = {"list of classes": classes.tolist()}
    return TrainingTable(X, encoded, weights, inputs, targets, kernel, likelihood, {"y": encoded}, names)


def _row_weights(of_class: Array | None, codes: NDArray[np.intp], weights: Array | None) -> Array | None:
    """Weights of the rows times those of their classes."""
    if of_class is None:
        return weights
    return np.asarray(of_class[codes] * (1.0 if weights is None else weights))


def check_labels(y: NDArray[Any]) -> None:
    """Refuse targets that cannot be sorted, or are no labels."""
    text = [isinstance(label, str) for label in np.ravel(y)] if y.dtype == object else [False]
    if any(text) and not all(text):
        other = next(label for label, is_text in zip(np.ravel(y), text, strict=True) if not is_text)
        raise InvalidInput(
            f"'y' mixes text with labels such as {other!r} ({type(other).__name__}), which cannot be sorted: make "
            "all of them text, y.astype(str), or all of them numbers."
        )
    check_classification_targets(y)


def check_several(classes: NDArray[Any], what: str = "class") -> None:
    """Refuse a single class."""
    if len(classes) == 1:
        raise InvalidInput(
            f"'y' holds one {what} only, {classes[0]}: there is nothing to tell apart. "
            "Check the selection of rows, or stratify the split."
        )


def _likelihood(
    likelihood: str | Likelihood, evidence: str | EvidenceProvider | None, n_classes: int
) -> str | Likelihood:
    """The likelihood of so many classes that a name stands for."""
    if n_classes == 2 or isinstance(likelihood, Classes):
        return likelihood
    for names, evidence_names, provider, kind in _SEVERAL:
        fits = evidence is None or isinstance(evidence, provider) or lowered(evidence) in evidence_names
        if lowered(likelihood) in names and fits:
            return kind()
    raise InvalidInput(
        f"'y' holds {n_classes} classes, for which there are likelihood='logistic' (their softmax) with "
        "evidence='laplace', and likelihood='probit' (the multinomial probit) with evidence='ep'; got "
        f"likelihood={likelihood!r} with evidence={evidence!r}. Take one of those pairs, or one class "
        "against the rest: sklearn.multiclass.OneVsRestClassifier(gp)."
    )


def _kernel(kernel: Kernel | Sequence[Kernel] | None, default: Kernel, classes: NDArray[Any]) -> Kernel:
    """The kernel that is given, or the default; of a list, one for each of several classes."""
    names = tuple(map(str, classes))
    if isinstance(kernel, list | tuple):
        if len(kernel) != len(names):
            raise InvalidInput(
                f"'kernel' lists {len(kernel)} kernels for {len(names)} classes ({', '.join(names)}): give one for "
                "each, or one that all share."
            )
        return PerClass(tuple(kernel), names)
    return default if kernel is None else kernel  # type: ignore[return-value]
