"""Conventions of scikit-learn that all estimators share: settings by name, a picture in notebooks, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from hmcgp.errors import InvalidInput
from hmcgp.estimators.nested_parameters import nested_parts, with_part
from hmcgp.estimators.saving import load_estimator, save_estimator
from hmcgp.estimators.text_columns import listed
from hmcgp.reporting import diagnostics


def fitted_state(gp: Any) -> list[str]:
    """Lines about a fit: its rows, its draws and how far they agree, and the evidence that they stand for."""
    trace, names = gp.sampling_trace_, gp._inputs.names
    lines = [f"fitted to {len(gp.training_data()[0])} rows, {len(names)} inputs: {listed(names)}"]
    if len(trace) == 1:
        lines.append(f"one set of hyperparameters ({trace.sampler})")
    else:
        table = diagnostics.summary(trace)
        lines.append(
            f"{trace.n_chains} chains of {trace.n_draws} draws ({trace.sampler}) in {trace.sampling_time:.1f} s: R-hat "
            f"at most {table['r_hat'].max():.3f}, effective sample size at least {table['ess_bulk'].min():.0f}"
        )
    return lines if gp.refinement_ is None else [*lines, str(gp.refinement_)]


class Conventions(BaseEstimator):  # type: ignore[misc]
    """Settings, representation and files of an estimator."""

    _inputs: Any

    def get_feature_names(self) -> list[str]:
        """Names of the inputs of the fitted model: the columns of X, and indicators of their gaps if there are any."""
        check_is_fitted(self)
        return list(self._inputs.names)

    def _keep_settings(self, arguments: Mapping[str, Any]) -> None:
        """Keep the arguments of `__init__` under their names, unchanged, as scikit-learn wants it."""
        self.__dict__.update({name: value for name, value in arguments.items() if name not in ("self", "__class__")})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name.

        Parameters
        ----------
        deep : bool, default=True
            With the parts of kernels, likelihoods, priors and samplers: `kernel__length_scale`,
            `kernel__left__variance` (of a sum), `sampler__target_accept`.

        Returns
        -------
        dict
        """
        found: dict[str, Any] = super().get_params(deep=False)
        if deep:
            for name, value in list(found.items()):
                found |= nested_parts(name, value)
        return found

    def set_params(self, **params: Any) -> Self:
        """Change settings by name, also parts of kernels, likelihoods, priors and samplers.

        Parameters
        ----------
        **params
            Names as of `get_params`: ``gp.set_params(draws=500, kernel__length_scale=1.0)``.  A part replaces its
            kernel by a copy, and other estimators that share the kernel keep theirs.

        Returns
        -------
        self
        """
        whole = {name: value for name, value in params.items() if "__" not in name}
        super().set_params(**whole)
        for name in sorted(params, key=lambda name: name.count("__")):  # a kernel before its parts
            setting, _, path = name.partition("__")
            if setting not in self._get_param_names():
                known = ", ".join(map(repr, self._get_param_names()))
                raise InvalidInput(f"Invalid parameter {setting!r} for {type(self).__name__}: there are {known}.")
            if path:
                setattr(self, setting, with_part(setting, getattr(self, setting), path.split("__"), params[name]))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = getattr(self, "missing", "error") != "error"
        return tags

    def _html_repr(self) -> str:
        """Diagram of scikit-learn, with the state of a fit beneath."""
        drawn: str = estimator_html_repr(self)
        if "trace_" not in vars(self):
            return drawn
        lines = "".join(f"<li>{escape(line)}</li>" for line in fitted_state(self))
        return f'{drawn}<ul style="font-size: smaller">{lines}</ul>'

    def save(self, path: str | Path) -> None:
        """Write the estimator, fitted or not, to one file, atomically.

        The file holds settings as JSON and arrays as `.npy`, no code.  Classes of your own (a kernel, a prior) are
        written by name, with their attributes; functions by name; a lambda is refused.

        Parameters
        ----------
        path : path-like
            By custom ``*.hmcgp``.  An old file is replaced only once the new one is complete.
        """
        save_estimator(self, path)

    @classmethod
    def load(cls, path: str | Path, *, trusted: Sequence[Any] = ()) -> Self:
        """Read an estimator written by `save`; nothing in the file is executed.

        Parameters
        ----------
        path : path-like
        trusted : sequence of classes and functions
            Those of your own that the estimator uses: ``trusted=[MyKernel]``.  A file that names others is refused.

        Returns
        -------
        estimator
            With the same predictions, up to rounding.

        Raises
        ------
        InvalidInput
            If the file is damaged, of another format or class, or uses classes that are not trusted.

        Warns
        -----
        sklearn.exceptions.InconsistentVersionWarning
            If the file was written by another version of hmcgp or numpy.
        """
        return load_estimator(path, cls, trusted)
