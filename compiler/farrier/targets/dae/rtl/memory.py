"""Block RAM memories, and queues stored in them."""

from __future__ import annotations

from typing import Any

from amaranth import ClockSignal, Elaboratable, Instance, Mux, Signal
from amaranth import Module as Design


class Ram(Elaboratable):
    """A memory with one write port and one read port with a latency of one cycle: an instance of
    `ram.v`.

    Amaranth's own memories are initialized with zeros, which make up most of the Verilog text of a
    large memory.
    """

    def __init__(self, width: int, depth: int, lane: int | None = None) -> None:
        self._width, self._depth, self._lane = width, depth, lane or width
        bits = max(1, (depth - 1).bit_length())
        self.write_enable = Signal(width // self._lane)
        self.write_address = Signal(bits)
        self.write_data = Signal(width)
        self.read_enable = Signal()
        self.read_address = Signal(bits)
        self.read_data = Signal(width)

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        m.submodules.ram = Instance(
            "ram",
            p_WIDTH=self._width,
            p_LANE=self._lane,
            p_DEPTH=self._depth,
            p_ADDRESS=len(self.read_address),
            i_clk=ClockSignal(),
            i_write_enable=self.write_enable,
            i_write_address=self.write_address,
            i_write_data=self.write_data,
            i_read_enable=self.read_enable,
            i_read_address=self.read_address,
            o_read_data=self.read_data,
        )
        return m


class Queue(Elaboratable):
    """A queue of words. `level` is the number of words in it. While `has_head` is high, `head` is
    the first word and `pop` removes it; while `has_room` is high, `push` appends a word."""

    def __init__(self, width: int, depth: int) -> None:
        self._depth = max(2, depth)
        self._width = width
        self.push = Signal()
        self.word = Signal(width)
        self.has_room = Signal()
        self.pop = Signal()
        self.head = Signal(width)
        self.has_head = Signal()
        self.level = Signal(range(self._depth + 2))

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        m.submodules.ram = ram = Ram(self._width, self._depth)
        first, behind = Signal(range(self._depth)), Signal(range(self._depth))
        inside = Signal(range(self._depth + 1))  # Words in the memory, but for the head.
        pushes, moves = Signal(), Signal()
        last = self._depth - 1
        m.d.comb += [
            self.has_room.eq(self.level < self._depth),
            pushes.eq(self.push & self.has_room),
            moves.eq((inside != 0) & (~self.has_head | self.pop)),
            self.level.eq(inside + self.has_head),
            ram.write_enable.eq(pushes),
            ram.write_address.eq(behind),
            ram.write_data.eq(self.word),
            ram.read_enable.eq(moves),
            ram.read_address.eq(first),
            self.head.eq(ram.read_data),
        ]
        m.d.sync += inside.eq(inside + pushes - moves)
        with m.If(pushes):
            m.d.sync += behind.eq(Mux(behind == last, 0, behind + 1))
        with m.If(moves):
            m.d.sync += [first.eq(Mux(first == last, 0, first + 1)), self.has_head.eq(1)]
        with m.Elif(self.pop):
            m.d.sync += self.has_head.eq(0)
        return m
