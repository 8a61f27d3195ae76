"""The command `hmcgp`: fit a table, predict new rows, write a report.

hmcgp fit table.csv --target sex          a folder with the estimator, the posterior for arviz, and a report
hmcgp predict model.hmcgp new.csv         a table with a row of predictions for each new row
hmcgp report model.hmcgp                  the report again
hmcgp compile                             compiles all solvers ahead of the first fit, on all cores

Only the command that runs imports the libraries that it needs: `hmcgp --help` imports argparse and nothing large.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hmcgp.errors import HmcgpError, InvalidInput
from hmcgp.runtime.files import library_version, refuse, replacing

if TYPE_CHECKING:
    import pandas as pd

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130  # exit codes
MOST_CLASSES = 20  # different whole numbers of a target that may be classes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, 1 for a failure, 2 for wrong input, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            options.run(options)
    except InvalidInput as error:
        print(f"hmcgp: {error}", file=sys.stderr)
        return USAGE
    except (HmcgpError, OSError) as error:
        print(f"hmcgp: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("hmcgp: interrupted; nothing was written.", file=sys.stderr)
        return INTERRUPTED
    return OK


def _show_warning(message: Warning | str, *_: Any) -> None:
    """Print a warning as a message to a user, who has no line of code to look at."""
    print(f"hmcgp: {message}", file=sys.stderr)


# -- fit ---------------------------------------------------------------------------------------------------------------


def fit(options: argparse.Namespace) -> None:
    """Fit a table, and write estimator, posterior and report into a folder."""
    from hmcgp.estimators import GPClassifier, GPRegressor

    table = read_table(options.table)
    X, y, weights = split_table(table, options.target, options.drop, options.weight)
    task = options.task or guess_task(y)
    print(f"{len(X)} rows, {X.shape[1]} inputs; {task} of {options.target!r}", file=sys.stderr)
    settings = {
        name: value
        for name in ("evidence", "sampler", "draws", "tune", "chains", "max_time", "random_state", "missing")
        if (value := getattr(options, name)) is not None
    }
    folder = made_folder(options.out or f"{Path(options.table).stem}-hmcgp")
    estimator: type[Any] = GPClassifier if task == "classification" else GPRegressor
    gp = estimator(**settings, progressbar=not options.quiet)
    gp.fit(X, y, sample_weight=weights)
    gp.save(folder / "model.hmcgp")
    gp.to_arviz().to_netcdf(str(folder / "posterior.nc"))
    gp.report(folder / "report.html", title=f"{options.target} in {Path(options.table).name}")
    print(f"wrote {folder}/model.hmcgp, posterior.nc and report.html")


def made_folder(path: str) -> Path:
    """Folder to write to, made if need be."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        refuse("made", folder, "--out", error)
    return folder


def read_table(path: str) -> pd.DataFrame:
    """Table in a file of comma-separated values or parquet."""
    import pandas as pd

    file = Path(path)
    if not file.is_file():
        raise InvalidInput(f"there is no file {path!r}. Give a table as .csv or .parquet.")
    try:
        if file.suffix.lower() in (".parquet", ".pq"):
            return pd.read_parquet(file)
        return pd.read_csv(file, sep="\t" if file.suffix.lower() == ".tsv" else ",")
    except ImportError:
        raise InvalidInput(f"{path!r} is parquet, which takes pyarrow: pip install pyarrow.") from None
    except (ValueError, UnicodeDecodeError, OSError) as error:
        raise InvalidInput(f"{path!r} cannot be read as a table: {error}") from error


def split_table(
    table: pd.DataFrame, target: str, drop: Sequence[str], weight: str | None
) -> tuple[pd.DataFrame, pd.Series[Any], Any]:
    """Inputs, targets and weights (or None) of a table."""
    named = [target, *drop, *([] if weight is None else [weight])]
    missing = [name for name in named if name not in table.columns]
    if missing:
        raise InvalidInput(
            f"the table has no column {missing[0]!r}: its columns are {', '.join(map(str, table.columns))}."
        )
    X = table.drop(columns=list(dict.fromkeys(named)))
    if X.shape[1] == 0:
        raise InvalidInput("there are no inputs left: all columns are target, weight or dropped.")
    unnamed = [name for name in X.columns if str(name).startswith("Unnamed:")]
    if unnamed:
        raise InvalidInput(
            f"the column {unnamed[0]!r} has no name, and is probably the numbers of the rows: leave it out with "
            f"--drop {unnamed[0]!r}."
        )
    y = table[target]
    gaps = int(y.isna().sum())
    if gaps:
        raise InvalidInput(f"the target {target!r} is missing in {gaps} of {len(y)} rows: leave these rows out.")
    return X, y, None if weight is None else table[weight].to_numpy()


def guess_task(y: pd.Series[Any]) -> str:
    """Regression for numbers with a fraction, or of more than 20 different values; classification otherwise."""
    import numpy as np

    if y.dtype.kind not in "iuf":
        return "classification"
    whole = bool(np.all(np.mod(y, 1) == 0))
    return "classification" if whole and y.nunique() <= MOST_CLASSES else "regression"


# -- predict and report ------------------------------------------------------------------------------------------------


