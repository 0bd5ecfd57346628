"""The entry point of a loaded model that runs on a device of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from farrier.errors import MemoryLimitError, NoDeviceError
from farrier_device.devices.device import (
    AnyDevice,
    ContextLostError,
    DeviceError,
    DeviceLostError,
)
from farrier_device.interpreted import InterpretedEntry
from farrier_device.program import Program


class DrivenEntry(InterpretedEntry):
    """The interpreter of a model's driver program on a device. Failures of the device raise
    Farrier's errors with the device's name. If the device is lost during a run, it is reopened
    once, and the run starts again."""

    def __init__(
        self,
        program: Program,
        devices: Mapping[str, AnyDevice],
        most_workspace: int | str,
        name: str,
        reopened: Callable[[], tuple[str, AnyDevice]],
    ) -> None:
        """Prepare the program to run on `devices`, by memory space. `reopened` is a function that
        opens the device again, and returns the name of its memory space and the new device."""
        super().__init__(program, devices, most_workspace)
        self._name = name
        self._reopened = reopened

    def entry(self, arguments: Sequence[int | None], context: int) -> int:
        with self._as_errors():
            try:
                return super().entry(arguments, context)
            except ContextLostError:
                raise
            except DeviceLostError:
                space, device = self._reopened()
                self.exchange(space, device)
                return super().entry(arguments, context)

    @contextlib.contextmanager
    def _as_errors(self) -> Iterator[None]:
        try:
            yield
        except MemoryError as error:
            raise MemoryLimitError(f"on {self._name}: {error}") from None
        except ContextLostError as error:
            raise NoDeviceError(
                f"{error}, and with it the GPU is lost to this process",
                hint="start the process again; the kernel is wrong, so please report it",
            ) from None
        except DeviceLostError as error:
            raise NoDeviceError(
                f"{error}, and was lost again when it was opened anew",
                hint="a driver that was updated, or a GPU that hangs, needs a restart",
            ) from None
        except DeviceError as error:
            raise NoDeviceError(f"{self._name} failed: {error}") from None
