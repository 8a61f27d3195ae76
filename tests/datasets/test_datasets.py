"""The data sets match their descriptions, and are found in a clone and in hmcgp-data."""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hmcgp import datasets
from hmcgp.datasets import loading
from hmcgp.errors import InvalidInput, MissingPackage

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "hmcgp" / "datasets", ROOT / "scripts" / "data" / "hmcgp_data"]


def sources(folder: Path) -> dict[str, dict[str, str]]:
    """Rows of the table of SOURCES.md, by file."""
    lines = (folder / "SOURCES.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line.startswith("| ")]
    header = rows[0]
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows[1:]}


PERMISSIVE, GPL = map(sources, FOLDERS)
SOURCES = PERMISSIVE | GPL

CLASSES = {
    "crabs": ((200, 5), {"F": 100, "M": 100}),
    "pima": ((532, 7), {"No": 355, "Yes": 177}),
    "glass": ((214, 9), {"WinNF": 76, "WinF": 70, "Head": 29, "Veh": 17, "Con": 13, "Tabl": 9}),
    "sonar": ((208, 60), {"M": 111, "R": 97}),
    "ionosphere": ((351, 34), {"good": 225, "bad": 126}),
    "thyroid": ((215, 5), {"Normal": 150, "Hyper": 35, "Hypo": 30}),
    "breast_cancer": ((683, 9), {"benign": 444, "malignant": 239}),
}
NUMBERS = {"motorcycle": (133, 1), "co2": (468, 1), "concrete": (1030, 8), "yacht": (308, 6), "coal_mining": (112, 1)}
EVERY = [*CLASSES, *NUMBERS]


@pytest.fixture(autouse=True)
def _no_user_files(monkeypatch):
    monkeypatch.delenv("HMCGP_SONAR_SPLIT", raising=False)
    monkeypatch.delenv("HMCGP_HEART_CSV", raising=False)


def load(name, **options):
    return getattr(datasets, f"load_{name}")(**options)


@pytest.mark.parametrize("name", CLASSES)
def test_classification_tables_have_the_stated_shape_and_class_counts(name):
    shape, counts = CLASSES[name]
    bunch = load(name)
    assert bunch.data.shape == shape
    assert bunch.target.value_counts().to_dict() == counts
    assert bunch.target_names == sorted(counts)


@pytest.mark.parametrize("name", NUMBERS)
def test_regression_tables_have_the_stated_shape_and_numeric_targets(name):
    bunch = load(name)
    assert bunch.data.shape == NUMBERS[name]
    assert bunch.target.dtype == np.float64
    assert "target_names" not in bunch


@pytest.mark.parametrize("name", EVERY)
def test_data_hold_inputs_only_as_finite_floats(name):
    bunch = load(name)
    assert np.isfinite(bunch.data.to_numpy(dtype=float)).all()
    assert set(bunch.data.dtypes) == {np.dtype(np.float64)}
    assert not bunch.target.isna().any()
    assert list(bunch.data.columns) == bunch.feature_names
    assert bunch.target.name not in bunch.feature_names
    assert not [column for column in bunch.feature_names if "split" in column or column.endswith("id")]
    assert len(bunch.data) == len(bunch.target) == len(bunch.frame)


@pytest.mark.parametrize("name", EVERY)
def test_return_x_y_gives_the_same_table(name):
    bunch = load(name)
    X, y = load(name, return_X_y=True)
    pd.testing.assert_frame_equal(X, bunch.data)
    pd.testing.assert_series_equal(y, bunch.target)


@pytest.mark.parametrize("name", EVERY)
def test_description_and_sources_name_the_same_origin_and_licence(name):
    source, licence = SOURCES[f"{name}.csv"]["source"], SOURCES[f"{name}.csv"]["licence"]
    text = " ".join(load(name).DESCR.split())
    assert f"Source: {source}." in text
    assert f"Licence: {licence}." in text.replace("GPL-2 | GPL-3", "GPL-2 or GPL-3")
    assert re.search(r"(Debian|PyPI) \S+ \d|\w+ \(\d{4}\)", source), "a source is a package and its version, or a paper"
    assert f"Size: {len(load(name).data)} rows, {load(name).data.shape[1]} input" in text


def test_every_csv_has_its_checksum_in_sources():
    assert set(SOURCES) == {f"{name}.csv" for name in EVERY}
    for folder in FOLDERS:
        csvs = {path.name: path for path in folder.glob("*.csv")}
        assert set(csvs) == set(sources(folder))
        for name, path in csvs.items():
            assert hashlib.sha256(path.read_bytes()).hexdigest() == SOURCES[name]["sha256"].strip("`"), name
            assert path.with_suffix(".md").is_file(), "a description goes with its csv"


def test_only_permissive_licences_are_in_the_package():
    assert {row["licence"] for row in PERMISSIVE.values()} <= {"MIT", "public domain"}
    assert {name.removesuffix(".csv") for name in PERMISSIVE} == {"concrete", "yacht", "coal_mining"}