def predict(options: argparse.Namespace) -> None:
    """Write a table of predictions for new rows."""
    gp = load(options.model)
    X = read_table(options.table)
    names = getattr(gp, "feature_names_in_", None)
    if names is not None:
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise InvalidInput(f"the table has no column {missing[0]!r}, which the fit has: {', '.join(names)}.")
        X = X[list(names)]
    found = predictions(gp, X, options.level)
    if options.out:
        with replacing(options.out, "--out") as file:
            found.to_csv(file, index=False)
        print(f"wrote {options.out}: {len(found)} rows", file=sys.stderr)
    else:
        found.to_csv(sys.stdout, index=False)


def predictions(gp: Any, X: pd.DataFrame, level: float) -> pd.DataFrame:
    """Prediction, probabilities of the classes and the interval of each; or mean and interval of a number."""
    import pandas as pd

    from hmcgp.estimators import GPClassifier

    if isinstance(gp, GPClassifier):
        p, interval = gp.predict_proba(X), gp.predict_proba_interval(X, level)
        columns: dict[str, Any] = {"prediction": gp.classes_[p.argmax(axis=1)]}
        for c, label in enumerate(gp.classes_.tolist()):
            columns |= {f"p({label})": p[:, c], f"low({label})": interval[:, c, 0], f"high({label})": interval[:, c, 1]}
        return pd.DataFrame(columns)
    mean, sd = gp.predict(X, return_std=True)
    if mean.ndim != 1:
        raise InvalidInput("this estimator has several outputs: predict with it from Python.")
    low, high = gp.predict_interval(X, level).T
    return pd.DataFrame({"mean": mean, "sd": sd, "low": low, "high": high})


def report(options: argparse.Namespace) -> None:
    """Write the report of a saved estimator."""
    gp = load(options.model)
    print(f"wrote {gp.report(options.out or Path(options.model).with_suffix('.html'))}")


def compile_ahead(options: argparse.Namespace) -> None:
    """Fill the cache of compiled functions."""
    from hmcgp.compilation import compile_functions, fit_names

    unknown = [name for name in options.fits or [] if name not in fit_names()]
    if unknown:
        raise InvalidInput(f"there are no compiled functions of {unknown[0]!r}: --fits takes {', '.join(fit_names())}.")
    print(compile_functions(options.fits, n_jobs=options.jobs, progressbar=not options.quiet), file=sys.stderr)


def load(path: str) -> Any:
    """Estimator from a file of either kind."""
    from hmcgp.estimators.base import GaussianProcess

    return GaussianProcess.load(path)


# -- options -----------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hmcgp",
        description="Gaussian-process classification and regression of a table, hyperparameters integrated.",
    )
    parser.add_argument("--version", action="version", version=f"hmcgp {library_version('hmcgp')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="{fit,predict,report,compile}")
    one = commands.add_parser("fit", help="fit a table, and write estimator, posterior and report")
    one.add_argument("table", help="table as .csv, .tsv or .parquet, one row per case")
    one.add_argument("--target", required=True, metavar="COLUMN", help="what to predict")
    one.add_argument("--task", choices=["classification", "regression"], help="default: by the target's values")
    one.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="columns to leave out")
    one.add_argument("--weight", metavar="COLUMN", help="weights of the rows")
    one.add_argument(
        "--missing",
        choices=["auto", "error", "indicator"],
        help="missing values: an indicator for each column that has them (auto, the default), or an error",
    )
    one.add_argument("--evidence", help="how the latent function is integrated (default: laplace, refined by EP)")
    one.add_argument("--sampler", help="how the hyperparameters are: hmc, nuts, map, …")
    one.add_argument("--draws", type=int, help="draws per chain")
    one.add_argument("--tune", type=int, help="warm-up draws per chain")
    one.add_argument("--chains", type=int, help="chains")
    one.add_argument("--max-time", type=float, metavar="SECONDS", help="stop in time, with the draws so far")
    one.add_argument(
        "--seed", dest="random_state", type=int, default=0, help="the same seed gives the same fit (default 0)"
    )
    one.add_argument("--out", metavar="FOLDER", help="default: the name of the table with -hmcgp")
    one.add_argument("--quiet", action="store_true", help="no progress bar")
    one.set_defaults(run=fit)
    two = commands.add_parser("predict", help="predict new rows")
    two.add_argument("model", help="file written by fit (model.hmcgp), or by gp.save")
    two.add_argument("table", help="new rows, with the columns of the fit")
    two.add_argument("--level", type=float, default=0.9, help="probability of the intervals (default 0.9)")
    two.add_argument("--out", metavar="FILE", help="default: to the terminal")
    two.set_defaults(run=predict)
    three = commands.add_parser("report", help="write the report of a saved fit")
    three.add_argument("model", help="file written by fit (model.hmcgp), or by gp.save")
    three.add_argument("--out", metavar="FILE", help="default: beside the model, .html")
    three.set_defaults(run=report)
    four = commands.add_parser(
        "compile",
        help="compile all solvers ahead of the first fit",
        description="Compile the functions that fits call, which otherwise happens during the first fit, and cache "
        "them on disk. Wheels for your platform contain them already.",
    )
    four.add_argument("--jobs", type=int, default=-1, metavar="N", help="processes (default: one per core)")
    four.add_argument(
        "--fits", nargs="+", metavar="LIKELIHOOD", help="only those of fits with these likelihoods, such as logistic"
    )
    four.add_argument("--quiet", action="store_true", help="no progress bar")
    four.set_defaults(run=compile_ahead)
    return parser
