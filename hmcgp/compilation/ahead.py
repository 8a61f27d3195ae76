"""Compile functions before they are called, in several processes."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import joblib

from hmcgp.compilation.functions import CompiledFunction, fit_names, functions_of
from hmcgp.compilation.progress import compilation_bar
from hmcgp.numerics.code_cache import shipped


class Compilation(NamedTuple):
    """Result of compiling ahead."""

    n_compiled: int  # functions that were compiled now
    n_total: int  # functions that these fits call
    refused: str  # why machine code of the installation cannot be used; empty if there is none, or it can

    def __str__(self) -> str:
        text = f"compiled {self.n_compiled} functions; {self.n_total - self.n_compiled} were compiled before"
        return f"{text}. The compiled code in this installation is not used: {self.refused}" if self.refused else text


def compile_functions(
    fits: Collection[str] | None = None, *, n_jobs: int = -1, progressbar: bool = True
) -> Compilation:
    """Fill the cache on disk with the compiled functions that fits call.

    Parameters
    ----------
    fits : collection of str, optional
        Kinds of fits (`fit_names`); None is all of them.
    n_jobs : int
        Processes, as joblib counts them: -1 is one per core.
    progressbar : bool
        Show how many functions are compiled, in a terminal or notebook.

    Returns
    -------
    Compilation
        How many functions were compiled now, and how many these fits call.
    """
    wanted = functions_of(fit_names() if fits is None else fits)
    missing = [function for function in wanted if not function.is_compiled()]
    if missing:
        with compilation_bar(len(missing), enabled=progressbar) as bar:
            workers = joblib.Parallel(
                n_jobs=min(joblib.effective_n_jobs(n_jobs), len(missing)),
                backend="loky",
                batch_size=1,
                return_as="generator_unordered",
            )
            for _ in workers(joblib.delayed(_compile)(function) for function in missing):
                bar.update()
    return Compilation(len(missing), len(wanted), shipped().refused)


def _compile(function: CompiledFunction) -> bool:
    return function.compile()
