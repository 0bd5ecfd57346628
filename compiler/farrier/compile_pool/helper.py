"""The main program of a helper process, which compiles kernels for another process
(`farrier.compile_pool`) over a socket.

helper → parent   {"ready": true}
parent → helper   {"kernels": [{"program": <IR>, "decisions": {<knob>: <value>}, "name": …}…]},
                  and of kernels that do not run in the host "space": <name>
helper → parent   {"object": <base64>, "interfaces": [<interface>…], "traces": [<trace>…]}
                  or {"failed": <message>}

interface = {"kernel": <IR, without a body>, "shared": <extent>, "slice": <extent>}, and of a
kernel for a device "entries": [[<suffix>, <extent>, <threads>]…]

The message to a builder also has the arguments of a helper's start: {"kernels": …, "target":
{<field>: <value>}, "threads": n}.
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

_SPACES = 64  # The number of cached spaces, those of the programs used last.


def serve() -> None:
    """Run the helper until the parent process is gone. The command line contains, each as JSON: the
    parent's sys.path, the descriptor of the socket, the target's fields, and the number of threads
    for which kernels are compiled."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C.
    gc.disable()  # IR consists of trees, which reference counts free.
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
    """Compile the kernels of a self-contained message, which builders receive; return the answer
    that a helper would send."""
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
                _space(kernel["program"], machine, threads),
                kernel["decisions"],
                kernel["name"],
                runs_in=runs_in,
            )
            for kernel in message["kernels"]
        ]
        compiled = codegen([lower(each, target) for each in build_inputs], target, runs_in)
    except Exception as error:  # The parent repeats it, and raises the error.
        return {"failed": str(error)}
    return {
        "object": base64.b64encode(compiled[0].content).decode(),
        "interfaces": [_written(kernel.interface) for kernel in compiled],
        "traces": [build_input.space.trace(build_input.decisions) for build_input in build_inputs],
    }


@functools.lru_cache(maxsize=_SPACES)
def _space(text: str, target: Target, threads: int) -> Space:
    """Return the schedule space of the program in `text`. It is cached, because tuning requests the
    same space repeatedly."""
    program = parse_ir(text)
    assert isinstance(program, TensorProgram | Function)
    return target.backend.space(program, target, threads)


def _written(kernel_interface: Interface) -> dict[str, Any]:
    head = Function(
        kernel_interface.name, kernel_interface.params, Block(()), kernel_interface.dims
    )
    sizes = {
        "shared": str(kernel_interface.shared_bytes),
        "slice": str(kernel_interface.slice_bytes),
    }
    entries = [
        [entry.suffix, str(entry.blocks), entry.threads] for entry in kernel_interface.entries
    ]
    return {"kernel": print_ir(head), **sizes, **({"entries": entries} if entries else {})}


def read_interface(written: Mapping[str, Any]) -> Interface:
    """Parse the interface of a kernel from the form in which a helper sent it."""
    head = parse_ir(written["kernel"])
    assert isinstance(head, Function)
    dims = {symbol.name: as_extent(symbol) for symbol in head.dims}
    shared, own = (parse_extent(written[which], dims) for which in ("shared", "slice"))
    entries = tuple(
        EntryPoint(suffix, parse_extent(blocks, dims), threads)
        for suffix, blocks, threads in written.get("entries", ())
    )
    return Interface(head.name, head.params, head.dims, shared, own, entries)
