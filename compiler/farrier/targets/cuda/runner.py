"""The runner of kernels for CUDA, which measures nothing yet."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NoReturn

from farrier.errors import NoDeviceError
from farrier_device.measurement import MeasureRequest

if TYPE_CHECKING:
    from farrier.measure import Blobs

NOT_MEASURED = "kernels for CUDA are not measured yet"


class CudaRunner:
    """Implements `farrier.measure.Runner`: NoDeviceError for every batch."""

    devices: int | None = None

    def measure(
        self, request: MeasureRequest, blobs: Blobs, cancelled: threading.Event | None = None
    ) -> NoReturn:
        raise NoDeviceError(NOT_MEASURED, hint="compile without trials")

    def close(self) -> None:
        pass
