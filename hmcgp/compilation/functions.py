"""The compiled functions that fits call from Python, with the types of their arguments.

`functions.json` lists them.  It is written by ``python -m scripts.compiled_functions``, which runs small fits of every
kind and records what they call; a function that is not in it is compiled on its first call.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from numba import types

LISTING = "functions.json"
AFTER = " predictions"  # follows the name of a kind of fit, for functions that are first called after it
_ARRAY = re.compile(r"(readonly )?array\((\w+), (\d+)d, ([CFA])\)")
_OMITTED = re.compile(r"omitted\(default=(.+)\)")


@dataclass(frozen=True)
class CompiledFunction:
    """One compiled version of a function.

    Parameters
    ----------
    module, name : str
        Where the function is.
    arguments : tuple of str
        Types of its arguments, as numba prints them.
    fits : tuple of str
        Kinds of fits that call it (`fit_names`), or predictions after them (with `AFTER`).
    seconds : float
        Processor time that it took to compile when it was listed: long ones are compiled first.
    """

    module: str
    name: str
    arguments: tuple[str, ...]
    fits: tuple[str, ...]
    seconds: float

    def dispatcher(self) -> Any:
        """Return the function itself."""
        return getattr(importlib.import_module(self.module), self.name)

    def signature(self) -> tuple[Any, ...]:
        """Return the types of the arguments, as numba's."""
        return tuple(map(numba_type, self.arguments))

    def is_compiled(self) -> bool:
        """Return whether the code is loaded, or can be without compiling."""
        dispatcher, signature = self.dispatcher(), self.signature()
        return signature in dispatcher.overloads or dispatcher._cache.contains(signature, dispatcher.targetctx)

    def compile(self) -> bool:
        """Compile it unless its code is there; return whether that was necessary."""
        if self.is_compiled():
            return False
        self.dispatcher().compile(self.signature())
        return True


def numba_type(name: str) -> Any:
    """Return the type that numba prints as `name`: scalars, arrays, none, and arguments left at their default."""
    array, omitted = _ARRAY.fullmatch(name), _OMITTED.fullmatch(name)
    if array:
        readonly, dtype, ndim, layout = array.groups()
        return types.Array(getattr(types, dtype), int(ndim), layout, readonly=bool(readonly))
    if omitted:
        return types.Omitted(ast.literal_eval(omitted[1]))
    if name == "bool":
        return types.boolean
    return getattr(types, name)


@cache
def compiled_functions() -> tuple[CompiledFunction, ...]:
    """Return all listed functions, those that take longest to compile first."""
    rows = json.loads((files(__package__) / LISTING).read_text(encoding="utf-8"))
    return tuple(
        CompiledFunction(row["module"], row["name"], tuple(row["arguments"]), tuple(row["fits"]), row["seconds"])
        for row in sorted(rows, key=lambda row: -row["seconds"])
    )


def fit_names() -> list[str]:
    """Return the kinds of fits by which functions are listed, such as "logistic" and "student_t-inducing"."""
    return sorted({name.removesuffix(AFTER) for function in compiled_functions() for name in function.fits})


def functions_of(fits: Collection[str], *, predictions: bool = True) -> list[CompiledFunction]:
    """Return the functions that fits of these kinds call, with or without what follows a fit."""
    wanted = {*fits, *(name + AFTER for name in fits if predictions)}
    return [function for function in compiled_functions() if wanted & set(function.fits)]
