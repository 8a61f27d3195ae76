"""The report of a fit: what was learnt, how sure that is, and how to repeat it."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hmcgp import plots
from hmcgp.errors import recorded_warnings
from hmcgp.report import html
from hmcgp.report.comparison import scores
from hmcgp.reporting import diagnostics
from hmcgp.runtime.files import check_replaceable, library_version, replacing, user_path

MOST_EFFECTS = 6  # inputs whose effects are drawn
MOST_TRACES = 6  # hyperparameters whose traces are drawn
SURPRISING = 8  # rows
MOST_INPUTS = 40  # in the table of the data


def write_report(gp: Any, path: str | os.PathLike[str], title: str | None = None) -> Path:
    """Write the report of a fitted estimator to one HTML file.

    Parameters
    ----------
    gp : fitted GPClassifier, GPRegressor, GPCounts or GPOrdinal
    path : path-like
        An old file is replaced once the new one is complete.
    title : str, optional

    Returns
    -------
    Path
    """
    target = user_path(path)
    check_replaceable(target)  # before the work
    X, y = gp.training_data()
    with recorded_warnings() as given:
        loo = gp.loo()
    sections = [
        ("quality", "How well does it predict?", _quality(gp, X, y, loo)),
        ("relevance", "Which inputs matter?", _relevance(gp)),
        ("effects", "What do they do?", _effects(gp)),
        ("sure", "Can the draws be trusted?", _trust(gp, [*gp.warnings_, *given])),
        ("rows", "Which rows are surprising?", _surprising(X, y, loo)),
        ("data", "The data", _data(X, y)),
        ("settings", "Settings", _settings(gp)),
    ]
    kind = "classification" if hasattr(gp, "classes_") else "regression"
    heading = title or f"Gaussian-process {kind}: {len(X)} rows, {X.shape[1]} inputs"
    text = html.page(heading, sections, _lead(gp, X, loo))
    with replacing(target) as file:
        file.write(text.encode("utf-8"))
    return target


def _lead(gp: Any, X: pd.DataFrame, loo: Any) -> str:
    trace = gp.sampling_trace_
    measure = ("log loss, leave-one-out", f"{loo.log_loss:.3f}")
    if not hasattr(gp, "classes_"):
        measure = ("mean log density, leave-one-out", f"{-loo.log_loss:.3f}")
    found = [
        (f"{len(X):,} × {X.shape[1]}", "rows × inputs"),
        (measure[1], measure[0]),
        (f"{trace.n_chains} × {trace.n_draws:,}", "chains × draws"),
        (_clock(trace.sampling_time), "sampling"),
    ]
    when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    return html.paragraph(f"Written by hmcgp {library_version('hmcgp')} on {when}.", "quiet") + html.tiles(found)


def _quality(gp: Any, X: pd.DataFrame, y: Any, loo: Any) -> str:
    name, found = scores(gp, X, y, loo)
    frame = pd.DataFrame(
        {"this fit (leave-one-out)": [s.ours for s in found]}, index=pd.Index([s.name for s in found], name="")
    )
    if name:
        frame[name] = [s.linear if s.linear is not None else np.nan for s in found]
    parts = [html.table(frame.round(4))]
    if name and found[0].linear is not None:
        gain = (found[0].linear - found[0].ours) * (1 if found[0].better == "lower" else -1)
        parts.append(html.paragraph(_verdict(gp, gain, loo, name)))
    if hasattr(gp, "classes_") and len(gp.classes_) == 2:
        p_second = np.where(np.asarray(y) == gp.classes_[1], loo.probability, 1.0 - loo.probability)
        ax = plots.calibration(p_second, y=np.asarray(y))
        text = "Calibration: of rows to which the others give some probability of the class, that share should have it."
        parts.append(html.picture(ax, text) + html.paragraph(text, "quiet"))
    elif np.ndim(y) == 1:
        text = (
            "Quantile residuals of rows that are each predicted by the others, and how often observations fall into "
            "each tenth of their predictive distribution: flat if the predictions are calibrated."
        )
        parts.append(html.picture(plots.residuals(gp)[0], text) + html.paragraph(text, "quiet"))
    return "".join(parts)


def _verdict(gp: Any, gain: float, loo: Any, name: str) -> str:
    noise = loo.se / len(loo.pointwise)
    name = name.partition(" (")[0]
    if abs(gain) < noise:
        return (
            f"The difference, {abs(gain):.3f} nats per row, is within the noise of these rows ({noise:.3f}): "
            f"a {name} predicts about as well, and is easier to explain."
        )
    if gain > 0:
        return f"Better than a {name} by {gain:.3f} nats per row: there is structure that a line does not see."
    advice = "Add Linear() to the kernel, for example kernel=SquaredExponential(ard=True) + Linear()."
    if any(name.startswith("linear") for name in gp.trace_.names):
        advice = "There may be too few rows for curves. Compare with a line alone, kernel=Linear() + Constant()."
    return f"Worse than a {name} by {-gain:.3f} nats per row: the inputs act along straight lines. {advice}"


def _relevance(gp: Any) -> str:
    result = gp.relevance()
    if len(result.inputs) > MOST_INPUTS:
        return html.table(result.to_frame().head(MOST_INPUTS).round(4))
    ax = plots.relevance(gp)
    text = (
        "How much the prediction changes, on average over rows, when an input moves up by its standard deviation (a "
        "category to another level) and the others stay. Intervals are over the latent function and the "
        "hyperparameters. Where an interval contains 0, the data do not show in which direction the input acts; a "
        "diamond far from 0 then says that it acts in opposite directions on different rows."
    )
    return html.picture(ax, text) + html.paragraph(text, "quiet")


def _effects(gp: Any) -> str:
    order = gp.relevance().ranking[:MOST_EFFECTS]
    text = (
        "The prediction as one input takes the values on the axis, averaged over rows for the others. Bands are 90 % "
        "intervals of this average, over the latent function and the hyperparameters. Marks are the data."
    )
    axes = plots.effects(gp, order)
    return html.picture(axes.flat[0], text) + html.paragraph(text, "quiet")


def _trust(gp: Any, warnings: list[str]) -> str:
    trace = gp.sampling_trace_
    parts = [html.note(text) for text in dict.fromkeys(warnings)]
    if trace.sampler in ("map", "fixed"):
        return "".join(parts) + html.paragraph(
            "There is one set of hyperparameters, the most probable one: how sure it is, is not known. Sample them "
            '(sampler="hmc") to see.'
        )
    findings = diagnostics.check_averaged(trace, gp.trace_, standardized=bool(gp.standardize))
    new = [finding.message for finding in findings if not any(finding.message in text for text in warnings)]
    parts += [html.note(message) for message in new]
    if not parts:
        parts = [html.note("Nothing was found to be wrong: the chains agree and hold enough draws.", good=True)]
    parts.append(html.paragraph(f"Drawn by {trace.sampler}{': ' if trace.note else ''}{trace.note}."))
    if getattr(gp, "refinement_", None) is not None:
        parts.append(html.paragraph(str(gp.refinement_).capitalize() + "."))
    if gp.inducing_error_ is not None:
        parts.append(html.paragraph(f"Rows see each other through inducing inputs. {gp.inducing_error_}."))
    columns = ["mean", "sd", "q5", "median", "q95", "ess_bulk", "r_hat", "units"]
    parts.append(html.table(gp.summary()[columns]))
    axes = plots.trace(gp, max_rows=MOST_TRACES)
    text = "Densities and traces of the chains"
    if len(trace.names) > MOST_TRACES:
        text += f", of the first {MOST_TRACES} of {len(trace.names)} hyperparameters"
    return "".join(parts) + html.picture(np.ravel(axes)[0], text) + html.paragraph(f"{text}.", "quiet")


def _surprising(X: pd.DataFrame, y: Any, loo: Any) -> str:
    worst = np.argsort(loo.pointwise, kind="stable")[:SURPRISING]
    frame = X.iloc[worst, :8].copy()
    frame.index = pd.Index([str(i) for i in worst], name="row")
    if np.ndim(y) == 1:
        frame.insert(0, "target", np.asarray(y)[worst])
    frame.insert(0, "log p", loo.pointwise[worst])
    text = (
        "Rows whose targets the other rows predict worst (log probability or density). Look at them first: a wrong "
        "label, a wrong unit, or a case of its own."
    )
    return html.paragraph(text) + html.table(frame)


def _data(X: pd.DataFrame, y: Any) -> str:
    rows = []
    for name in X.columns[:MOST_INPUTS]:
        column = X[name]
        if column.dtype.kind in "iufb":
            rows.append([f"{column.min():.3g} … {column.max():.3g}", column.mean(), column.std()])
        else:
            counts = column.value_counts()
            rows.append([", ".join(f"{k} ({n})" for k, n in counts.head(5).items()), None, None])
    frame = pd.DataFrame(rows, index=pd.Index(X.columns[:MOST_INPUTS], name="input"), columns=["values", "mean", "sd"])
    more = f" The first {MOST_INPUTS} of {X.shape[1]} inputs." if X.shape[1] > MOST_INPUTS else ""
    return html.paragraph(f"Target: {_describe_target(y)}.{more}") + html.table(frame)


def _describe_target(y: Any) -> str:
    y = np.asarray(y)
    if y.dtype.kind in "f":
        return f"numbers from {np.nanmin(y):.4g} to {np.nanmax(y):.4g}"
    labels, counts = np.unique(y, return_counts=True)
    return ", ".join(f"{label} ({n} rows)" for label, n in zip(labels.tolist(), counts, strict=True))


def _settings(gp: Any) -> str:
    versions = [f"{name} {library_version(name)}" for name in ("hmcgp", "numpy", "scipy", "numba", "scikit-learn")]
    text = f"{gp!r}\n\nkernel: {gp.model_.kernel!r}\nlikelihood: {gp.model_.likelihood!r}\n"
    text += f"\nPython {platform.python_version()}, {', '.join(versions)}"
    about = "With these settings, the same rows and a number as random_state, the fit comes out the same."
    return html.paragraph(about) + html.preformatted(text)


def _clock(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
