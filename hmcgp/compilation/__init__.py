"""Compiling ahead of the first call: which compiled functions a fit calls, and how far their compilation is."""

from hmcgp.compilation.ahead import compile_functions
from hmcgp.compilation.functions import CompiledFunction, compiled_functions, fit_names
from hmcgp.compilation.progress import shown_compilation

__all__ = ["CompiledFunction", "compile_functions", "compiled_functions", "fit_names", "shown_compilation"]
