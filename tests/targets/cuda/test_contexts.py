"""The context of a GPU is that of the thread when the driver is called, and outlives its memory."""

from __future__ import annotations

import threading

import pytest

from farrier_device.devices.cuda import CudaDevice
from farrier_device.devices.device import DeviceError
from tests.targets.cuda.libcuda import Library

_BYTES = 600


def test_calls_are_in_the_context_of_the_device_whoever_was_here_before():
    library = Library()
    first, second = (CudaDevice(library=library) for _ in range(2))
    mine = library.entered[-1]
    first.allocate(_BYTES, 0)
    others = library.entered[-1]
    assert others != mine
    second.allocate(_BYTES, 0)
    assert library.entered == [mine]


def test_memory_is_freed_on_a_thread_without_a_context():
    library = Library(free_bytes=1000)
    gpu = CudaDevice(library=library)
    held = [gpu.allocate(_BYTES, 0)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert gpu.allocate(_BYTES, 0)


def test_a_context_is_released_after_its_memory():
    library = Library()
    gpu = CudaDevice(library=library)
    held = gpu.allocate(_BYTES, 0)
    gpu.close()
    gpu.close()
    assert library.retained == 1
    with pytest.raises(DeviceError, match="Emulated was closed"):
        gpu.allocate(_BYTES, 0)
    del held
    assert library.retained == 0
