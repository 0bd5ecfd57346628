"""The entry point of a model on a device of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farrier.errors import MemoryLimitError, NoDeviceError
from farrier_device.devices.device import AnyDevice, DeviceError
from farrier_device.interpreted import InterpretedEntry
from farrier_device.program import Program


class DrivenEntry(InterpretedEntry):
    """A program that drives a device, whose failures are errors of Farrier with its name."""

    def __init__(
        self,
        program: Program,
        devices: Mapping[str, AnyDevice],
        most_workspace: int | str,
        name: str,
    ) -> None:
        super().__init__(program, devices, most_workspace)
        self._name = name

    def entry(self, arguments: Sequence[int | None], context: int) -> int:
        try:
            return super().entry(arguments, context)
        except MemoryError as error:
            raise MemoryLimitError(f"on {self._name}: {error}") from None
        except DeviceError as error:
            raise NoDeviceError(f"{self._name} failed: {error}") from None
