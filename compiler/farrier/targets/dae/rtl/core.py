"""The accelerator core: it receives instructions as beats (transfers of one cycle), and accesses
memory through its port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth import Cat, Elaboratable, Signal
from amaranth import Module as Design
from amaranth.lib.memory import Memory

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.instructions import MODULE_OF, Module, word_bits
from farrier.targets.dae.rtl.compute import Compute
from farrier.targets.dae.rtl.load import Load
from farrier.targets.dae.rtl.memory import Ram
from farrier.targets.dae.rtl.port import Port
from farrier.targets.dae.rtl.queues import Front, Tokens
from farrier.targets.dae.rtl.store import Store
from farrier.targets.dae.rtl.sums import SumPad


class Core(Elaboratable):
    """An accelerator with these ports:

    code_*      the stream of instructions, in beats of `port.bytes` bytes
    base_*      the write port for the start addresses of the kernel's arguments
    port_*      the memory port; memory answers in order
    finished    high once `finish` has been executed
    begins      a bit for each module, high in the cycle in which an instruction begins
    ends        a bit for each module, high in the cycle in which an instruction ends
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        bits = 8 * accelerator.port.bytes
        self.code_valid, self.code_ready, self.code_data = Signal(), Signal(), Signal(bits)
        self.base_write, self.base_value = Signal(), Signal(32)
        self.base_argument = Signal(accelerator.fields.argument)
        self.port_valid, self.port_ready, self.port_write = Signal(), Signal(), Signal()
        self.port_address, self.port_data = Signal(32), Signal(bits)
        self.port_bytes = Signal(range(accelerator.port.bytes + 1))
        self.read_valid, self.read_data, self.written = Signal(), Signal(bits), Signal()
        self.finished = Signal()
        self.begins, self.ends = Signal(len(Module)), Signal(len(Module))

    @property
    def ports(self) -> Mapping[str, tuple[Signal, None]]:
        """The ports by name, in the form that Amaranth's emitter takes. It infers their
        directions."""
        every = vars(self).items()
        return {name: (port, None) for name, port in every if isinstance(port, Signal)}

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        accelerator = self._accelerator
        m.submodules.port = port = Port(accelerator)
        m.submodules.sums = sums = SumPad(accelerator)
        m.submodules.load = load = Load(accelerator, port.loads)
        m.submodules.compute = compute = Compute(accelerator, sums)
        m.submodules.store = store = Store(accelerator, port)
        fronts = {
            Module.LOAD: load.front,
            Module.COMPUTE: compute.front,
            Module.STORE: store.front,
        }
        self._fetch(m, fronts)
        self._tokens(m, fronts)
        self._bases(m, load, store)
        self._scratchpads(m, load, compute)
        read = sums.reads["store"]
        m.d.comb += [
            self.port_valid.eq(port.valid),
            self.port_write.eq(port.write),
            self.port_address.eq(port.address),
            self.port_data.eq(port.write_data),
            self.port_bytes.eq(port.write_bytes),
            port.ready.eq(self.port_ready),
            load.read_valid.eq(self.read_valid),
            load.read_data.eq(self.read_data),
            store.written.eq(self.written),
            *(sums.loads.enable.eq(load.sums.enable), sums.loads.data.eq(load.sums.data)),
            *(sums.loads.address.eq(load.sums.address), load.sums_settled.eq(sums.settled)),
            *(read.enable.eq(store.read), read.address.eq(store.address)),
            store.sum.eq(read.data),
            self.finished.eq(compute.finished),
            self.begins.eq(Cat(*(fronts[each].begin for each in Module))),
            self.ends.eq(Cat(*(fronts[each].done for each in Module))),
        ]
        return m

    def _fetch(self, m: Design, fronts: dict[Module, Front]) -> None:
        """Assemble beats to instruction words, and put each word into the command queue of its
        module."""
        bits, port = word_bits(self._accelerator), len(self.code_data)
        beats = -(-bits // port)
        before, beat = Signal(port * max(1, beats - 1)), Signal(range(beats + 1))
        word = Cat(before, self.code_data)[:bits] if beats > 1 else self.code_data[:bits]
        is_last, has_room = beat == beats - 1, Signal(init=0)
        with m.Switch(word[:3]):
            for kind, module in MODULE_OF.items():
                front = fronts[module]
                with m.Case(kind.value):
                    m.d.comb += has_room.eq(front.has_room)
                    m.d.comb += front.push.eq(self.code_valid & is_last)
        m.d.comb += [front.word.eq(word[: len(front.word)]) for front in fronts.values()]
        m.d.comb += self.code_ready.eq(~is_last | has_room)
        with m.If(self.code_valid & self.code_ready):
            m.d.sync += beat.eq(beat + 1)
            m.d.sync += before.eq(Cat(before, self.code_data)[port:])
            with m.If(is_last):
                m.d.sync += beat.eq(0)

    def _tokens(self, m: Design, fronts: dict[Module, Front]) -> None:
        """Connect neighbouring modules by token queues, one in each direction."""
        capacity = self._accelerator.queues.tokens
        for left, right in ((Module.LOAD, Module.COMPUTE), (Module.COMPUTE, Module.STORE)):
            there, back = Tokens(capacity), Tokens(capacity)
            name = f"{left.name.lower()}_{right.name.lower()}"
            m.submodules[f"tokens_{name}"], m.submodules[f"tokens_{name}_back"] = there, back
            fronts[left].next = (back, there)
            fronts[right].previous = (there, back)

    def _bases(self, m: Design, load: Load, store: Store) -> None:
        arguments = 1 << self._accelerator.fields.argument
        m.submodules.bases = bases = Memory(shape=32, depth=arguments, init=[])
        write = bases.write_port()
        m.d.comb += [
            write.en.eq(self.base_write),
            write.addr.eq(self.base_argument),
            write.data.eq(self.base_value),
        ]
        for module in (load, store):
            read = bases.read_port(domain="comb")
            m.d.comb += [read.addr.eq(module.argument), module.base.eq(read.data)]

    def _scratchpads(self, m: Design, load: Load, compute: Compute) -> None:
        accelerator = self._accelerator
        for name, elements, writes, address, data in (
            ("inputs", accelerator.inputs, load.inputs, compute.input_address, compute.input),
            ("weights", accelerator.weights, load.weights, compute.weight_address, compute.weight),
        ):
            memory = Ram(len(writes.data), elements)
            m.submodules[name] = memory
            m.d.comb += [
                memory.write_enable.eq(writes.enable),
                memory.write_address.eq(writes.address),
                memory.write_data.eq(writes.data),
                memory.read_address.eq(address),
                memory.read_enable.eq(compute.reads),
                data.eq(memory.read_data),
            ]
