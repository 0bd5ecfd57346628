"""The compute module: it issues steps of the matrix unit and of the vector unit, one in each cycle.

A step reads its operands in the cycle in which its addresses are available. Its sums are written
`latency` cycles later, and can be read one cycle after that. The vector unit holds its factor, the
sum at `by`, in a register. A step with another factor than the step before it waits for a cycle in
which the port of `from` reads that factor.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Elaboratable, EnableInserter, Mux, Signal, Value
from amaranth import Module as Design

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.instructions import ALU_LOOPS, GEMM_LOOPS, Alu, Kind, Module
from farrier.targets.dae.rtl.loops import Loops
from farrier.targets.dae.rtl.matrix import Matrix
from farrier.targets.dae.rtl.queues import Front
from farrier.targets.dae.rtl.sums import SumPad
from farrier.targets.dae.rtl.vector import Lane
from farrier.targets.dae.rtl.words import fields_of

_OPERANDS = {Kind.GEMM: ("sum", "input", "weight"), Kind.ALU: ("to", "from", "by")}


class Compute(Elaboratable):
    def __init__(self, accelerator: Accelerator, sums: SumPad) -> None:
        self._accelerator = accelerator
        self._sums = sums
        self.front = Front(accelerator, Module.COMPUTE)
        index = accelerator.fields.index
        # Addresses belong to this cycle, data to the preceding one.
        self.reads = Signal()
        self.input_address, self.weight_address = Signal(index), Signal(index)
        self.input = Signal(8 * accelerator.input_bytes)
        self.weight = Signal(8 * accelerator.weight_bytes)
        self.finished = Signal()

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        accelerator, sums = self._accelerator, self._sums
        m.submodules.front = front = self.front
        loops = self._loops(m)
        advance, is_gemm, is_alu, ends = Signal(), Signal(), Signal(), Signal()
        kind = fields_of(front.head, Kind.FINISH, accelerator)["kind"]
        alu = fields_of(front.head, Kind.ALU, accelerator)
        operation = {
            name: Signal(alu[name].shape(), name=name, reset_less=True)
            for name in ("operation", "is_immediate", "immediate")
        }
        with m.If(front.begin):
            m.d.sync += [is_gemm.eq(kind == Kind.GEMM), is_alu.eq(kind == Kind.ALU)]
            m.d.sync += ends.eq(kind == Kind.FINISH)
            m.d.sync += [signal.eq(alu[name]) for name, signal in operation.items()]
        with m.If(ends):
            m.d.sync += [ends.eq(0), self.finished.eq(1)]
        m.d.comb += advance.eq(~sums.stalls)
        to, source, by = loops.addresses
        matrix_write, matrix_done = self._matrix(m, loops, is_gemm, advance)
        vector = self._vector(m, loops, is_alu, operation, advance)
        m.d.comb += [
            self.input_address.eq(source),
            self.weight_address.eq(by),
            self.reads.eq(advance),
            sums.reads["from"].address.eq(Mux(vector["reads_factor"], by, source)),
            sums.reads["to"].address.eq(Mux(is_gemm, matrix_write["read"], to)),
            *(sums.reads[name].enable.eq(advance) for name in ("to", "from")),
            sums.write.enable.eq(matrix_write["enable"] | vector["enable"]),
            sums.write.address.eq(Mux(is_gemm, matrix_write["address"], vector["address"])),
            sums.write.data.eq(Mux(is_gemm, matrix_write["data"], vector["data"])),
            sums.lanes.eq(Mux(is_gemm, -1, vector["lanes"])),
            front.done.eq(ends | (advance & (matrix_done | vector["done"]))),
        ]
        return m

    def _loops(self, m: Design) -> Loops:
        """Return the loops for instructions of both units. The loops of the vector unit are the
        inner ones."""
        fields, front = self._accelerator.fields, self.front
        m.submodules.loops = loops = Loops(GEMM_LOOPS, 3, fields.count, fields.index)
        gemm = fields_of(front.head, Kind.GEMM, self._accelerator)
        alu = fields_of(front.head, Kind.ALU, self._accelerator)
        kind = gemm["kind"]
        is_gemm = kind == Kind.GEMM
        outer = GEMM_LOOPS - ALU_LOOPS
        names = _OPERANDS[Kind.GEMM], _OPERANDS[Kind.ALU]

        def either(left: str, right: str) -> Value:
            return Mux(is_gemm, gemm[left], alu[right])

        counts: list[Value] = []
        strides: list[list[Value]] = []
        for n in range(GEMM_LOOPS):
            if n < outer:
                counts.append(Mux(is_gemm, gemm[f"count{n}"], 1))
                strides.append([gemm[f"{name}{n}"] for name in names[0]])
            else:
                counts.append(either(f"count{n}", f"count{n - outer}"))
                strides.append(
                    [
                        either(f"{left}{n}", f"{right}{n - outer}")
                        for left, right in zip(*names, strict=True)
                    ]
                )
        firsts = [either(left, right) for left, right in zip(*names, strict=True)]
        loops.set(m, counts, strides, firsts)
        has_loops = is_gemm | (kind == Kind.ALU)
        m.d.comb += loops.load.eq(front.begin & has_loops)
        return loops

    def _matrix(
        self, m: Design, loops: Loops, is_gemm: Value, advance: Value
    ) -> tuple[dict[str, Value], Value]:
        """Return the writes of the matrix unit, and a signal for the last write of an
        instruction."""
        accelerator = self._accelerator
        latency, outer = accelerator.matrix.latency, accelerator.matrix.outer
        unit = Matrix(accelerator, latency - 2)
        m.submodules.matrix = EnableInserter(advance)(unit)
        m.d.comb += [unit.inputs.eq(self.input), unit.weights.eq(self.weight)]
        m.d.comb += unit.enable.eq(advance)
        # A step after n cycles of delay: a valid flag, the address of its sum, and a flag of the
        # last step.
        valid, address, last = _delayed(
            m, advance, latency, loops.valid & is_gemm, loops.addresses[0], loops.last
        )
        at = latency - 1  # The cycle in which a total is added to its sum.
        total, before = (Signal(32 * outer, name=n, reset_less=True) for n in ("total", "before"))
        # The sum of the step before the last one.
        twice = Signal.like(address[0], reset_less=True)
        was_valid = Signal()
        same = valid[latency] & (address[latency] == address[at])
        same_twice = was_valid & (twice == address[at])
        read = self._sums.reads["to"].data
        held = Mux(same, total, Mux(same_twice, before, read))
        with m.If(advance):
            m.d.sync += [before.eq(total), twice.eq(address[latency]), was_valid.eq(valid[latency])]
            for n in range(outer):
                word = held[32 * n : 32 * n + 32] + unit.totals[n]
                m.d.sync += total[32 * n : 32 * n + 32].eq(word)
        # The sum of a preceding step that has not been written yet is forwarded to a step that adds
        # to it.
        goes_on = valid[at] & (address[at] == address[latency])
        written = {
            "enable": valid[latency] & ~goes_on,
            "address": address[latency],
            "data": total,
            "read": address[latency - 2],
        }
        return written, valid[latency] & last[latency]

    def _vector(
        self,
        m: Design,
        loops: Loops,
        is_alu: Value,
        operation: dict[str, Signal],
        advance: Value,
    ) -> dict[str, Value]:
        """Return the writes of the vector unit, and advance the loops at each of its steps."""
        accelerator = self._accelerator
        latency, lanes = accelerator.vector.latency, accelerator.vector.lanes
        outer = accelerator.matrix.batch * accelerator.matrix.outer
        chunks = -(-outer // lanes)
        chunk = Signal(range(max(2, chunks)))
        ends = chunk == chunks - 1
        # High while the step must wait for its factor, or for a sum that is still being computed.
        waits = Signal()
        factor, reads_factor = self._factor(m, loops, is_alu, operation, advance)
        takes = loops.valid & ~(is_alu & waits) & advance
        m.d.comb += loops.advance.eq(takes & (~is_alu | ends))
        with m.If(takes & is_alu):
            m.d.sync += chunk.eq(Mux(ends, 0, chunk + 1))
        valid, address, last, number = _delayed(
            m,
            advance,
            latency,
            loops.valid & is_alu & ~waits,
            loops.addresses[0],
            loops.last & ends,
            chunk,
        )
        to = loops.addresses[0]
        m.d.comb += waits.eq(
            Cat(
                reads_factor,
                *(
                    valid[n] & (address[n] == to) & (number[n] == chunk)
                    for n in range(1, latency + 1)
                ),
            ).any()
        )
        results = []
        for n in range(lanes):
            lane = Lane(latency - 1)
            m.submodules[f"lane{n}"] = EnableInserter(advance)(lane)
            m.d.comb += [getattr(lane, name).eq(signal) for name, signal in operation.items()]
            reads = self._sums.reads
            for data, operand in (
                (reads["to"].data, lane.a),
                (reads["from"].data, lane.b),
                (factor, lane.c),
            ):
                with m.Switch(number[1]):
                    for each in range(chunks):
                        at = 32 * (each * lanes + n)
                        with m.Case(each):
                            m.d.comb += operand.eq(data[at : at + 32])
            results.append(lane.result)
        written = Cat(*(valid[latency] & (number[latency] == n // lanes) for n in range(outer)))
        return {
            "enable": valid[latency],
            "address": address[latency],
            "data": Cat(*(results[n % lanes] for n in range(outer))),
            "lanes": written,
            "done": valid[latency] & last[latency],
            "reads_factor": reads_factor,
        }

    def _factor(
        self,
        m: Design,
        loops: Loops,
        is_alu: Value,
        operation: dict[str, Signal],
        advance: Value,
    ) -> tuple[Signal, Signal]:
        """Return the register with the factor of the current step, and a signal that is high in
        the cycle in which it must be read."""
        by = loops.addresses[2]
        factor = Signal(8 * self._accelerator.sum_bytes, reset_less=True)
        holds, held, reads, comes = Signal(), Signal.like(by, reset_less=True), Signal(), Signal()
        is_needed = loops.valid & is_alu & (operation["operation"] == Alu.ACCUMULATE)
        m.d.comb += reads.eq(is_needed & ~(holds & (held == by)))
        with m.If(advance):
            m.d.sync += comes.eq(reads)
            with m.If(reads):
                m.d.sync += [holds.eq(1), held.eq(by)]
            with m.If(comes):
                m.d.sync += factor.eq(self._sums.reads["from"].data)
        with m.If(self.front.begin):
            m.d.sync += holds.eq(0)
        return factor, reads


def _delayed(m: Design, advance: Value, cycles: int, *values: Any) -> list[list[Value]]:
    """Return the values after a delay of 0, 1, …, `cycles` cycles. The first value says that the
    others are valid; it alone is reset."""
    rows: list[list[Value]] = []
    for value in values:
        row = [Value.cast(value)]
        for _ in range(cycles):
            behind = Signal.like(row[-1], reset_less=bool(rows))
            with m.If(advance):
                m.d.sync += behind.eq(row[-1])
            row.append(behind)
        rows.append(row)
    return rows
