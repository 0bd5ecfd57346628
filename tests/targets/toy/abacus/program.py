"""A library in one JSON text: kernels as IR, and programs that call them.

{"kernels": {NAME: IR, or the number of a failure}, "programs": {NAME: PROGRAM}}
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from farrier.ir.dim import substitute
from farrier.ir.expr import Buffer, Size, index
from farrier.ir.loop import For, Function, Store
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.walk import rewrite, walk
from farrier_device.program import program_from_json


class Library:
    """Kernels as functions of their arguments' bytes, and programs, by name. Raises ValueError for
    bytes that are not a library."""

    def __init__(self, content):
        try:
            raw = json.loads(content)
            kernels, programs = raw["kernels"].items(), raw["programs"].items()
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{error!r} in a library") from None
        self.kernels = {
            name: Kernel(parse_ir(code))
            if isinstance(code, str)
            else (lambda *views, code=code: code)
            for name, code in kernels
        }
        self.programs = {name: program_from_json(json.dumps(program)) for name, program in programs}


class Kernel:
    """A function of loops over bytes."""

    def __init__(self, function):
        self._function = function
        self._stored = {s.buffer.name for s in walk(function.body) if isinstance(s, Store)}

    def __call__(self, *views):
        """Run it with views of its arguments, and of its sizes behind them if it has any."""
        function, dims = self._function, self._function.dims
        if dims:
            numbers = np.frombuffer(views[len(function.params)], np.int64)
            function = bound(function, dict(zip(dims, map(int, numbers), strict=False)))
        memory = {
            param.name: _array(param, view)
            for param, view in zip(function.params, views, strict=False)
        }
        read = {name: array for name, array in memory.items() if name not in self._stored}
        before = {name: array for name, array in memory.items() if name in self._stored}
        for name, array in run_loops(function, read, initial=before).items():
            memory[name][...] = array
        return 0


def bound(function, dims):
    """Return a function with numbers in the place of its dims."""
    values = dict(dims)
    for size in function.sizes:
        values[size.symbol] = substitute(size.extent, values)

    def visit(part):
        match part:
            case Buffer(shape=shape):
                shape = tuple(substitute(extent, values) for extent in shape)
                return dataclasses.replace(part, shape=shape)
            case For():
                return dataclasses.replace(part, extent=substitute(part.extent, values))
            case Size(extent):
                return index(substitute(extent, values))
            case Function():
                return dataclasses.replace(part, dims=(), sizes=())
            case _:
                return part

    return rewrite(function, visit)


def _failing(code):
    return lambda *views: code


def _array(param, view):
    return np.frombuffer(view[: param.nbytes], param.dtype.numpy).reshape(param.type.static_shape)
