"""The host as it drives a GPU: a launch is a run of a program of a `WebGpuLibrary`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from farrier_device.devices.device import Code, DeviceError
from farrier_device.devices.host_memory import HostMemory, WallClocked
from farrier_device.devices.webgpu import WebGpuDevice
from farrier_device.interpreter import Interpreter
from farrier_device.measurement import Launch
from farrier_device.memory import Buffer
from farrier_device.program import Program
from farrier_device.webgpu_library import GPU, LibraryError, WebGpuLibrary


class _Run(NamedTuple):
    """A program with the memories and sizes of a run."""

    interpreter: Interpreter
    memories: Sequence[Buffer]
    sizes: memoryview | None


class WebGpuHost(HostMemory[_Run], WallClocked[Buffer, _Run]):
    """This machine with its GPU. Memory is the host's; the programs copy."""

    def __init__(self) -> None:
        self.gpu = WebGpuDevice()
        self._library: WebGpuLibrary | None = None
        self._code = 0

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        self.unload()
        if len(code) != 1:
            raise DeviceError(f"one library is loaded, and not {len(code)} code objects")
        [(_, file)] = code
        try:
            self._library = WebGpuLibrary(os.pread(file, os.fstat(file).st_size, 0))
        except LibraryError as error:
            raise DeviceError(str(error)) from None
        self.gpu.load_modules(self._library.modules.values())

    def unload(self) -> None:
        self.gpu.unload()
        self._library = None

    def bind(self, launch: Launch, places: Sequence[tuple[Buffer, int]]) -> _Run:
        program = self._program(launch.symbol)
        memories = [memory for memory, _ in places]
        count = len(program.memories)
        sizes = memories[count].view.cast("q") if len(memories) > count else None
        return _Run(Interpreter(program, {GPU: self.gpu}), memories[:count], sizes)

    def _program(self, name: str) -> Program:
        assert self._library is not None, "no code is loaded"
        try:
            return self._library.program(name)
        except LibraryError as error:
            raise DeviceError(str(error)) from None

    def launch(self, bound: _Run) -> None:
        code = bound.interpreter.run(bound.memories, bound.sizes)
        self._code = self._code or code

    def synchronize(self) -> int:
        code, self._code = self._code, 0
        return code

    def close(self) -> None:
        self.unload()
        self.gpu.close()
