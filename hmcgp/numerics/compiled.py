"""Decorators of compiled functions."""

from numba import njit
from numba.extending import register_jitable

# called from Python: cached on disk; without the interpreter lock, so that chains run in threads; division by zero
# gives inf, as in numpy.  No wrapper for C, which would have to be compiled too
compiled = njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)

# keeps the interpreter lock: for functions so short that waiting to get it back costs more than others gain
compiled_with_lock = njit(cache=True, error_model="numpy", no_cfunc_wrapper=True)

# called from compiled functions only: without a wrapper for Python either, a third of the time that they take to
# compile.  Called from Python they run uncompiled
compiled_inside = register_jitable(error_model="numpy", no_cfunc_wrapper=True)
