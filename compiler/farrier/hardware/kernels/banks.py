"""The assignment of buffers to hardware: registers, or banks of memory.

After loops are unrolled, some parts of an element's position in memory may be constant in every
access to the buffer. These parts select a bank, a memory of its own; the other parts form the
address within the bank. A bank with one element is a register. Any other bank has one port for
reads and one for writes. An argument of the kernel is a single bank, whose memory belongs to the
caller.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

from farrier.errors import UsageError
from farrier.hardware.kernels.regions import Regions
from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.expr import Buffer, Const, Expr, Load, MemoryScope
from farrier.ir.loop import Function
from farrier.ir.substitute import loads
from farrier.ir.types import DType


@dataclasses.dataclass(frozen=True, slots=True)
class Bank:
    """A part of a buffer that is a memory of its own, or a register if it has a single element.
    `number` has the constant parts of the position, by which an access selects the bank; `depth` is
    the number of elements."""

    buffer: str
    number: tuple[int, ...]
    dtype: DType
    depth: int
    is_argument: bool
    is_register: bool

    @property
    def name(self) -> str:
        return "_".join([self.buffer, *map(str, self.number)])


class Banks:
    """The banks of all buffers of a function."""

    def __init__(self, function: Function, regions: Regions) -> None:
        """Divide all buffers of a function into banks. Raises UsageError for a buffer whose dtype
        or layout hardware cannot represent."""
        self._simplifier = Simplifier(regions.ranges)
        self._banked: dict[str, tuple[bool, ...]] = {}
        self._name = function.name
        params = {buffer.name for buffer in function.params}
        for buffer in (*function.params, *regions.allocated):
            if not buffer.dtype.is_integer and buffer.dtype is not DType.BOOL:
                raise UsageError(
                    f"{function.name}: {buffer.name} holds {buffer.dtype.value}, and hardware of "
                    "kernels has integers alone"
                )
            layout = buffer.element_layout
            if layout.swizzle is not None or any(map(any, layout.halo)):
                raise UsageError(f"{function.name}: the layout of {buffer.name} is not plain")
            if buffer.name in params:
                self._banked[buffer.name] = (False,) * len(layout.dims)
        for buffer, indices in _accesses(regions):
            if buffer.name in params:
                continue
            is_constant = tuple(isinstance(part, Const) for part in self._parts(buffer, indices))
            before = self._banked.get(buffer.name, is_constant)
            self._banked[buffer.name] = tuple(
                a and b for a, b in zip(before, is_constant, strict=True)
            )
        self._params = params

    def _parts(self, buffer: Buffer, indices: tuple[Expr, ...]) -> list[Expr]:
        """Return the index of an element along each dimension of the buffer's memory,
        simplified."""
        parts = []
        for dim in buffer.element_layout.dims:
            part = e.floordiv(indices[dim.axis], dim.div) if dim.div > 1 else indices[dim.axis]
            part = e.mod(part, dim.mod) if dim.mod else part
            parts.append(self._simplifier.simplify(part))
        return parts

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Bank, Expr]:
        """Return the bank that the access `buffer[indices]` selects, and the address of the element
        within the bank. Raises UsageError for a buffer in registers if an index is not constant."""
        shape = buffer.element_layout.physical_shape(buffer.type.static_shape)
        number, address, depth = [], e.index(0), 1
        places = zip(self._parts(buffer, indices), shape, self._banked[buffer.name], strict=True)
        for part, extent, is_bank in places:
            if is_bank:
                assert isinstance(part, Const)
                number.append(int(part.value))
            else:
                address = e.add(e.mul(address, extent), part)
                depth *= extent
        is_register = depth == 1 and buffer.name not in self._params
        if buffer.scope is MemoryScope.REGISTER and not is_register:
            raise UsageError(
                f"{self._name}: {buffer.name} lies in registers, and an access to it has no number",
                hint="unroll the loops over it, or leave it in local memory",
            )
        bank = Bank(
            buffer.name,
            tuple(number),
            buffer.dtype,
            depth,
            buffer.name in self._params,
            is_register,
        )
        return bank, self._simplifier.simplify(address)


def _accesses(regions: Regions) -> Iterable[tuple[Buffer, tuple[Expr, ...]]]:
    for region in regions.every():
        for each in region.stores:
            store = each.store
            yield store.buffer, store.indices
            parts = (store.value, *store.indices, *each.conditions)
            for load in itertools.chain.from_iterable(map(loads, parts)):
                assert isinstance(load, Load)
                yield load.buffer, load.indices
