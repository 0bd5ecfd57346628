"""Token queues, and the part of each module that starts its instructions in order."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Elaboratable, Signal
from amaranth import Module as Design

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.instructions import Kind, Module
from farrier.targets.dae.rtl.memory import Queue
from farrier.targets.dae.rtl.words import bits_of, fields_of


class Tokens(Elaboratable):
    """A token queue. Tokens carry no data, so it consists of two counters.

    `reserve` reserves space for a token when an instruction begins that will push one; `push` adds
    the token once the instruction has finished.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.reserve, self.push, self.pop = Signal(), Signal(), Signal()
        self.has_token, self.has_room = Signal(), Signal()

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        count, reserved = (Signal(range(self._capacity + 1)) for _ in range(2))
        m.d.sync += count.eq(count + self.push - self.pop)
        m.d.sync += reserved.eq(reserved + self.reserve - self.pop)
        m.d.comb += self.has_token.eq(count != 0)
        m.d.comb += self.has_room.eq(reserved != self._capacity)
        return m


class Front(Elaboratable):
    """The command queue of a module, and the state of the instruction that the module executes.

    An instruction begins in the cycle in which `begin` is high, with its word in `head`, and ends
    after the cycle in which `done` is high. Its first step takes place one cycle after it begins.
    """

    def __init__(self, accelerator: Accelerator, module: Module) -> None:
        self._accelerator = accelerator
        bits = bits_of(module, accelerator)
        self._commands = Queue(bits, accelerator.queues.commands)
        self.head = Signal(bits)
        self.begin, self.done, self.busy = Signal(), Signal(), Signal()
        self.push, self.word, self.has_room = Signal(), Signal(bits), Signal()
        # The token queues from and to the neighbouring modules, if there are any.
        self.previous: tuple[Tokens, Tokens] | None = None
        self.next: tuple[Tokens, Tokens] | None = None

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        m.submodules.commands = commands = self._commands
        m.d.comb += [
            commands.word.eq(self.word),
            commands.push.eq(self.push),
            self.has_room.eq(commands.has_room),
            self.head.eq(commands.head),
            commands.pop.eq(self.begin),
        ]
        # The token fields are the same for all kinds of instructions.
        fields = fields_of(self.head, Kind.FINISH, self._accelerator)
        ready = [commands.has_head, ~self.busy]
        for name, queues in (("previous", self.previous), ("next", self.next)):
            if queues is None:
                continue
            into, out = queues
            pops, pushes = fields[f"pop_{name}"], fields[f"push_{name}"]
            will_push = Signal(name=f"will_push_{name}")
            ready += [~pops | into.has_token, ~pushes | out.has_room]
            m.d.comb += into.pop.eq(self.begin & pops)
            m.d.comb += out.reserve.eq(self.begin & pushes)
            m.d.comb += out.push.eq(self.done & will_push)
            with m.If(self.begin):
                m.d.sync += will_push.eq(pushes)
        m.d.comb += self.begin.eq(Cat(*ready).all())
        with m.If(self.begin):
            m.d.sync += self.busy.eq(1)
        with m.Elif(self.done):
            m.d.sync += self.busy.eq(0)
        return m
