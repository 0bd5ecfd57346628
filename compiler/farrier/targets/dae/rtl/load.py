"""The load module: it copies rows from DRAM to a scratchpad, and writes padding around them."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Elaboratable, Mux, Signal, Value
from amaranth import Module as Design

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.instructions import Kind, Module, Pad
from farrier.targets.dae.rtl.port import Requests
from farrier.targets.dae.rtl.queues import Front
from farrier.targets.dae.rtl.words import fields_of
from farrier.targets.dae.tokens import bytes_of


class Writes:
    """The signals of a write port for whole elements of a scratchpad."""

    def __init__(self, name: str, nbytes: int, index_bits: int) -> None:
        self.enable = Signal(name=f"{name}_enable")
        self.address = Signal(index_bits, name=f"{name}_address")
        self.data = Signal(8 * nbytes, name=f"{name}_data")


class Load(Elaboratable):
    """The load module. One process requests beats (transfers of one cycle) from memory in order;
    another counts the arriving beats and writes each complete element; a third writes the padding
    in the remaining cycles."""

    def __init__(self, accelerator: Accelerator, requests: Requests) -> None:
        self._accelerator = accelerator
        self._requests = requests
        self.front = Front(accelerator, Module.LOAD)
        self.base = Signal(32)  # The start address of the argument that `argument` selects.
        self.argument = Signal(accelerator.fields.argument)
        self.read_valid, self.read_data = Signal(), Signal(8 * accelerator.port.bytes)
        bits = accelerator.fields.index
        self.inputs = Writes("inputs", accelerator.input_bytes, bits)
        self.weights = Writes("weights", accelerator.weight_bytes, bits)
        self.sums = Writes("sums", accelerator.sum_bytes, bits)
        self.sums_settled = Signal()  # High if all sums that were written have arrived.

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        m.submodules.front = front = self.front
        word = Signal.like(front.head, reset_less=True)
        with m.If(front.begin):
            m.d.sync += word.eq(front.head)
        fields = dict(fields_of(word, Kind.LOAD, self._accelerator))
        head = fields_of(front.head, Kind.LOAD, self._accelerator)
        is_empty = Signal()  # The load has padding only, no data.
        m.d.comb += is_empty.eq((fields["rows"] == 0) | (fields["columns"] == 0))
        starts = Signal()  # High in the cycle after `begin`.
        m.d.sync += starts.eq(front.begin)
        m.d.comb += self.argument.eq(head["argument"])
        asked = self._ask(m, fields, starts, is_empty)
        data, came = self._take(m, fields, starts, is_empty)
        padding, padded = self._pad(m, fields, starts, data)
        self._write(m, fields, data, padding)
        running = Signal()
        m.d.sync += running.eq((running | starts) & ~front.done)
        settled = (fields["pad"] < Pad.SUM) | self.sums_settled
        m.d.comb += front.done.eq(running & asked & came & padded & settled)
        return m

    def _by_pad(self, pad: Value, figure: dict[Pad, int]) -> Value:
        """Return the entry of `figure` for the key `pad`, a signal with the number of the `Pad`
        that the current instruction writes."""
        value: Value = Const(figure[Pad.INPUT])
        for each in list(Pad)[1:]:
            value = Mux(pad == each.value, figure[each], value)
        return value

    def _beats(self, pad: Value) -> Value:
        port, accelerator = self._accelerator.port.bytes, self._accelerator
        return self._by_pad(pad, {p: -(-bytes_of(p, accelerator) // port) for p in Pad})

    def _ask(self, m: Design, fields: dict[str, Value], starts: Signal, is_empty: Value) -> Value:
        """Emit the logic that requests all beats of an instruction from the memory port. Return a
        signal that is high once all of them have been requested."""
        port, accelerator = self._accelerator.port.bytes, self._accelerator
        requests, front = self._requests, self.front
        head = fields_of(front.head, Kind.LOAD, accelerator)
        pad = fields["pad"]
        most = max(-(-bytes_of(p, accelerator) // port) for p in Pad)
        rows, columns = Signal.like(fields["rows"]), Signal.like(fields["columns"])
        beats, total = Signal(range(most + 1)), Signal(range(most + 1))
        address, row = Signal(32), Signal(32)
        step, asks, base = Signal(32), Signal(), Signal(32)
        with m.If(front.begin):
            m.d.sync += base.eq(self.base + head["offset"])
            m.d.sync += [rows.eq(head["rows"]), columns.eq(head["columns"])]
            m.d.sync += [beats.eq(self._beats(head["pad"])), total.eq(self._beats(head["pad"]))]
            m.d.sync += asks.eq((head["rows"] != 0) & (head["columns"] != 0))
            m.d.sync += [address.eq(self.base + head["offset"])]
            m.d.sync += row.eq(self.base + head["offset"])
        # The distance in bytes from the last beat of an element to the next element.
        lasts = {
            p: bytes_of(p, accelerator) - (-(-bytes_of(p, accelerator) // port) - 1) * port
            for p in Pad
        }
        m.d.comb += step.eq(Mux(beats == 1, self._by_pad(pad, lasts), port))
        ends_row = (beats == 1) & (columns == 1)
        m.d.comb += [
            requests.wants.eq(asks),
            requests.address.eq(address),
            requests.is_last.eq(ends_row & (rows == 1)),
        ]
        with m.If(requests.taken):
            m.d.sync += [address.eq(address + step), beats.eq(beats - 1)]
            with m.If(beats == 1):
                m.d.sync += [beats.eq(total), columns.eq(columns - 1)]
            with m.If(ends_row):
                ahead = row + fields["stride"]
                m.d.sync += [address.eq(ahead), row.eq(ahead)]
                m.d.sync += [columns.eq(fields["columns"]), rows.eq(rows - 1)]
            with m.If(requests.is_last):
                m.d.sync += asks.eq(0)
        return ~asks

    def _take(
        self, m: Design, fields: dict[str, Value], starts: Signal, is_empty: Value
    ) -> tuple[Writes, Value]:
        """Emit the logic that receives the beats. Return the writes of complete elements to the
        scratchpad, each in the upper bits of the data, and a signal that is high once all elements
        have been written."""
        accelerator = self._accelerator
        bits = accelerator.fields.index
        widest = max(bytes_of(p, accelerator) for p in Pad)
        port = accelerator.port.bytes
        most = -(-widest // port)
        # A beat is processed one cycle after its arrival.
        valid, beat = Signal(), Signal(8 * port, reset_less=True)
        m.d.sync += [valid.eq(self.read_valid), beat.eq(self.read_data)]
        rows, columns = Signal.like(fields["rows"]), Signal.like(fields["columns"])
        beats, total = Signal(range(most + 1)), Signal(range(most + 1))
        # The beats of the current element received so far, the latest in the highest bits.
        before = Signal(8 * port * max(1, most - 1), reset_less=True)
        address, margin, waits = Signal(bits), Signal(bits), Signal()
        width = fields["left"] + fields["columns"] + fields["right"]
        m.d.comb += margin.eq(fields["left"] + fields["right"])
        with m.If(starts):
            m.d.sync += [rows.eq(fields["rows"]), columns.eq(fields["columns"])]
            m.d.sync += [beats.eq(self._beats(fields["pad"])), total.eq(self._beats(fields["pad"]))]
            # A sum of a few bits' multiples: a multiplier is worth more to the matrix unit.
            top = fields["top"]
            above = sum((Mux(bit, width << n, 0) for n, bit in enumerate(top)), Const(0))
            first = fields["index"] + above + fields["left"]
            m.d.sync += [address.eq(first), waits.eq(~is_empty)]
        whole = Cat(before[-8 * port * (most - 1) :], beat) if most > 1 else beat
        data = Writes("data", most * port, bits)
        m.d.comb += data.data.eq(whole)
        m.d.comb += [data.enable.eq(valid & (beats == 1)), data.address.eq(address)]
        with m.If(valid):
            m.d.sync += [before.eq(Cat(before, beat)[8 * port :]), beats.eq(beats - 1)]
        with m.If(data.enable):
            m.d.sync += [beats.eq(total), columns.eq(columns - 1), address.eq(address + 1)]
            with m.If(columns == 1):
                m.d.sync += [columns.eq(fields["columns"]), rows.eq(rows - 1)]
                m.d.sync += address.eq(address + 1 + margin)
                with m.If(rows == 1):
                    m.d.sync += waits.eq(0)
        return data, ~waits

    def _pad(
        self, m: Design, fields: dict[str, Value], starts: Signal, data: Writes
    ) -> tuple[Writes, Value]:
        """Emit the logic that writes the padding. Return its writes to the scratchpad, and a signal
        that is high once all padding has been written."""
        bits = self._accelerator.fields.index
        count = self._accelerator.fields.count + 2
        x, y = Signal(count), Signal(count)
        width, height = Signal(count), Signal(count)
        address, walks = Signal(bits), Signal()
        top, left = fields["top"], fields["left"]
        has_padding = Cat(*(fields[name] for name in ("top", "bottom", "left", "right"))).any()
        inside = (y >= top) & (y < top + fields["rows"]) & (x == left) & (fields["columns"] != 0)
        padding = Writes("padding", 1, bits)
        # The number of elements to advance by. All data within a row is skipped at once.
        ahead = Signal(count)
        m.d.comb += ahead.eq(Mux(inside, fields["columns"], 1))
        m.d.comb += [padding.address.eq(address), padding.data.eq(fields["fill"])]
        m.d.comb += padding.enable.eq(walks & ~inside & ~data.enable)
        with m.If(starts):
            rows = fields["top"] + fields["rows"] + fields["bottom"]
            m.d.sync += [x.eq(0), y.eq(0), address.eq(fields["index"]), walks.eq(has_padding)]
            m.d.sync += [width.eq(left + fields["columns"] + fields["right"]), height.eq(rows)]
        with m.Elif(walks & (inside | ~data.enable)):
            m.d.sync += [x.eq(x + ahead), address.eq(address + ahead)]
            with m.If(x + ahead >= width):
                m.d.sync += [x.eq(0), y.eq(y + 1)]
                with m.If(y + 1 >= height):
                    m.d.sync += walks.eq(0)
        return padding, ~walks

    def _write(self, m: Design, fields: dict[str, Value], data: Writes, padding: Writes) -> None:
        """Route the writes of data and of padding to the scratchpad that the instruction
        selects."""
        pad = fields["pad"]
        address = Mux(data.enable, data.address, padding.address)
        enable = data.enable | padding.enable
        for writes, pads in (
            (self.inputs, (Pad.INPUT,)),
            (self.weights, (Pad.WEIGHT,)),
            (self.sums, (Pad.SUM, Pad.SIGNED, Pad.UNSIGNED)),
        ):
            is_this = Cat(*(pad == each.value for each in pads)).any()
            m.d.comb += [writes.enable.eq(enable & is_this), writes.address.eq(address)]
            content = {each: self._content(each, data, padding) for each in pads}
            with m.Switch(pad):
                for each in pads[1:]:
                    with m.Case(each.value):
                        m.d.comb += writes.data.eq(content[each])
                with m.Default():
                    m.d.comb += writes.data.eq(content[pads[0]])

    def _content(self, pad: Pad, data: Writes, padding: Writes) -> Value:
        """Return an element that a load with `pad` writes: its data or its padding."""
        nbytes, port = bytes_of(pad, self._accelerator), self._accelerator.port.bytes
        first = len(data.data) - 8 * port * -(-nbytes // port)
        came = data.data[first : first + 8 * nbytes]
        content = Mux(data.enable, came, padding.data.replicate(nbytes))
        if pad not in (Pad.SIGNED, Pad.UNSIGNED):
            return content
        lanes = [content[8 * n : 8 * n + 8] for n in range(nbytes)]
        signs = [lane[-1] if pad is Pad.SIGNED else Const(0, 1) for lane in lanes]
        words = (Cat(lane, sign.replicate(24)) for lane, sign in zip(lanes, signs, strict=True))
        return Cat(*words)
