"""Hardware for nested loops that computes an address for each of several operands, one iteration
per cycle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth import Cat, Elaboratable, Mux, Signal, Value
from amaranth import Module as Design


class Loops(Elaboratable):
    """Nested loops, outermost first. A count of 0 means one iteration.

    A pulse of `load` stores counts, strides [loop][operand] and start addresses. From the next
    cycle on, `addresses` are those of the current iteration while `valid` is high; `advance`
    proceeds to the next iteration, until the one for which `last` is high.
    """

    def __init__(self, loops: int, operands: int, count_bits: int, index_bits: int) -> None:
        self._loops = loops
        self.load, self.advance, self.valid, self.last = (Signal() for _ in range(4))
        self.counts = [Signal(count_bits, name=f"count{n}") for n in range(loops)]
        self.strides = [
            [Signal(index_bits, name=f"stride{n}_{k}") for k in range(operands)]
            for n in range(loops)
        ]
        self.firsts = [Signal(index_bits, name=f"first{k}") for k in range(operands)]
        self.addresses = [Signal(index_bits, name=f"address{k}") for k in range(operands)]

    def set(
        self,
        m: Design,
        counts: Sequence[Value],
        strides: Sequence[Sequence[Value]],
        firsts: Sequence[Value],
    ) -> None:
        """Connect signals to the inputs that a pulse of `load` stores: the `counts` of the loops,
        the `strides` [loop][operand], and the start addresses `firsts` of the operands."""
        m.d.comb += [left.eq(right) for left, right in zip(self.counts, counts, strict=True)]
        m.d.comb += [left.eq(right) for left, right in zip(self.firsts, firsts, strict=True)]
        for loop, of_loop in zip(self.strides, strides, strict=True):
            m.d.comb += [left.eq(right) for left, right in zip(loop, of_loop, strict=True)]

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        loops = range(self._loops)
        count = [Signal.like(each, reset_less=True) for each in self.counts]
        # The remaining iterations, including the current one.
        left = [Signal.like(each, reset_less=True) for each in self.counts]
        stride = [
            [Signal.like(each, reset_less=True) for each in of_loop] for of_loop in self.strides
        ]
        base = [[Signal.like(each, reset_less=True) for each in self.firsts] for _ in loops]
        ends = [left[n] == 1 for n in loops]
        # A loop advances if all loops inside it have ended.
        goes_on = [~ends[n] & Cat(*ends[n + 1 :], 1).all() for n in loops]
        m.d.comb += self.last.eq(Cat(*ends).all())
        m.d.comb += [out.eq(at) for out, at in zip(self.addresses, base[-1], strict=True)]
        with m.If(self.load):
            m.d.sync += self.valid.eq(1)
            for n in loops:
                least = Mux(self.counts[n] == 0, 1, self.counts[n])
                m.d.sync += [count[n].eq(least), left[n].eq(least)]
                m.d.sync += [a.eq(b) for a, b in zip(stride[n], self.strides[n], strict=True)]
                m.d.sync += [a.eq(b) for a, b in zip(base[n], self.firsts, strict=True)]
        with m.Elif(self.valid & self.advance):
            m.d.sync += self.valid.eq(~self.last)
            for n in loops:
                with m.If(goes_on[n]):
                    m.d.sync += left[n].eq(left[n] - 1)
                    m.d.sync += [left[inner].eq(count[inner]) for inner in loops[n + 1 :]]
                    for k in range(len(self.firsts)):
                        ahead = base[n][k] + stride[n][k]
                        m.d.sync += [base[inner][k].eq(ahead) for inner in loops[n:]]
        return m
