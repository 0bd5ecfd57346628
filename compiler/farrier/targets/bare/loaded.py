"""A model for a microcontroller loaded in a session on this machine. Each call runs the model under
qemu."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from farrier.artifact.code import ModelCode
from farrier.errors import ArtifactError, NoDeviceError
from farrier.targets.bare.part import BarePart


class EmulatedModel:
    """The implementation of `Loaded` for emulated microcontrollers."""

    context = 0

    def __init__(self, code: ModelCode) -> None:
        from farrier.targets.bare.emulation import EmulatedBoard

        if len(code.objects) != 1:
            raise ArtifactError("the artifact of a microcontroller has one object: it is damaged")
        self._part = BarePart.of_json(code.backend)
        self._content = code.objects[0].content
        self._board: EmulatedBoard | None = None
        self.most_workspace = self._part.workspace

    def entry(self, arguments: Sequence[int | None], context: int) -> int:
        """Run the model. `arguments` are the addresses of its inputs, outputs and other arguments
        in this process."""
        from farrier.targets.bare.emulation import BoardError, EmulatedBoard

        part = self._part
        sizes = (*part.inputs, *part.outputs, part.params)
        memories = list(map(_at, arguments, sizes))
        # The flash of the board must contain the parameters, whose address only the first call
        # passes.
        if self._board is None:
            self._board = EmulatedBoard.of(part, self._content, bytes(memories[-1]))
        try:
            outcome = self._board.run(memories[: len(part.inputs)])
        except BoardError as error:
            raise NoDeviceError(str(error)) from None
        for memory, content in zip(memories[len(part.inputs) :], outcome.outputs, strict=False):
            memory[:] = content
        return outcome.code

    def workspace_bytes(self, sizes: int) -> int:
        return self._part.workspace

    def close(self) -> None:
        self._board = None


def _at(address: int | None, nbytes: int) -> memoryview:
    """Return the `nbytes` bytes of this process's memory at an address."""
    content = (ctypes.c_ubyte * nbytes).from_address(address or 0) if nbytes else bytearray()
    return memoryview(content).cast("B")
