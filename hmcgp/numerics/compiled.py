"""Decorators of compiled functions."""

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.extending import register_jitable

from hmcgp.numerics.code_cache import CodeCache


def _cached(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator that compiles a function on its first call, unless `CodeCache` has its code."""
    # division by zero gives inf, as in numpy; no wrapper for C, which would have to be compiled too
    decorator = njit(error_model="numpy", no_cfunc_wrapper=True, **options)

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = decorator(function)
        if hasattr(dispatcher, "_cache"):  # a plain function under NUMBA_DISABLE_JIT
            dispatcher._cache = CodeCache(function)
        return dispatcher

    return decorate


# called from Python: releases the interpreter lock, so that chains run in threads
compiled = _cached(nogil=True)

# keeps the interpreter lock: for functions so short that acquiring it again costs more than other threads gain
compiled_with_lock = _cached()

# called from compiled functions only: without a wrapper for Python either, a third of the time that they take to
# compile.  Called from Python they run uncompiled
compiled_inside = register_jitable(error_model="numpy", no_cfunc_wrapper=True)
