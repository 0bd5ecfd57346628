"""The declaration of register exchanges between the threads of a subgroup (shuffles): each thread
receives the value of another one.

to[i] = from[i xor mask]        for each thread i of the subgroup, in its registers
"""

from __future__ import annotations

from collections.abc import Sequence

from farrier.intrinsics.declare import TensorIntrinsic, rendered
from farrier.ir.expr import Binary, BinaryOp, Buffer, Load, MemoryScope, Var, index
from farrier.ir.loop import Store
from farrier.ir.threads import SUBGROUP_SIZE, exchange_name
from farrier.ir.types import DType, Layout

MASKS = tuple(1 << bit for bit in range(SUBGROUP_SIZE.bit_length() - 1))


def declared(dtypes: Sequence[DType], feature: str) -> tuple[TensorIntrinsic, ...]:
    """Return the exchange intrinsics for values of `dtypes`: one for each bit of a thread number
    that the exchange may flip. The target must have `feature`."""
    return tuple(_declared(dtype, mask, feature) for dtype in dtypes for mask in MASKS)


def _declared(dtype: DType, mask: int, feature: str) -> TensorIntrinsic:
    lanes, at = Layout.plain(1), Var("i")
    to, source = (
        Buffer(name, dtype, (SUBGROUP_SIZE,), lanes, MemoryScope.SUBGROUP)
        for name in ("to", "source")
    )
    other = Binary(BinaryOp.BIT_XOR, at, index(mask))
    body = Store(to, (at,), Load(source, (other,)))
    why = "an exchange between threads is not an instruction of one thread"
    name, loops = exchange_name(dtype, mask), (("i", SUBGROUP_SIZE),)
    return rendered(name, (to, source), loops, body, feature, why)