def test_licences_of_the_files_make_up_the_licence_of_hmcgp_data():
    with (ROOT / "scripts/data/pyproject.toml").open("rb") as handle:
        expression = tomllib.load(handle)["project"]["license"]
    assert {part.strip("()") for part in expression.split(" AND ")} == {
        "BSD-3-Clause",  # the descriptions
        *(row["SPDX"].strip("`") for row in GPL.values()),
    }
    written = {
        "GPL-2.0-only": "GPL-2",
        "GPL-2.0-only OR GPL-3.0-only": "GPL-2 or GPL-3",
        "GPL-2.0-or-later": "GPL-2 or later",
    }
    assert all(row["licence"] == written[row["SPDX"].strip("`")] for row in GPL.values())


@pytest.fixture
def without_data(monkeypatch, tmp_path):
    """Hide the data of this clone, and those of an installed hmcgp-data."""
    monkeypatch.setattr(loading, "_CLONE", tmp_path / "scripts" / "data" / "hmcgp_data")
    monkeypatch.setitem(sys.modules, "hmcgp_data", None)


@pytest.mark.usefixtures("without_data")
def test_loaders_without_hmcgp_data_raise_an_error_with_the_install_command():
    for name in GPL:
        with pytest.raises(MissingPackage, match=re.escape('pip install "hmcgp[data]"')) as caught:
            load(name.removesuffix(".csv"))
        assert isinstance(caught.value, ImportError)
        assert repr(name) in str(caught.value)
    for name in PERMISSIVE:
        assert len(load(name.removesuffix(".csv")).data) > 0
    assert len(datasets.load_breast_cancer(version="diagnostic").data) == 569


@pytest.mark.usefixtures("without_data")
def test_loaders_find_an_installed_hmcgp_data(monkeypatch):
    monkeypatch.delitem(sys.modules, "hmcgp_data")
    monkeypatch.syspath_prepend(FOLDERS[1].parent)
    for name in GPL:
        bunch = load(name.removesuffix(".csv"))
        assert f"Licence: {GPL[name]['licence']}." in bunch.DESCR.replace("GPL-2 | GPL-3", "GPL-2 or GPL-3")


def test_coal_mining_disasters_are_191_with_their_exposures():
    coal = datasets.load_coal_mining()
    assert coal.target.sum() == 191
    assert coal.target.iloc[:6].tolist() == [4, 5, 4, 1, 0, 4]
    assert coal.frame["exposure"].sum() == pytest.approx(1962.22 - 1851.203)


def test_a_train_mask_comes_only_with_a_split_that_is_part_of_the_data():
    assert {name for name in EVERY if "train" in load(name)} == {"pima", "ionosphere"}


def test_pima_split_is_ripleys():
    pima = datasets.load_pima()
    assert pima.train.dtype == bool
    assert pima.target[pima.train].value_counts().to_dict() == {"No": 132, "Yes": 68}
    assert pima.target[~pima.train].value_counts().to_dict() == {"No": 223, "Yes": 109}


@pytest.mark.parametrize(
    ("model", "published"),
    [(LinearDiscriminantAnalysis(), 67), (make_pipeline(StandardScaler(), LogisticRegression(C=np.inf)), 66)],
    ids=["linear discriminant", "logistic regression"],
)
def test_linear_methods_make_the_published_errors_on_pima(model, published):
    # Barber & Williams (1997), Table 1
    pima = datasets.load_pima()
    model.fit(pima.data[pima.train], pima.target[pima.train])
    errors = (model.predict(pima.data[~pima.train]) != pima.target[~pima.train]).sum()
    assert errors == published


def test_ionosphere_split_is_the_first_200_rows():
    ionosphere = datasets.load_ionosphere()
    assert np.array_equal(np.flatnonzero(ionosphere.train), np.arange(200))
    assert ionosphere.target[ionosphere.train].value_counts().to_dict() == {"good": 101, "bad": 99}


def test_crabs_species_is_an_optional_sixth_input():
    crabs = datasets.load_crabs(species=True)
    assert crabs.feature_names == ["FL", "RW", "CL", "CW", "BD", "species"]
    assert np.array_equal(crabs.data["species"] == 1.0, crabs.frame["species"] == "O")
    assert crabs.data["species"].sum() == 100
    assert crabs.frame.groupby(["species", "sex"]).size().tolist() == [50] * 4


def test_crabs_say_that_the_split_is_lost():
    crabs = datasets.load_crabs()
    assert re.search(r"Split: none\..*\blost\b", " ".join(crabs.DESCR.split()))
    assert not [column for column in crabs.frame if "split" in column]


def test_thyroid_binary_merges_hyper_and_hypo():
    thyroid = datasets.load_thyroid(binary=True)
    assert thyroid.target.value_counts().to_dict() == {"Normal": 150, "Abnormal": 65}
    assert np.array_equal(thyroid.target == "Normal", thyroid.frame["diagnosis"] == "Normal")
    assert thyroid.data.shape == (215, 5)


