"""Sums for compiled code that round in the same way wherever their arrays lie.

Nothing is compiled with `fastmath`.  A loop that writes to memory has two versions, one vectorised, one not, and looks
at the distances between its arrays to choose; had the compiler leave to reorder a sum, its rounding would depend on
where the arrays lie.  The sums here fix their order.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from hmcgp.numerics.compiled import compiled
from hmcgp.runtime.typing import Array


@intrinsic  # type: ignore[untyped-decorator]
def _sum_of_eights(typingctx: Any, x: Any, n: Any) -> Any:
    """Sum the first n numbers of a contiguous vector, n a multiple of 8, as eight interleaved sums.

    Written for LLVM's vectors of eight, which every processor adds up in the same order, whatever its own width.
    """
    if not (isinstance(x, types.Array) and x.ndim == 1 and x.layout == "C" and x.dtype == types.float64):
        raise TypingError(f"sums are of contiguous vectors of float64; got {x}.")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        eight, index = ir.VectorType(ir.DoubleType(), 8), ir.IntType(32)
        sums = cgutils.alloca_once_value(builder, ir.Constant(eight, [0.0] * 8))
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        zero, step = context.get_constant(types.intp, 0), context.get_constant(types.intp, 8)
        with cgutils.for_range_slice(builder, zero, args[1], step) as (i, _):
            here = builder.bitcast(builder.gep(data, [i]), eight.as_pointer())
            builder.store(builder.fadd(builder.load(sums), builder.load(here, align=8)), sums)
        found = builder.load(sums)
        for width in (4, 2, 1):  # add the upper half to the lower one
            low, high = (
                builder.shuffle_vector(
                    found, found, ir.Constant(ir.VectorType(index, width), list(range(start, start + width)))
                )
                for start in (0, width)
            )
            found = builder.fadd(low, high)
        return builder.extract_element(found, ir.Constant(index, 0))

    return types.float64(x, types.intp), codegen


@compiled
def total(x: Array) -> float:
    """Σ x_i of a contiguous x, as eight interleaved sums."""
    n = x.shape[0]
    whole, rest = n - n % 8, 0.0
    for i in range(whole, n):
        rest += x[i]
    return _sum_of_eights(x, whole) + rest


@compiled
def dot(x: Array, y: Array) -> float:
    """Σ x_i y_i, as four interleaved sums."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    n = x.shape[0]
    for i in range(0, n - 3, 4):
        a += x[i] * y[i]
        b += x[i + 1] * y[i + 1]
        c += x[i + 2] * y[i + 2]
        d += x[i + 3] * y[i + 3]
    for i in range(n - n % 4, n):
        a += x[i] * y[i]
    return (a + b) + (c + d)
