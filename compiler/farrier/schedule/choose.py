"""The schedule primitive `choose`: fix a size that a loop nest leaves to the schedule."""

from __future__ import annotations

from farrier.ir.choices import with_choices
from farrier.ir.dim import bounds
from farrier.ir.loop import Function
from farrier.schedule.nest import NestView


def choose(function: Function, choice: str, value: int) -> Function:
    """Replace the size parameter `choice` of a function by `value`; the results do not depend on
    it.

    before:
        @function(parts=choice(1, 8, 1))
        def copy(a: f32[8], b: f32[8]):
            for part in independent(parts):
                for i in serial((parts + 7) // parts):
                    if part * ((parts + 7) // parts) + i < 8:
                        b[part * ((parts + 7) // parts) + i] = a[part * ((parts + 7) // parts) + i]
    after choose("parts", 2):
        @function
        def copy(a: f32[8], b: f32[8]):
            for part in independent(2):
                for i in serial(4):
                    if part * 4 + i < 8:
                        b[part * 4 + i] = a[part * 4 + i]
    """
    nest = NestView(function, "choose")
    symbol = next((s for s in function.choices if s.name == choice), None)
    if symbol is None:
        names = ", ".join(s.name for s in function.choices)
        nest.fail(f"there is no choice {choice}; the choices are {names or 'none'}")
    if not symbol.low <= value <= bounds(symbol.high)[1]:
        nest.fail(f"{choice} is {value}, and must be between {symbol.low} and {symbol.high}")
    return with_choices(function, {choice: value})
