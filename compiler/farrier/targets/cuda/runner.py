"""Measure on the GPU of this machine."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from farrier.errors import NoDeviceError
from farrier_device.adapters import NoAdapterError
from farrier_device.measurement import MeasureRequest, MeasureResult
from farrier_device.nvidia import find_gpu
from farrier_device.runners.local import ChildRunner

if TYPE_CHECKING:
    from farrier.measure import Blobs


class CudaRunner:
    """Implements `farrier.measure.Runner` by sandboxed children, in which the driver is. The GPU is
    looked for when the first batch is measured: NoDeviceError if there is none."""

    devices: int | None = None

    def __init__(self) -> None:
        self._finding = threading.Lock()

    def measure(
        self, request: MeasureRequest, blobs: Blobs, cancelled: threading.Event | None = None
    ) -> MeasureResult:
        with self._finding:
            children = self._children
        return children.measure(request, blobs, cancelled)

    @functools.cached_property
    def _children(self) -> ChildRunner:
        try:
            gpu = find_gpu()
        except NoAdapterError as error:
            raise NoDeviceError(
                str(error), hint="`farrier-device --adapter cuda:NAME` measures where one is"
            ) from None
        return ChildRunner(device=gpu.name, adapter=gpu.name, emulated=gpu.is_emulated, pin=False)

    def close(self) -> None:
        if "_children" in vars(self):
            self._children.close()
