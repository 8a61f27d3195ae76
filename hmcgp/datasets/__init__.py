"""Classical tables for Gaussian-process classification and regression.

Each loader returns a scikit-learn `Bunch`: `data` (DataFrame of the inputs, as floats), `target` (Series of labels or
numbers), `feature_names`, `target_names` for classes, `frame` (the whole table), `DESCR`, and `train`, a boolean mask,
where a split is part of the data set; or, with ``return_X_y=True``, the pair ``(data, target)``.

`load_concrete`, `load_yacht` and `load_coal_mining` read files of this package.  The others read files under the GPL,
which are in the distribution `hmcgp-data` (``pip install "hmcgp[data]"``); in a clone of the repository they are found
without it.  Where they are not found, the loaders raise `errors.MissingPackage`.  SOURCES.md in this folder and in
`hmcgp_data` names the source, licence and checksum of every file.
"""

from __future__ import annotations

from hmcgp.datasets.shipped import (
    load_breast_cancer,
    load_co2,
    load_coal_mining,
    load_concrete,
    load_crabs,
    load_glass,
    load_ionosphere,
    load_motorcycle,
    load_pima,
    load_thyroid,
    load_yacht,
)
from hmcgp.datasets.user_files import load_heart, load_sonar

__all__ = [
    "load_breast_cancer",
    "load_co2",
    "load_coal_mining",
    "load_concrete",
    "load_crabs",
    "load_glass",
    "load_heart",
    "load_ionosphere",
    "load_motorcycle",
    "load_pima",
    "load_sonar",
    "load_thyroid",
    "load_yacht",
]