def test_breast_cancer_can_keep_the_incomplete_rows():
    cancer = datasets.load_breast_cancer(complete=False)
    assert cancer.target.value_counts().to_dict() == {"benign": 458, "malignant": 241}
    assert cancer.data.isna().sum()[lambda count: count > 0].to_dict() == {"bare_nuclei": 16}
    assert list(datasets.load_breast_cancer().data.index) == list(range(683))


def test_breast_cancer_diagnostic_comes_from_scikit_learn():
    cancer = datasets.load_breast_cancer(version="diagnostic")
    assert cancer.data.shape == (569, 30)
    assert cancer.target.value_counts().to_dict() == {"benign": 357, "malignant": 212}
    assert cancer.DESCR.startswith("Source: scikit-learn ")
    with pytest.raises(InvalidInput, match=r"one of \['diagnostic', 'original'\]"):
        datasets.load_breast_cancer(version="prognostic")


def test_co2_input_is_the_decimal_year():
    co2 = datasets.load_co2()
    assert co2.feature_names == ["decimal_year"]
    # written to 4 decimals
    expected = co2.frame["year"] + (co2.frame["month"] - 1) / 12
    np.testing.assert_allclose(co2.data["decimal_year"], expected, rtol=0, atol=5.1e-5)


# The tests below make up a split with the published counts; it is not the published split.
@pytest.fixture
def made_up_split() -> pd.DataFrame:
    sonar = datasets.load_sonar()
    rank = sonar.target.groupby(sonar.target).cumcount()
    train = rank < sonar.target.map({"M": 49, "R": 55})
    return pd.DataFrame({"split": np.where(train, "train", "test")})


def test_sonar_has_no_split_of_its_own_and_says_how_to_get_it():
    sonar = datasets.load_sonar()
    assert "train" not in sonar
    assert "HMCGP_SONAR_SPLIT" in sonar.DESCR
    assert "sonar.mines" in sonar.DESCR
    assert [*sonar.feature_names, "class"] == list(sonar.frame.columns)


def test_sonar_split_is_read_from_a_file_or_the_environment(tmp_path: Path, monkeypatch, made_up_split):
    path = tmp_path / "split.csv"
    made_up_split.to_csv(path, index=False)
    expected = made_up_split["split"].to_numpy() == "train"
    assert np.array_equal(datasets.load_sonar(split_file=path).train, expected)
    monkeypatch.setenv("HMCGP_SONAR_SPLIT", str(path))
    train = datasets.load_sonar().train
    assert np.array_equal(train, expected)
    assert datasets.load_sonar().target[train].value_counts().to_dict() == {"R": 55, "M": 49}


def test_sonar_split_of_the_wrong_kind_is_refused(tmp_path: Path, made_up_split):
    path = tmp_path / "split.csv"

    def refused(table: pd.DataFrame, message: str) -> None:
        table.to_csv(path, index=False)
        with pytest.raises(InvalidInput, match=message):
            datasets.load_sonar(split_file=path)

    refused(made_up_split.iloc[:-1], "208 rows; got 207")
    refused(made_up_split.rename(columns={"split": "fold"}), "column 'split'")
    refused(made_up_split.replace("test", "validation"), "'train' or 'test'")
    refused(made_up_split.iloc[::-1], "49 M and 55 R")
    refused(made_up_split.assign(**{"class": "M"}), "column 'class'.*differs")
    with pytest.raises(InvalidInput, match="cannot be read: it does not exist"):
        datasets.load_sonar(split_file=tmp_path / "absent.csv")


def heart_text(header: bool) -> str:
    lines = [f"{28 + i % 39},1,2,130,?,0,2,185,0,0,?,?,?,{int(i >= 188)}" for i in range(294)]
    names = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"
    return "\n".join([names] * header + lines) + "\n"


@pytest.mark.parametrize("header", [True, False])
def test_heart_is_read_from_the_users_file(tmp_path: Path, monkeypatch, header):
    path = tmp_path / "processed.hungarian.data"
    path.write_text(heart_text(header), encoding="utf-8")
    heart = datasets.load_heart(path)
    assert heart.data.shape == (294, 13)
    assert heart.target.value_counts().to_dict() == {"0": 188, "1": 106}
    assert heart.data.isna().all().sum() == 4
    monkeypatch.setenv("HMCGP_HEART_CSV", str(path))
    pd.testing.assert_frame_equal(datasets.load_heart().data, heart.data)


def test_heart_without_a_file_says_what_is_needed(tmp_path: Path, monkeypatch):
    with pytest.raises(InvalidInput, match=r"processed\.hungarian\.data.*HMCGP_HEART_CSV"):
        datasets.load_heart()
    monkeypatch.setenv("HMCGP_HEART_CSV", str(tmp_path / "absent.csv"))
    with pytest.raises(InvalidInput, match="environment variable HMCGP_HEART_CSV"):
        datasets.load_heart()
    path = tmp_path / "five_grades.csv"
    path.write_text(heart_text(True).replace(",1\n", ",4\n"), encoding="utf-8")
    with pytest.raises(InvalidInput, match="must hold 0 and 1"):
        datasets.load_heart(path)
