"""Compiled code against the interpreter of loop functions, argument memory and all."""

from __future__ import annotations

import numpy as np

from farrier.ir.dim import evaluate
from farrier.ir.run_loops import run_loops
from farrier.ir.types import Layout
from farrier.targets import host
from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.codegen.link import link
from farrier.targets.cpu.codegen.support import support_object
from farrier.targets.cpu.codegen.workspace import plan
from farrier_device.native import Library, Pool, pointers
from tests.ir.bind import bind

GUARD = 64  # The bytes before and after each argument, which nobody may touch.


class Memory:
    """An argument as it lies in memory, with a guard of 0xAB on both sides."""

    def __init__(self, buffer, array):
        layout = buffer.layout or Layout.plain(len(buffer.shape))
        physical = layout.physical_shape(buffer.shape)
        self.layout, self.shape = layout, buffer.shape
        nbytes = int(np.prod(physical)) * buffer.dtype.nbytes
        self.raw = np.full(nbytes + 3 * GUARD, 0xAB, np.uint8)
        self.start = -self.raw.ctypes.data % 64 + GUARD
        self.packed = self.raw[self.start : self.start + nbytes].view(buffer.dtype.numpy)
        self.packed = self.packed.reshape(physical)
        if array is None:
            self.raw[self.start : self.start + nbytes] = 0xFF  # NaN where it is a float
        else:
            self.packed[...] = layout.pack(array.reshape(buffer.shape))

    @property
    def address(self):
        return self.packed.ctypes.data

    def logical(self):
        return self.layout.unpack(self.packed, self.shape)

    def assert_untouched_around(self):
        assert (self.raw[: self.start] == 0xAB).all()
        assert (self.raw[self.start + self.packed.nbytes :] == 0xAB).all()


class Compiled:
    """A compiled function, to be called for any sizes of its dims."""

    def __init__(self, function, threads=1, target=None):
        target = target or host()
        objects = [compile_text(emit_function(function, target), target), support_object(target)]
        self.function, self.threads = function, threads
        self._library = Library.from_bytes(link(objects))
        self._pool = Pool(self._library, threads=threads)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pool.close()
        self._library.close()

    def __call__(self, inputs, sizes=None):
        """The logical outputs by name; `sizes` are the dims' values by symbol."""
        sizes = sizes or {}
        params = [bind(param, sizes) for param in self.function.params]
        memory = {p.name: Memory(p, inputs.get(p.name)) for p in params}
        needed, values = plan(self.function), [sizes[symbol] for symbol in self.function.dims]
        own = []
        if needed.shared:
            own.append(scratch(evaluate(needed.shared_bytes, names(sizes))))
        if needed.per_worker:
            values.append(evaluate(needed.slice_bytes, names(sizes)) + GUARD)
            own.append(scratch(self.threads * values[-1]))
        numbers = np.array(values, np.int64)
        addresses = [memory[p.name].address for p in params]
        addresses += [numbers.ctypes.data] if values else []
        addresses += [area.ctypes.data for area in own]
        entry = self._library.entry(self.function.name)
        assert entry(pointers(addresses), self._pool.address) == 0
        for area in memory.values():
            area.assert_untouched_around()
        return {p.name: memory[p.name].logical() for p in params if p.name not in inputs}


def scratch(nbytes):
    """Memory full of NaNs, aligned to 64 bytes."""
    whole = np.full(nbytes + 64, 0xFF, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + nbytes]


def names(sizes):
    return {symbol.name: size for symbol, size in sizes.items()}


def run_compiled(function, inputs, threads=1, target=None):
    """The logical outputs by name, of one call of the compiled function."""
    with Compiled(function, threads, target) as kernel:
        return kernel(inputs)


def check(function, inputs, threads=1, rtol=2e-5, atol=2e-5, target=None):
    """Run both ways and compares."""
    expected = run_loops(function, inputs)
    actual = run_compiled(function, inputs, threads, target)
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=rtol, atol=atol, err_msg=name)
