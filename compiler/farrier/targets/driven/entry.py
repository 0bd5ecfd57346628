"""The entry point of a model on a device of this machine."""

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
    """A program that drives a device, whose failures are errors of Farrier with its name. A device
    that is lost in a run is opened anew, once, and the run begins again."""

    def __init__(
        self,
        program: Program,
        devices: Mapping[str, AnyDevice],
        most_workspace: int | str,
        name: str,
        reopened: Callable[[], tuple[str, AnyDevice]],
    ) -> None:
        """`reopened` opens the device again, and returns it with its space."""
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
