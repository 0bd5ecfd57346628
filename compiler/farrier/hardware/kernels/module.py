"""The generation of an Amaranth module from the pipelines of a kernel. The module has these ports:

start, busy    a pulse of `start` starts a run in the next cycle; `busy` is high during the run

The ports for each argument are a read enable and a read address, for which the caller returns the
data one cycle later, and a write enable, a write address and the data to write.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amaranth import Cat, Elaboratable, Mux, Shape, Signal, signed, unsigned
from amaranth import Module as Design
from amaranth import Value as Wire

from farrier.hardware.kernels.banks import Bank
from farrier.hardware.kernels.pipeline import Pipeline, Value, Write, banks_of
from farrier.hardware.kernels.regions import Item, Region, Serial
from farrier.ir.types import DType
from farrier.targets.dae.rtl.memory import Ram

_OPERATORS: Mapping[str, Callable[..., Wire]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": lambda a, b: a >> (b.value.bit_length() - 1),
    "mod": lambda a, b: a & (b.value - 1),
    "min": lambda a, b: Mux(a < b, a, b),
    "max": lambda a, b: Mux(a < b, b, a),
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": lambda a, b: a.bool() & b.bool(),
    "or": lambda a, b: a.bool() | b.bool(),
    "bit_and": operator.and_,
    "bit_or": operator.or_,
    "bit_xor": operator.xor,
    "shl": lambda a, b: a << b.value,
    "shr": lambda a, b: a >> b.value,
    "neg": operator.neg,
    "not": lambda a: ~a.bool(),
    "abs": lambda a: Mux(a < 0, -a, a),
    "truth": lambda a: a.bool(),
    "select": lambda c, a, b: Mux(c.bool(), a, b),
}


def shape_of(dtype: DType) -> Shape:
    """Return the Amaranth shape (width and signedness) of a signal that holds an element of
    `dtype`."""
    if dtype is DType.BOOL:
        return unsigned(1)
    return signed(dtype.bits) if dtype.is_signed else unsigned(dtype.bits)


@dataclasses.dataclass(eq=False, slots=True)
class Port:
    """The signals of one bank's memory port, which can make one read and one write in each
    cycle."""

    bank: Bank
    read_enable: Signal
    read_address: Signal
    read_data: Signal
    write_enable: Signal
    write_address: Signal
    write_data: Signal

    @classmethod
    def of(cls, bank: Bank) -> Port:
        address = unsigned(max(1, (bank.depth - 1).bit_length()))
        data = shape_of(bank.dtype)
        parts = {"enable": unsigned(1), "address": address, "data": data}
        shapes = {f"{verb}_{part}": s for verb in ("read", "write") for part, s in parts.items()}
        signals = {part: Signal(s, name=f"{bank.name}_{part}") for part, s in shapes.items()}
        return cls(bank, **signals)


class KernelModule(Elaboratable):
    """The Amaranth module of a kernel, with the ports that the module's docstring lists."""

    def __init__(self, items: Sequence[Item], pipelines: Sequence[Pipeline]) -> None:
        self._items = items
        self._pipelines = {each.region: each for each in pipelines}
        self.start, self.busy = Signal(name="start"), Signal(name="busy")
        self._read_banks, self._written_banks = banks_of(pipelines)
        banks = dict.fromkeys((*self._read_banks, *self._written_banks))
        self._memories = {bank: Port.of(bank) for bank in banks if not bank.is_register}
        self._registers: dict[Bank, Signal] = {}
        self._asked: dict[Bank, list[tuple[Wire, Wire]]] = {}
        self._written: dict[Bank, list[tuple[Wire, Wire, Wire]]] = {}

    @property
    def arguments(self) -> list[Port]:
        return [port for bank, port in self._memories.items() if bank.is_argument]

    @property
    def ports(self) -> Mapping[str, tuple[Signal, None]]:
        """The ports by name, in the form that Amaranth's emitter takes. It infers their
        directions."""
        signals = [self.start, self.busy]
        for port in self.arguments:
            if port.bank in self._read_banks:
                signals += [port.read_enable, port.read_address, port.read_data]
            if port.bank in self._written_banks:
                signals += [port.write_enable, port.write_address, port.write_data]
        return {signal.name: (signal, None) for signal in signals}

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        regions = list(self._pipelines)
        state = Signal(range(len(regions) + 1), name="region", init=len(regions))
        begins = Signal()  # The cycle in which a region begins.
        m.d.comb += self.busy.eq(state != len(regions))
        counters: dict[str, Signal] = {}
        ends: dict[Region, Signal] = {}
        for number, region in enumerate(regions):
            for var, extent in region.around:
                counters.setdefault(var, Signal(range(extent), name=f"count_{var}"))
            is_on = Signal(name=f"region{number}_on")
            m.d.comb += is_on.eq(state == number)
            ends[region] = _Running(self, m, region, number, is_on, begins, counters).end
        m.d.sync += begins.eq(0)
        with m.If(self.start & ~self.busy):
            m.d.sync += begins.eq(1)
            m.d.sync += state.eq(regions.index(_first(self._items)) if regions else 0)
        self._follow(m, self._items, [], (state, begins), counters, ends)
        self._connect(m)
        return m

    def _follow(
        self,
        m: Design,
        items: Sequence[Item],
        outer: list[tuple[Serial, Item | None]],
        state: tuple[Signal, Signal],
        counters: Mapping[str, Signal],
        ends: Mapping[Region, Signal],
    ) -> None:
        """Emit the state transitions: at the end of each region in `items`, the next region begins.
        `outer` are the serial loops around the items, outermost first; each comes with the item
        that follows the loop, or None."""
        for n, item in enumerate(items):
            behind = items[n + 1] if n + 1 < len(items) else None
            if isinstance(item, Serial):
                self._follow(m, item.body, [*outer, (item, behind)], state, counters, ends)
                continue
            with m.If(ends[item]):
                self._go_on(m, behind, outer, state, counters)

    def _go_on(
        self,
        m: Design,
        behind: Item | None,
        outer: list[tuple[Serial, Item | None]],
        state: tuple[Signal, Signal],
        counters: Mapping[str, Signal],
    ) -> None:
        regions = list(self._pipelines)
        if behind is not None:
            m.d.sync += [state[0].eq(regions.index(_first([behind]))), state[1].eq(1)]
        elif not outer:
            m.d.sync += state[0].eq(len(regions))
        else:
            (loop, next_behind), rest = outer[-1], outer[:-1]
            counter = counters[loop.var]
            with m.If(counter != loop.extent - 1):
                m.d.sync += [counter.eq(counter + 1), state[1].eq(1)]
                m.d.sync += state[0].eq(regions.index(_first(loop.body)))
            with m.Else():
                m.d.sync += counter.eq(0)
                self._go_on(m, next_behind, rest, state, counters)

    def register(self, bank: Bank) -> Signal:
        if bank not in self._registers:
            self._registers[bank] = Signal(shape_of(bank.dtype), name=f"register_{bank.name}")
        return self._registers[bank]

    def read(self, bank: Bank, enable: Wire, address: Wire) -> Wire:
        self._asked.setdefault(bank, []).append((enable, address))
        return self._memories[bank].read_data

    def write(self, bank: Bank, enable: Wire, address: Wire, data: Wire) -> None:
        self._written.setdefault(bank, []).append((enable, address, data))

    def _connect(self, m: Design) -> None:
        """Connect all accesses to each bank to the bank's port. The schedules ensure that no two
        reads, and no two writes, of a bank take place in the same cycle."""
        for bank, port in self._memories.items():
            for enable, address in self._asked.get(bank, ()):
                with m.If(enable):
                    m.d.comb += [port.read_enable.eq(1), port.read_address.eq(address)]
            for enable, address, data in self._written.get(bank, ()):
                with m.If(enable):
                    m.d.comb += [port.write_enable.eq(1), port.write_address.eq(address)]
                    m.d.comb += port.write_data.eq(data)
            if bank.is_argument:
                continue
            ram = Ram(bank.dtype.bits, bank.depth)
            m.submodules[f"ram_{bank.name}"] = ram
            m.d.comb += [
                *(ram.read_enable.eq(port.read_enable), ram.read_address.eq(port.read_address)),
                *(ram.write_enable.eq(port.write_enable), ram.write_data.eq(port.write_data)),
                *(ram.write_address.eq(port.write_address), port.read_data.eq(ram.read_data)),
            ]
        for bank, register in self._registers.items():
            for enable, _, data in self._written.get(bank, ()):
                with m.If(enable):
                    m.d.sync += register.eq(data)


