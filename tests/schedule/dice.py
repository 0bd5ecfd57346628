"""Random arguments of primitives."""

from __future__ import annotations

from hypothesis import strategies as st

from farrier.ir.loop import Alloc, For
from farrier.ir.statements import walk_stmts
from farrier.ir.types import Layout, PhysicalDim


class Dice:
    """The arguments of a primitive, drawn from the contents of the function."""

    def __init__(self, data, schedule, step):
        self.data = data
        self.step = step
        statements = list(walk_stmts(schedule.function.body))
        self.loops = [s.var for s in statements if isinstance(s, For)]
        self.nested = [
            (s.var, s.body.var)
            for s in statements
            if isinstance(s, For) and isinstance(s.body, For)
        ]
        self.buffers = [s.buffer for s in statements if isinstance(s, Alloc)]
        self.params = list(schedule.function.params)

    def pick(self, options):
        return self.data.draw(st.sampled_from(options))

    def loop(self):
        return self.pick(self.loops)

    def buffer(self):
        return self.pick([b.name for b in self.buffers] or ["none"])

    def any_buffer(self):
        return self.pick([b.name for b in (*self.buffers, *self.params)])

    def number(self, low, high):
        return self.data.draw(st.integers(low, high))

    def new(self, prefix):
        return f"{prefix}{self.step}"

    def layout(self, name):
        rank = next(len(b.shape) for b in (*self.buffers, *self.params) if b.name == name)
        axis, block = self.number(0, rank - 1), self.number(1, 5)
        order = self.data.draw(st.permutations(range(rank)))
        outer = (PhysicalDim(a, block if a == axis else 1) for a in order)
        return Layout((*outer, PhysicalDim(axis, 1, block)))
