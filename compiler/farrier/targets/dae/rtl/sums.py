"""The scratchpad of sums. In each cycle, three sums can be read, one written by the matrix or
vector unit, and one written by a load.

Even and odd elements are in separate banks, each of which accepts one write per cycle, so that
conflicts of two writers are rare. On a conflict, the write of the load waits in the queue of its
bank; the units stall only if that queue is full.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Elaboratable, Mux, Signal
from amaranth import Module as Design

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.rtl.load import Writes
from farrier.targets.dae.rtl.memory import Queue, Ram

READERS = ("to", "from", "store")
_BANKS = 2


class Read:
    """A read port. `data` is the element at `address` from the cycle after `enable` on, until the
    next read."""

    def __init__(self, name: str, accelerator: Accelerator) -> None:
        self.enable = Signal(name=f"read_{name}")
        self.address = Signal(accelerator.fields.index, name=f"{name}_address")
        self.data = Signal(8 * accelerator.sum_bytes, name=f"{name}_data")


class SumPad(Elaboratable):
    """The scratchpad of sums. In a cycle in which `stalls` is high, `write` is not accepted and the
    units must wait."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self.loads = Writes("loads", accelerator.sum_bytes, accelerator.fields.index)
        self.settled = Signal()  # High if no load waits for a bank.
        self.write = Writes("write", accelerator.sum_bytes, accelerator.fields.index)
        self.lanes = Signal(
            accelerator.matrix.batch * accelerator.matrix.outer
        )  # The sums that are written.
        self.stalls = Signal()
        self.reads = {name: Read(name, accelerator) for name in READERS}

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        accelerator, loads = self._accelerator, self.loads
        bits, index = 8 * accelerator.sum_bytes, accelerator.fields.index
        chunks = -(-accelerator.matrix.outer // accelerator.vector.lanes)
        queues = [Queue(bits + index - 1, 8 + chunks) for _ in range(_BANKS)]
        stalls, banks = [], []
        for bank, waiting in enumerate(queues):
            m.submodules[f"waiting{bank}"] = waiting
            by_unit, by_load = Signal(name=f"by_unit{bank}"), Signal(name=f"by_load{bank}")
            writes = self.write.enable & (self.write.address[0] == bank)
            stalls.append(writes & waiting.has_head & (waiting.level >= 6 + chunks))
            m.d.comb += [
                waiting.word.eq(Cat(loads.data, loads.address[1:])),
                waiting.push.eq(loads.enable & (loads.address[0] == bank)),
                by_unit.eq(writes & ~self.stalls),
                by_load.eq(waiting.has_head & ~by_unit),
                waiting.pop.eq(by_load),
            ]
            banks.append((by_unit, by_load, waiting.head[:bits], waiting.head[bits:]))
        m.d.comb += [
            self.stalls.eq(Cat(*stalls).any()),
            self.settled.eq(~Cat(*(each.level != 0 for each in queues), loads.enable).any()),
        ]
        size = -(-accelerator.sums // _BANKS)
        for name, read in self.reads.items():
            parity = Signal(name=f"parity_{name}")
            with m.If(read.enable):
                m.d.sync += parity.eq(read.address[0])
            parts = []
            for bank, (by_unit, by_load, loaded, at) in enumerate(banks):
                memory = Ram(bits, size, lane=32)
                m.submodules[f"{name}{bank}"] = memory
                lanes = by_load.replicate(len(self.lanes))
                m.d.comb += [
                    memory.write_address.eq(Mux(by_unit, self.write.address[1:], at)),
                    memory.write_data.eq(Mux(by_unit, self.write.data, loaded)),
                    memory.write_enable.eq(Mux(by_unit, self.lanes, lanes)),
                    memory.read_address.eq(read.address[1:]),
                    memory.read_enable.eq(read.enable),
                ]
                parts.append(memory.read_data)
            m.d.comb += read.data.eq(Mux(parity, parts[1], parts[0]))
        return m
