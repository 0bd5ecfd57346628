"""The runtime checks of sizes that a driver computes, numbered in the order of the program."""

from __future__ import annotations

import dataclasses

from farrier.ir.control import Grown, symbol_of
from farrier.ir.dim import Extent, Symbol, symbols, upper
from farrier.ir.sizes import Demand
from farrier.partition.program import Bind, DriverProgram, Fail, Repeat
from farrier.targets.linked import Check


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """The values that a size computed at run time may have, with the number of the check that tests
    it. If `demands` is None, they are 0 to `most`. Otherwise they are the values whose relation to
    `most` is `demands` (equal, at least, or at most)."""

    number: int
    most: Extent
    demands: Demand | None = None


class Checks:
    """The checks of a program, collected during a traversal of its steps. The traversal must add to
    `bound` the names of the symbols that have values from each step on."""

    def __init__(self, program: DriverProgram, first: int = 0) -> None:
        self.checks: list[Check] = []
        self._program = program
        self._first = first
        self._given = frozenset(symbol.name for symbol in program.dims)
        self.bound = set(self._given)

    def of_extent(self, extent: Extent, step: Bind) -> tuple[Limit, Symbol | None]:
        """Return the check for one element that a Bind reads: the limit of the element, and the
        symbol that the element defines. The symbol is None if the element is only compared."""
        symbol = symbol_of(extent)
        if step.is_check or symbol is None or symbol.name in self.bound:
            return self._limit(extent, step, step.demands), None
        return self._limit(symbol.high, step), symbol

    def of_trips(self, loop: Repeat) -> Limit | None:
        """Return the limit on the number of iterations of a loop, if only a capacity bounds it;
        else None."""
        if loop.count is None:
            return None
        most = upper(loop.count.high, lambda symbol: symbol.name in self._given)
        has_room = any(symbol in self._program.capacities for symbol in symbols((most,)))
        return self._limit(most, loop) if has_room else None

    def of_grown(self, grown: Grown, loop: Repeat) -> Limit:
        symbol = symbol_of(grown.symbol)
        assert symbol is not None
        return self._limit(symbol.high, loop)

    def of_failure(self, step: Fail) -> int:
        """Return the number of a new check that always fails, for a Fail step."""
        return self._add(Check(0, True, step.origin, step.reason))

    def _limit(self, most: Extent, of: Bind | Repeat, demands: Demand | None = None) -> Limit:
        """Add a check that the step `of` requires, and return its limit. With `demands`, the size
        must have that relation to `most`. Without, `most` is a capacity; the limit is then reduced
        to the actual sizes if the symbols in `most` have values at this step."""
        room = most
        if demands is None:
            room = upper(most, lambda symbol: symbol.name in self._given)
            most = upper(most, lambda symbol: symbol.name in self.bound)
        reason, needs = (of.reason, of.needs) if isinstance(of, Bind) else ("", "")
        check = Check(room, demands is not None, of.origin, reason, needs)
        return Limit(self._add(check), most, demands)

    def _add(self, check: Check) -> int:
        self.checks.append(check)
        return self._first + len(self.checks) - 1
