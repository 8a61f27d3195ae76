"""Decorators of compiled functions."""

from numba import njit

# cached on disk; without the interpreter lock, so that chains run in threads; division by zero gives inf, as in numpy
compiled = njit(cache=True, nogil=True, error_model="numpy")

# keeps the interpreter lock: for functions so short that waiting to get it back costs more than others gain
compiled_with_lock = njit(cache=True, error_model="numpy")
