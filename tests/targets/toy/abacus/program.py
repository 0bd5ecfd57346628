"""A library: kernels as IR, entries as lists of calls, in one JSON text.

{"kernels": {NAME: IR}, "entries": {NAME: [[KERNEL, [[argument, offset], …]], …]}}
"""

from __future__ import annotations

import ctypes
import json

import numpy as np

from farrier.errors import ArtifactError
from farrier.ir.loop import Store
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.walk import walk


def written(functions, entries=None):
    """An object."""
    kernels = {function.name: print_ir(function) for function in functions}
    return json.dumps({"kernels": kernels, "entries": entries or {}}).encode()


def joined(objects):
    """The library of objects."""
    whole = {"kernels": {}, "entries": {}}
    for one in map(json.loads, objects):
        whole["kernels"].update(one["kernels"])
        whole["entries"].update(one["entries"])
    return json.dumps(whole).encode()


class Program:
    """A library that can be run."""

    def __init__(self, library):
        raw = json.loads(library)
        self.entries = raw["entries"]
        self.kernels = {name: parse_ir(text) for name, text in raw["kernels"].items()}

    def has(self, symbol):
        return symbol in self.kernels or symbol in self.entries

    def run(self, symbol, addresses):
        """Call a kernel or an entry with the addresses of its arguments."""
        if symbol in self.kernels:
            self._run_kernel(self.kernels[symbol], addresses)
            return
        for kernel, places in self.entries[symbol]:
            self.run(kernel, [addresses[argument] + offset for argument, offset in places])

    def _run_kernel(self, function, addresses):
        memory = {
            param.name: _array(param, address)
            for param, address in zip(function.params, addresses, strict=True)
        }
        stored = {s.buffer.name for s in walk(function.body) if isinstance(s, Store)}
        read = {name: array for name, array in memory.items() if name not in stored}
        before = {name: array for name, array in memory.items() if name in stored}
        for name, array in run_loops(function, read, initial=before).items():
            memory[name][...] = array


class LoadedProgram:
    """Implements `farrier.targets.Loaded`."""

    context = 0

    def __init__(self, library, entry):
        try:
            self._program = Program(library)
        except ValueError as error:
            raise ArtifactError(f"these are no beads: {error}") from error
        self._symbol = entry

    def entry(self, arguments, context):
        self._program.run(self._symbol, [address or 0 for address in arguments])
        return 0

    def workspace_bytes(self, sizes):
        return 0  # no size is open

    def close(self):
        self._program = None


def _array(param, address):
    shape, nbytes = param.type.static_shape, param.type.nbytes
    bytes_there = (ctypes.c_char * nbytes).from_address(address) if nbytes else b""
    return np.frombuffer(bytes_there, param.dtype.numpy).reshape(shape)
