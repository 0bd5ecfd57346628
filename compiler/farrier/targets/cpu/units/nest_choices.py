"""The sizes that an operator's loop nest leaves to the scheduler: the number of parts that threads
share, and the number of values that one iteration keeps in registers."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

from farrier.ir.dim import Atom, Extent, as_extent, bounds, product, substitute, symbols, typical
from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.loop import For, Function, LoopKind
from farrier.schedule.nest import NestView, allocated, loops
from farrier.space.machine import Machine

# Registers that are left for addresses, factors and other values.
_SPARE = 8


@dataclasses.dataclass(frozen=True)
class Choices:
    """The sizes in a loop nest that the operator leaves to the scheduler (`function.choices`).
    There are two kinds.

    `shared` are the choices that are the extent of an independent loop: the number of parts that
    threads share. `held` are all others: the number of values that one iteration keeps in
    registers.
    """

    function: Function
    machine: Machine

    @functools.cached_property
    def shared(self) -> tuple[str, ...]:
        extents = [
            loop.extent for loop in loops(self.function.body) if loop.kind is LoopKind.INDEPENDENT
        ]
        return tuple(s.name for s in self.function.choices if as_extent(s) in extents)

    def parts(self, threads: int) -> dict[str, int]:
        """Return a value for each choice that is a number of parts for threads: one part for each
        thread, up to the limit of the choice."""
        most = {s.name: bounds(s.high)[1] for s in self.function.choices}
        return {name: min(threads, most[name]) for name in self.shared}

    @functools.cached_property
    def held(self) -> dict[str, int]:
        """The value of each choice that is a number of values in registers: the largest that fits
        in the registers and still leaves an iteration for every thread, then reduced as far as the
        number of iterations stays the same."""
        values = {symbol.name: 1 for symbol in self.function.choices}
        for symbol in self.function.choices:
            if symbol.name in self.shared:
                continue
            around = self._around(symbol.name)
            counts = {
                value: self._evaluate(around, {**values, symbol.name: value})
                for value in range(1, bounds(symbol.high)[1] + 1)
                if self._fits({**values, symbol.name: value})
            }
            least = min(self.machine.threads, counts.get(1, 1))
            largest = max((v for v, count in counts.items() if count >= least), default=1)
            values[symbol.name] = min(
                (v for v, count in counts.items() if count == counts[largest]), default=1
            )
        return {name: value for name, value in values.items() if name not in self.shared}

    def _around(self, choice: str) -> Extent:
        """Return the number of iterations that each use the registers of a choice: the product of
        the loops around the registers, starting from the outermost independent loop if there is
        one."""
        for buffer in self._registers():
            if choice in (symbol.name for symbol in symbols(buffer.shape)):
                path = NestView(self.function, "choose").path_to_alloc(buffer.name)
                around = [stmt for stmt in path if isinstance(stmt, For)]
                kinds = [loop.kind for loop in around]
                if LoopKind.INDEPENDENT in kinds:
                    around = around[kinds.index(LoopKind.INDEPENDENT) :]
                return product(loop.extent for loop in around)
        return 1

    def _registers(self) -> Iterator[Buffer]:
        for buffer in allocated(self.function.body):
            if buffer.scope is MemoryScope.REGISTER and buffer.dtype.is_float:
                yield buffer

    def _fits(self, values: dict[str, int]) -> bool:
        """Check whether the registers suffice for all floating-point register buffers whose size
        depends on choices."""
        needed = 0
        for buffer in self._registers():
            if any(symbol.name in values for symbol in symbols(buffer.shape)):
                lanes = self.machine.for_elements(buffer.dtype).lanes
                needed += math.ceil(self._evaluate(product(buffer.shape), values) / lanes)
        return needed <= max(self.machine.registers - _SPARE, 1)

    def _evaluate(self, extent: Extent, values: dict[str, int]) -> int:
        numbers: dict[Atom, Extent] = {s: values[s.name] for s in self.function.choices}
        return typical(substitute(extent, numbers))
