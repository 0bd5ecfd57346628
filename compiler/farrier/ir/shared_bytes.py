"""Elements that share bytes: rewrite accesses of packed buffers as accesses of their bytes.

before:  w[k, n]                         w: u4[32, 64] @ layout(1, 0 % 16, 1 % 64, 0 / 16 % 2, per_byte=2)
after:   (w[k % 16 * 64 + n] >> 4 * (k // 16)) & 15                        w: u8[1024]
"""  # noqa: E501

from __future__ import annotations

import dataclasses

from farrier.ir.addresses import flatten
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, number
from farrier.ir.expr import Binary, BinaryOp, Buffer, Cast, Const, Expr, Load, mul
from farrier.ir.linear import to_expr
from farrier.ir.loop import Store
from farrier.ir.types import DType, Layout


@dataclasses.dataclass(frozen=True, slots=True)
class SharedByte:
    """The byte that holds an element, and the position of the element's lowest bit within that
    byte."""

    byte: Load
    shift: Expr
    bits: int

    @property
    def mask(self) -> Const:
        return Const((1 << self.bits) - 1, DType.U8)


def shares_bytes(buffer: Buffer) -> bool:
    """Check whether a buffer stores several elements in one byte."""
    return buffer.layout is not None and buffer.layout.per_byte > 1


def shared_byte(buffer: Buffer, indices: tuple[Expr, ...], simplifier: Simplifier) -> SharedByte:
    """Return the byte and the bit position of an element of a packed buffer."""
    assert buffer.layout is not None
    count = buffer.layout.per_byte
    position = flatten(_by_element(buffer), indices, simplifier, 1)
    at = to_expr(simplifier.divide(position, count))
    within = to_expr(simplifier.remainder(position, count))
    nbytes: Extent = buffer.nbytes
    whole = Buffer(buffer.name, DType.U8, (number(nbytes),), None, buffer.scope)
    bits = 8 // count
    return SharedByte(Load(whole, (at,)), Cast(DType.U8, mul(within, bits)), bits)


def element(load: Load, simplifier: Simplifier) -> Expr:
    """Return the expression for a load from a packed buffer: the element's bits, shifted, masked
    and extended to the element type as a register holds it."""
    place = shared_byte(load.buffer, load.indices, simplifier)
    shifted = Binary(BinaryOp.SHR, place.byte, place.shift)
    return Cast(load.buffer.dtype, Binary(BinaryOp.BIT_AND, shifted, place.mask))


def exchange(store: Store, simplifier: Simplifier) -> Store:
    """Return a store of a whole byte that is equivalent to `store`, the store of one element of a
    packed buffer. The other bits of the byte keep their values."""
    place = shared_byte(store.buffer, store.indices, simplifier)
    over = Binary(BinaryOp.SHL, place.mask, place.shift)
    others = Binary(BinaryOp.BIT_AND, place.byte, Binary(BinaryOp.BIT_XOR, over, _ONES))
    bits = Binary(BinaryOp.BIT_AND, Cast(DType.U8, store.value), place.mask)
    shifted = Binary(BinaryOp.SHL, bits, place.shift)
    whole = Binary(BinaryOp.BIT_OR, others, shifted)
    return Store(place.byte.buffer, place.byte.indices, whole)


_ONES = Const(255, DType.U8)


def _by_element(buffer: Buffer) -> Buffer:
    layout = buffer.layout or Layout.plain(len(buffer.shape))
    return dataclasses.replace(buffer, layout=layout.by_element)
