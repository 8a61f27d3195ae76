"""Pytest plugin that runs compiled functions as plain Python, so that coverage.py sees their lines.

Loaded by scripts/coverage, with ``NUMBA_DISABLE_JIT=1`` and ``-p tests.helpers.interpreted``.  Functions of numba then
run uncompiled, but intrinsics and external functions exist in compiled code only.  Here they get substitutes: LAPACK
and BLAS are called through ctypes, and sums and products are those of numpy.

Such a run measures lines, and does not judge: plain Python raises an error where compiled code divides by zero, is a
thousand times slower, and a test that takes longer than `TIME_LIMIT` is skipped from there on.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
from collections.abc import Callable, Generator
from typing import Any

import llvmlite.binding
import numpy as np
import pytest
from numba.core.extending import _Intrinsic
from numba.core.types import ExternalFunction

TIME_LIMIT = 10.0  # seconds per test

SUBSTITUTES: dict[str, Callable[..., Any]] = {
    "multiply_add": lambda a, b, c: a * b + c,
    "_sum_of_eights": lambda x, n: x[:n].sum(),
    "_ref": lambda value: np.array(value).ctypes,
}


def _call_intrinsic(self: _Intrinsic, *args: Any) -> Any:
    return SUBSTITUTES[self._name](*args)


@functools.cache
def _routine(symbol: str, n_args: int) -> Callable[..., None]:
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_args)
    return prototype(llvmlite.binding.address_of_symbol(symbol))


def _call_external(self: ExternalFunction, *args: Any) -> None:
    _routine(self.symbol, len(args))(*args)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("NUMBA_DISABLE_JIT") != "1":
        raise pytest.UsageError("tests.helpers.interpreted needs NUMBA_DISABLE_JIT=1")
    _Intrinsic.__call__ = _call_intrinsic  # type: ignore[method-assign, assignment]
    ExternalFunction.__call__ = _call_external  # type: ignore[method-assign, assignment]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    def abandon(*_: Any) -> None:
        pytest.skip(f"interpreted, this test takes longer than {TIME_LIMIT:g} s")

    before = signal.signal(signal.SIGALRM, abandon)
    signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
