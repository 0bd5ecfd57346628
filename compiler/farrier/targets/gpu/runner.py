"""The runner that measures on a GPU of this machine."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from farrier.errors import NoDeviceError
from farrier_device.adapters import Adapter, NoAdapterError
from farrier_device.measurement import MeasureRequest, MeasureResult
from farrier_device.runners.local import ChildRunner

if TYPE_CHECKING:
    from farrier.measure import Blobs


class GpuRunner:
    """An implementation of `farrier.measure.Runner` in sandboxed child processes, which load the
    GPU driver. When the first batch is measured, `find` searches for the GPU. Raises NoDeviceError
    with `hint` if there is none."""

    devices: int | None = None

    def __init__(self, find: Callable[[], Adapter], hint: str = "") -> None:
        self._find, self._hint = find, hint
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
            gpu = self._find()
        except NoAdapterError as error:
            raise NoDeviceError(str(error), hint=self._hint) from None
        return ChildRunner(device=gpu.name, adapter=gpu.name, emulated=gpu.is_emulated, pin=False)

    def close(self) -> None:
        if "_children" in vars(self):
            self._children.close()
