"""Pipelined logic: stages with a number of registers that depends on the configured latency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth import Cat, Mux, Signal, Value
from amaranth import Module as Design


class Pipeline:
    """Values that pass through `stages` stages. The `registers` are distributed evenly over the
    ends of the stages; a stage may end with none or with several."""

    def __init__(self, m: Design, stages: int, registers: int) -> None:
        self._m = m
        self._number = 0
        self._at = [0] * stages
        for n in range(1, registers + 1):
            self._at[-(-stages * n // registers) - 1] += 1

    def take(self) -> int:
        """Remove a register from the end of the current stage, which the caller puts elsewhere.
        Return the number of registers removed: 1, or 0 if the stage ends with none."""
        taken = min(1, self._at[self._number])
        self._at[self._number] -= taken
        return taken

    def end(self, **values: Any) -> Mapping[str, Signal]:
        """End the current stage with the signals `values`. Return the same signals, by name,
        delayed by the registers at the end of the stage."""
        registers = self._at[self._number]
        behind = {name: Value.cast(value) for name, value in values.items()}
        for _ in range(registers):
            ahead = {
                name: Signal(value.shape(), name=f"stage{self._number}_{name}", reset_less=True)
                for name, value in behind.items()
            }
            self._m.d.sync += [ahead[name].eq(value) for name, value in behind.items()]
            behind = dict(ahead)
        self._number += 1
        named = {}
        for name, value in behind.items():
            named[name] = Signal(value.shape(), name=f"behind{self._number}_{name}")
            self._m.d.comb += named[name].eq(value)
        return named


def leading_zeros(m: Design, value: Value) -> Value:
    """Return the number of leading zeros of a value, computed by repeated halving."""
    width = 1 << (len(value) - 1).bit_length()
    wide = Signal(width)
    m.d.comb += wide.eq(value << (width - len(value)))
    bits: list[Value] = []
    part: Value = wide
    while width > 1:
        half = width // 2
        is_low = part[half:] == 0
        following = Signal(half)
        m.d.comb += following.eq(Mux(is_low, part[:half], part[half:]))
        bits.insert(0, is_low)
        part, width = following, half
    return Cat(*bits)
