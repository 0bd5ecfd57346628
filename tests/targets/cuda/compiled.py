"""Runs PTX with no GPU as the emulator does, a thousand times as fast: by C, for whole models.

An address outside of every array or misaligned, and a barrier or an instruction of warps or
warpgroups that not all threads reach, are PtxErrors here too. Races and memory that nobody wrote
are not seen: `cp.async` copies at once, also by tensor maps, `wgmma` multiplies at once, and what
waits for them does nothing.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from farrier.llvm import zig
from tests.targets.cuda import c_kernels
from tests.targets.cuda.ptx import PtxError

_HEADER = Path(__file__).with_name("emulated.h")
_FLAGS = ("-O1", "-fPIC", "-w", "-ffp-contract=off", "-fwrapv", "-fno-math-errno")
_STACK_BYTES = 64 << 20  # Of a thread: it holds the registers of a block.
_SOME = 16  # Kernels of a library, so that several compilers work at once.
_TURNS = 4  # Of a thread in a launch, whose blocks differ in their work.
_FAULTS = {
    c_kernels.ADDRESS: "an address is outside of its array, or misaligned",
    c_kernels.BARRIER: "not all threads of a block reach the barrier",
    c_kernels.WARP: "not all threads of a warp or warpgroup reach the instruction",
}


class Machine:
    """The kernels that are known, and their libraries in an empty folder."""

    def __init__(self, folder):
        self._folder = Path(folder)
        self._fresh = []
        self._functions = {}  # By the identity of a kernel, behind the kernel itself.
        self._libraries = 0
        self._threads = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads)

    def add(self, kernels):
        """Take kernels, which are compiled when one of them is launched."""
        self._fresh += kernels

    def launch(self, kernel, blocks, threads, arguments, memory):
        """Run a kernel. Raises PtxError."""
        if threads != kernel.most_threads:
            raise PtxError(f"{kernel.name} has {kernel.most_threads} threads, and not {threads}")
        self._compile()
        _, function = self._functions[id(kernel)]
        constants = [memory.constant(content) for content in kernel.constants.values()]
        # A tensor map is in memory of the host, for the time of the launch.
        maps = {each: np.frombuffer(each, np.uint8) for each in arguments if type(each) is bytes}
        numbers = (maps[each].ctypes.data if each in maps else each for each in arguments)
        values = np.array([*numbers, *constants], np.uint64)
        arrays = np.zeros((max(memory.arrays, default=0) + 1, 2), np.uint64)
        for number, array in memory.arrays.items():
            arrays[number] = array.content.ctypes.data, len(array.content)
        step = max(1, -(-blocks // (_TURNS * self._threads)))

        def run(first):
            end = min(blocks, first + step)
            return function(arrays.ctypes.data, len(arrays), values.ctypes.data, first, end)

        for fault in filter(None, self._all(run, range(0, blocks, step))):
            at = kernel.code[fault // 4]
            raise PtxError(f"kernel {kernel.name}: {_FAULTS[fault % 4]}: {at.text}")

    def _all(self, function, items):
        """Return the results of a function, in threads whose stacks hold a block."""
        before = threading.stack_size(_STACK_BYTES)
        try:
            return list(self._pool.map(function, items))
        finally:
            threading.stack_size(before)

    def _compile(self):
        fresh, self._fresh = self._fresh, []
        some = [fresh[at : at + _SOME] for at in range(0, len(fresh), _SOME)]
        numbered = list(enumerate(some, self._libraries))
        self._libraries += len(some)
        for functions in self._all(self._library, numbered):
            self._functions |= functions

    def _library(self, numbered):
        """Return the functions of some kernels."""
        number, kernels = numbered
        symbols = [f"kernel_{at}" for at in range(len(kernels))]
        ends = (".c", ".o", ".so")
        source, compiled, library = (self._folder / f"{number}{end}" for end in ends)
        texts = map(c_kernels.function_of, kernels, symbols)
        source.write_text("\n".join([_HEADER.read_text(), *texts]))
        target = f"{platform.machine()}-linux-gnu"
        machine = ["-target", target, "-mcpu=native", "-fno-sanitize=all"]
        words = ["cc", *machine, *_FLAGS, "-c", "-o", compiled, source]
        zig.run(words, self._folder, "kernels as C")
        # What they need of the C library is in this process.
        zig.run(["ld.lld", "-shared", "-o", library, compiled], self._folder, "kernels as C")
        loaded = ctypes.CDLL(str(library))
        return {
            id(kernel): (kernel, _function(loaded, symbol))
            for kernel, symbol in zip(kernels, symbols, strict=True)
        }


def _function(loaded, symbol):
    function = loaded[symbol]
    address, count = ctypes.c_void_p, ctypes.c_uint64
    function.argtypes = [address, count, address, ctypes.c_uint32, ctypes.c_uint32]
    return function
