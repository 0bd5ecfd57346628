"""The memory port, which loads and stores share, one instruction at a time."""

from __future__ import annotations

from typing import Any

from amaranth import Elaboratable, Mux, Signal
from amaranth import Module as Design

from farrier.targets.dae.description import Accelerator

ADDRESS_BITS = 32


class Requests:
    """The memory requests of a module. `wants` is high from the first beat (transfer of one cycle)
    of an instruction to its last."""

    def __init__(self, name: str) -> None:
        self.wants = Signal(name=f"{name}_wants")
        self.address = Signal(ADDRESS_BITS, name=f"{name}_address")
        self.taken = Signal(name=f"{name}_taken")  # The port took this beat.
        self.is_last = Signal(name=f"{name}_is_last")


class Port(Elaboratable):
    """The port. It transfers one beat in each cycle in which memory is `ready`; memory answers in
    order.

    The answer to a load's beat is `read_valid` and the bytes, the answer to a store's beat is
    `written`.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        bits = 8 * accelerator.port.bytes
        self.loads, self.stores = Requests("loads"), Requests("stores")
        self.data, self.nbytes = Signal(bits), Signal(range(accelerator.port.bytes + 1))
        self.valid, self.ready, self.write = Signal(), Signal(), Signal()
        self.address = Signal(ADDRESS_BITS)
        self.write_data = Signal(bits)
        self.write_bytes = Signal(range(accelerator.port.bytes + 1))

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        is_held, by_store, stores = Signal(), Signal(), Signal()
        # A module that has started a transfer keeps the port until its last beat; a store precedes
        # a load.
        m.d.comb += stores.eq(Mux(is_held, by_store, self.stores.wants))
        m.d.comb += [
            self.valid.eq(Mux(stores, self.stores.wants, self.loads.wants)),
            self.write.eq(stores),
            self.address.eq(Mux(stores, self.stores.address, self.loads.address)),
            self.write_data.eq(self.data),
            self.write_bytes.eq(self.nbytes),
            self.stores.taken.eq(stores & self.valid & self.ready),
            self.loads.taken.eq(~stores & self.valid & self.ready),
        ]
        with m.If(self.valid & self.ready):
            is_last = Mux(stores, self.stores.is_last, self.loads.is_last)
            m.d.sync += [is_held.eq(~is_last), by_store.eq(stores)]
        return m
