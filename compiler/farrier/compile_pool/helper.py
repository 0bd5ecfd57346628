"""A process that compiles kernels for another one (`farrier.compile_pool`), over a socket.

helper → parent   {"ready": true}
parent → helper   {"kernels": [{"program": <IR>, "decisions": {<knob>: <value>}, "name": …}…]},
                  and of kernels that do not run in the host "space": <name>
helper → parent   {"object": <base64>, "interfaces": [<interface>…], "traces": [<trace>…]}
                  or {"failed": <message>}

interface = {"kernel": <IR, without a body>, "shared": <extent>, "slice": <extent>}, and of a
kernel for a device "entries": [[<suffix>, <extent>, <threads>]…]

A builder gets the same, and beside the kernels what a helper is started with:
{"kernels": …, "target": {<field>: <value>}, "threads": n}.
"""

from __future__ import annotations

import base64
import functools
import gc
import json
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from farrier.compile_pool.compile import BuildInput, codegen, lower
from farrier.ir.dim import as_extent
from farrier.ir.loop import Block, Function
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.tensor import TensorProgram
from farrier.ir.text.extents import parse_extent
from farrier.space import Space
from farrier.targets import Target, read_target
from farrier.targets.interface import EntryPoint, Interface
from farrier_device import wire
from farrier_device.program import HOST

_SPACES = 64  # of programs last asked for, kept


def serve() -> None:
    """The main program, until the parent is gone. Arguments, each as JSON: the parent's sys.path,
    the descriptor of the socket, the target's fields, how many threads will run the kernels."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    gc.disable()  # IR is made of trees, and counted references free it
    descriptor, fields, threads = map(json.loads, sys.argv[2:])
    target = read_target(fields)
    with socket.socket(fileno=descriptor) as sock:
        try:
            wire.send(sock, {"ready": True})
            while True:
                wire.send(sock, _answer(wire.receive(sock), target, threads))
        except wire.ClosedError:
            return


def build(message: Mapping[str, Any]) -> dict[str, Any]:
    """Compile the kernels of a message that says all, as builders get it; the answer is a
    helper's."""
    try:
        target = read_target(message["target"])
    except Exception as error:
        return {"failed": str(error)}
    return _answer(message, target, message["threads"])


def _answer(message: Mapping[str, Any], target: Target, threads: int) -> dict[str, Any]:
    try:
        runs_in = message.get("space", HOST)
        machine = target.part(runs_in)
        build_inputs = [
            BuildInput(
                _space(one["program"], machine, threads),
                one["decisions"],
                one["name"],
                runs_in=runs_in,
            )
            for one in message["kernels"]
        ]
        compiled = codegen([lower(each, target) for each in build_inputs], target, runs_in)
    except Exception as error:  # the parent does it once more, and raises what is to be raised
        return {"failed": str(error)}
    return {
        "object": base64.b64encode(compiled[0].content).decode(),
        "interfaces": [_written(one.interface) for one in compiled],
        "traces": [build_input.space.trace(build_input.decisions) for build_input in build_inputs],
    }


@functools.lru_cache(maxsize=_SPACES)
def _space(text: str, target: Target, threads: int) -> Space:
    """The space of a program; one that is tuned is asked for again and again."""
    program = parse_ir(text)
    assert isinstance(program, TensorProgram | Function)
    return target.backend.space(program, target, threads)


def _written(one: Interface) -> dict[str, Any]:
    head = Function(one.name, one.params, Block(()), one.dims)
    sizes = {"shared": str(one.shared_bytes), "slice": str(one.slice_bytes)}
    entries = [[entry.suffix, str(entry.blocks), entry.threads] for entry in one.entries]
    return {"kernel": print_ir(head), **sizes, **({"entries": entries} if entries else {})}


def read_interface(written: Mapping[str, Any]) -> Interface:
    """An interface that a helper wrote."""
    head = parse_ir(written["kernel"])
    assert isinstance(head, Function)
    dims = {symbol.name: as_extent(symbol) for symbol in head.dims}
    shared, own = (parse_extent(written[which], dims) for which in ("shared", "slice"))
    entries = tuple(
        EntryPoint(suffix, parse_extent(blocks, dims), threads)
        for suffix, blocks, threads in written.get("entries", ())
    )
    return Interface(head.name, head.params, head.dims, shared, own, entries)
