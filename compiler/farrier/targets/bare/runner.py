"""The runner that measures models and kernels on an emulated board."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from farrier.errors import CompilerError
from farrier.targets.bare.cores import CORES
from farrier.targets.bare.emulation import BoardError, EmulatedBoard
from farrier_device.boards.image import BoardImage, ImageError
from farrier_device.devices.device import AnyDevice, Code, DeviceError, Ticks
from farrier_device.devices.host_memory import HostMemory, WallClocked
from farrier_device.measurement import Launch
from farrier_device.memory import Buffer
from farrier_device.runners.in_process import InProcessRunner


class _Run(NamedTuple):
    """A launch that is ready to run: the emulated board with its program, and the memory of each
    argument. A run copies this memory to the board, and back afterwards."""

    board: EmulatedBoard
    memories: Sequence[memoryview]


class EmulatedDevice(HostMemory[_Run], WallClocked[Buffer, _Run]):
    """An emulated board as a measured device. Its buffers are host memory, and each launch resets
    the board. A tick is one instruction."""

    def __init__(self) -> None:
        self._code: BoardImage | None = None
        self._failure = 0
        self._hertz = 1.0
        self.name = "qemu"

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        self.unload()
        [(_, file)] = code
        content = os.pread(file, os.fstat(file).st_size, 0)
        try:
            self._code = BoardImage.of_bytes(content)
        except ImageError as error:
            raise DeviceError(str(error)) from None

    def unload(self) -> None:
        self._code = None

    def bind(self, launch: Launch, places: Sequence[tuple[Buffer, int]]) -> _Run:
        assert self._code is not None, "no code is loaded"
        memories = [memory.view[offset:] for memory, offset in places]
        try:
            sizes = [memory.nbytes for memory in memories]
            board = EmulatedBoard.of_image(self._code, launch.symbol, sizes)
        except CompilerError as error:
            raise DeviceError(str(error)) from None
        self.name = f"qemu {board.name}"
        self._hertz = CORES[board.board.core].figures["hertz"]
        return _Run(board, memories)

    def launch(self, bound: _Run) -> None:
        try:
            outcome = bound.board.run(bound.memories)
        except BoardError as error:
            raise DeviceError(str(error)) from None
        for memory, content in zip(bound.memories, outcome.outputs, strict=True):
            memory[:] = content
        self._failure = self._failure or outcome.code

    def synchronize(self) -> int:
        code, self._failure = self._failure, 0
        return code

    def time(
        self, steps: Sequence[_Run], repeats: int, cold: Sequence[tuple[Buffer, int]]
    ) -> Ticks:
        for step in steps:
            if step.board.instructions == 0:
                self.launch(step)
        # All runs take the same time, since the emulator counts instructions.
        return [[step.board.instructions] * repeats for step in steps]

    def ns_of(self, ticks: Sequence[int]) -> list[int]:
        return [max(1, round(1e9 * tick / self._hertz)) for tick in ticks]

    def close(self) -> None:
        self.unload()


class BoardRunner(InProcessRunner):
    """The runner for emulated boards. It needs no sandbox, since qemu isolates the measured program
    from this process."""

    def __init__(self) -> None:
        super().__init__(EmulatedDevice)

    def name_of(self, device: AnyDevice) -> str:
        assert isinstance(device, EmulatedDevice)
        return device.name

    def is_emulated(self, device: AnyDevice) -> bool:
        return True
