"""Measure whole models on an emulated board."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from farrier.errors import CompilerError
from farrier.targets.bare.emulation import BoardError, EmulatedBoard
from farrier.targets.bare.testable import Testable
from farrier_device.devices.device import AnyDevice, Code, DeviceError
from farrier_device.devices.host_memory import HostMemory, WallClocked
from farrier_device.measurement import Launch
from farrier_device.memory import Buffer
from farrier_device.runners.in_process import InProcessRunner


class _Run(NamedTuple):
    """A board, with the memories of inputs and outputs."""

    board: EmulatedBoard
    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]


class EmulatedDevice(HostMemory[_Run], WallClocked[Buffer, _Run]):
    """The host with an emulator: its memory is the host's, and each launch resets a board."""

    def __init__(self) -> None:
        self._model: Testable | None = None
        self._code = 0
        self.name = "qemu"

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        self.unload()
        [(_, file)] = code
        self._model = Testable.of_bytes(os.pread(file, os.fstat(file).st_size, 0))

    def unload(self) -> None:
        self._model = None

    def bind(self, launch: Launch, places: Sequence[tuple[Buffer, int]]) -> _Run:
        assert self._model is not None, "no code is loaded"
        part = self._model.part
        inputs, outputs = len(part.inputs), len(part.outputs)
        memories = [memory for memory, _ in places]
        try:
            params = bytes(memories[inputs + outputs].view[: part.params])
            board = EmulatedBoard(self._model, params)
        except CompilerError as error:
            raise DeviceError(str(error)) from None
        self.name = f"qemu {board.name}"
        return _Run(board, memories[:inputs], memories[inputs : inputs + outputs])

    def launch(self, bound: _Run) -> None:
        part = bound.board.part
        read = [
            memory.view[:nbytes] for memory, nbytes in zip(bound.inputs, part.inputs, strict=True)
        ]
        try:
            outcome = bound.board.run(read)
        except BoardError as error:
            raise DeviceError(str(error)) from None
        for memory, content in zip(bound.outputs, outcome.outputs, strict=True):
            memory.view[: len(content)] = content
        self._code = self._code or outcome.code

    def synchronize(self) -> int:
        code, self._code = self._code, 0
        return code

    def close(self) -> None:
        self.unload()


class BoardRunner(InProcessRunner):
    """Runs qemu, which keeps the program apart from this process."""

    def __init__(self) -> None:
        super().__init__(EmulatedDevice)

    def name_of(self, device: AnyDevice) -> str:
        assert isinstance(device, EmulatedDevice)
        return device.name

    def is_emulated(self, device: AnyDevice) -> bool:
        return True