def _first(items: Sequence[Item]) -> Region:
    first = items[0]
    return first if isinstance(first, Region) else _first(first.body)


class _Running:
    """The hardware of one region's pipeline. The signal `end` is high in the last cycle of the last
    iteration."""

    def __init__(
        self,
        kernel: KernelModule,
        m: Design,
        region: Region,
        number: int,
        is_on: Signal,
        begins: Signal,
        counters: Mapping[str, Signal],
    ) -> None:
        self._kernel, self._m, self._name = kernel, m, f"region{number}"
        self._pipeline = kernel._pipelines[region]
        self._around = {var: counters[var] for var, _ in region.around}
        self._known: dict[tuple[Value, int], Wire] = {}
        issues, is_last = self._issue(region, is_on, begins)
        self._valid = self._delayed("valid", issues, self._pipeline.depth)
        lasts = self._delayed("last", issues & is_last, self._pipeline.depth)
        self.end = Signal(name=f"{self._name}_end")
        m.d.comb += self.end.eq(lasts[self._pipeline.depth - 1])
        for write in self._pipeline.writes:
            self._write(write)

    def _delayed(self, name: str, wire: Wire, cycles: int) -> list[Wire]:
        row = [wire]
        for n in range(1, cycles):
            behind = Signal(name=f"{self._name}_{name}{n}")
            self._m.d.sync += behind.eq(row[-1])
            row.append(behind)
        return row

    def _issue(self, region: Region, is_on: Signal, begins: Signal) -> tuple[Wire, Wire]:
        """Emit the logic that starts the iterations. Return two signals: one is high in each cycle
        in which an iteration begins, the other if that iteration is the last."""
        m, interval = self._m, self._pipeline.interval
        goes_on = Signal(name=f"{self._name}_goes_on")  # There are iterations to come.
        phase = Signal(range(max(2, interval)), name=f"{self._name}_phase")
        issues, is_last = (Signal(name=f"{self._name}_{part}") for part in ("issues", "is_last"))
        m.d.comb += issues.eq(is_on & (begins | (goes_on & (phase == 0))))
        counts = {
            var: Signal(range(max(2, extent)), name=f"{self._name}_{var}")
            for var, extent in region.loops
        }
        self._counts = counts
        ends = [counts[var] == extent - 1 for var, extent in region.loops]
        m.d.comb += is_last.eq(Cat(*ends, 1).all())
        with m.If(issues):
            m.d.sync += [goes_on.eq(~is_last), phase.eq(interval - 1)]
            for n, (var, _) in enumerate(region.loops):
                with m.If(Cat(*ends[n + 1 :], 1).all()):
                    m.d.sync += counts[var].eq(Mux(ends[n], 0, counts[var] + 1))
        with m.Elif(phase != 0):
            m.d.sync += phase.eq(phase - 1)
        return issues, is_last

    def _write(self, write: Write) -> None:
        enable = self._valid[write.cycle]
        if write.enable is not None:
            enable = enable & self._at(write.enable, write.cycle).bool()
        data = self._at(write.value, write.cycle)
        address = self._at(write.address, write.cycle)
        if write.bank.is_register:
            self._kernel.register(write.bank)
        self._kernel.write(write.bank, enable, address, data)

    def _at(self, value: Value, cycle: int) -> Wire:
        """Return the signal of `value` in cycle `cycle` of its iteration, delayed by registers if
        the value was computed in an earlier cycle."""
        if value.kind == "constant":
            return Wire.cast(value.number)
        if value.kind == "variable" and value.name in self._around:
            return self._around[value.name]
        key = value, cycle
        if key not in self._known:
            is_there = 0 if value.kind == "variable" else value.cycle + value.latency
            assert cycle >= is_there
            if cycle == is_there:
                self._known[key] = self._computed(value)
            else:
                before = self._at(value, cycle - 1)
                behind = Signal(before.shape(), name=f"{self._name}_at{cycle}", reset_less=True)
                self._m.d.sync += behind.eq(before)
                self._known[key] = behind
        return self._known[key]

    def _computed(self, value: Value) -> Wire:
        """Return the signal of `value` in the first cycle in which it is available."""
        if value.kind == "variable":
            return self._counts[value.name]
        if value.kind == "register":
            assert value.bank is not None
            return self._kernel.register(value.bank)
        args = [self._at(arg, value.cycle) for arg in value.args]
        if value.kind == "read":
            assert value.bank is not None
            return self._kernel.read(value.bank, self._valid[value.cycle], args[0])
        if value.kind == "wrap":
            assert value.dtype is not None
            wrapped = Signal(shape_of(value.dtype), name=f"{self._name}_wrap")
            self._m.d.comb += wrapped.eq(args[0])
            return wrapped
        computed = _OPERATORS[value.kind](*args)
        if not value.latency:
            return computed
        behind = Signal(computed.shape(), name=f"{self._name}_{value.kind}", reset_less=True)
        self._m.d.sync += behind.eq(computed)
        return behind
