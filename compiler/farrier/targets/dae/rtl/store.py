"""The store module: it writes sums to rows in DRAM, as 32-bit words or as their lowest bytes."""

from __future__ import annotations

from typing import Any

from amaranth import Array, Cat, Const, Elaboratable, Mux, Signal, Value
from amaranth import Module as Design

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.instructions import Form, Kind, Module
from farrier.targets.dae.rtl.port import Port
from farrier.targets.dae.rtl.queues import Front
from farrier.targets.dae.rtl.words import fields_of


class Store(Elaboratable):
    """The store module. It reads each element while the last beat (transfer of one cycle) of the
    previous element is sent. An instruction ends when memory has acknowledged all of its beats."""

    def __init__(self, accelerator: Accelerator, port: Port) -> None:
        self._accelerator = accelerator
        self._port = port
        self.front = Front(accelerator, Module.STORE)
        self.base = Signal(32)  # The start address of the argument that `argument` selects.
        self.argument = Signal(accelerator.fields.argument)
        self.written = Signal()
        # The address of the sum to read while `read` is high.
        self.address = Signal(accelerator.fields.index)
        self.read = Signal()
        # The sum that was read, from one cycle later on.
        self.sum = Signal(8 * accelerator.sum_bytes)

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        m.submodules.front = front = self.front
        accelerator, requests = self._accelerator, self._port.stores
        port = accelerator.port.bytes
        head = fields_of(front.head, Kind.STORE, accelerator)
        form, stride = Signal(), Signal(accelerator.fields.offset)
        count = accelerator.fields.count
        rows, columns, width = Signal(count), Signal(count), Signal(count)
        omitted = Signal.like(head["omitted"])
        most = -(-accelerator.sum_bytes // port)
        beat = Signal(range(most + 1))
        address, row, index = Signal(32), Signal(32), Signal(accelerator.fields.index)
        fetches, sends, running = Signal(), Signal(), Signal()
        flight = Signal(32)  # The number of beats that memory has not acknowledged yet.
        m.d.comb += self.argument.eq(head["argument"])
        with m.If(front.begin):
            first = self.base + head["offset"]
            m.d.sync += [
                *(form.eq(head["form"]), stride.eq(head["stride"]), width.eq(head["columns"])),
                omitted.eq(head["omitted"]),
                *(rows.eq(head["rows"]), columns.eq(head["columns"]), index.eq(head["index"])),
                *(address.eq(first), row.eq(first), beat.eq(0), running.eq(1)),
                fetches.eq((head["rows"] != 0) & (head["columns"] != 0)),
            ]
        beats_of, last_bytes = self._beats(form, omitted)
        ends_element = beat + 1 == beats_of
        ends_row = ends_element & (columns == 1)
        ends = ends_row & (rows == 1)
        takes_next = requests.taken & ends_element & ~ends
        m.d.comb += [
            self.read.eq(fetches | takes_next),
            self.address.eq(index),
            requests.wants.eq(sends),
            requests.address.eq(address),
            requests.is_last.eq(ends),
            self._port.nbytes.eq(Mux(ends_element, last_bytes, port)),
        ]
        with m.If(fetches):
            m.d.sync += [fetches.eq(0), sends.eq(1)]
        with m.If(self.read):
            m.d.sync += index.eq(index + 1)
        with m.If(requests.taken):
            m.d.sync += [beat.eq(beat + 1), address.eq(address + self._port.nbytes)]
            with m.If(ends_element):
                m.d.sync += [beat.eq(0), columns.eq(columns - 1)]
            with m.If(ends_row):
                m.d.sync += [address.eq(row + stride), row.eq(row + stride)]
                m.d.sync += [columns.eq(width), rows.eq(rows - 1)]
            with m.If(ends):
                m.d.sync += sends.eq(0)
        words = [self.sum[32 * n : 32 * n + 8] for n in range(accelerator.sum_bytes // 4)]
        content = Mux(form == Form.BYTE.value, Cat(*words), self.sum)
        parts = Array(content[8 * port * n : 8 * port * (n + 1)] for n in range(most))
        m.d.comb += self._port.data.eq(parts[beat])
        m.d.sync += flight.eq(flight + requests.taken - self.written)
        m.d.comb += front.done.eq(running & ~fetches & ~sends & (flight == 0))
        with m.If(front.done):
            m.d.sync += running.eq(0)
        return m

    def _beats(self, form: Value, omitted: Value) -> tuple[Value, Value]:
        """Return the number of beats of an element, and the bytes of its last beat, as tables that
        are indexed by the number of omitted sums."""
        port, sums = self._accelerator.port.bytes, self._accelerator.sum_bytes // 4
        beats, lasts = {}, {}
        for each, size in ((Form.WORD, 4), (Form.BYTE, 1)):
            nbytes = [size * (sums - number) for number in range(sums)]
            beats[each] = Array(Const(-(-n // port)) for n in nbytes)[omitted]
            lasts[each] = Array(Const((n - 1) % port + 1) for n in nbytes)[omitted]
        is_byte = form == Form.BYTE.value
        return (
            Mux(is_byte, beats[Form.BYTE], beats[Form.WORD]),
            Mux(is_byte, lasts[Form.BYTE], lasts[Form.WORD]),
        )
