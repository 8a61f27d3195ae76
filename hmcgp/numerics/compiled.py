"""The decorator of every compiled function."""

from __future__ import annotations

from numba import njit

# cached on disk; without the interpreter lock, so that chains run in threads; division by zero gives inf, as in numpy
compiled = njit(cache=True, nogil=True, error_model="numpy")
