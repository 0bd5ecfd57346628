"""Kernels on an adapter of this machine: a GPU, or the processor by Mesa's llvmpipe."""

from __future__ import annotations

import functools
import tempfile

import numpy as np
import pytest

from farrier.ir.dim import number
from farrier.targets.gpu.launches import entry_points
from farrier.targets.webgpu.wgsl import render, scratch_bytes
from farrier_device.devices.device import DeviceError
from farrier_device.devices.webgpu import WebGpuDevice
from farrier_device.measurement import CodeObject, Launch


@functools.cache
def _device():
    try:
        return WebGpuDevice()
    except DeviceError as error:
        return str(error)


def device():
    """Return the device, or skip the test with the reason that there is none."""
    opened = _device()
    if isinstance(opened, str):
        pytest.skip(opened)
    return opened


def _bytes(array):
    return memoryview(array.reshape(-1).view(np.uint8)) if array.size else memoryview(b"")


def load(text):
    """Load a module in the place of those before it."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        device().load([(CodeObject("", "wgsl"), file.fileno())], 1, ())


def run(function, inputs, has_f16=False, text=""):
    """Call a lowered kernel, its dims bound; return the other parameters by name. Its module may be
    another `text`."""
    gpu = device()
    load(text or render(function, has_f16))
    arrays = {}
    for buffer in function.params:
        # Whatever is not written shows.
        undefined = np.full(buffer.type.static_shape, 77, buffer.dtype.numpy)
        arrays[buffer.name] = np.ascontiguousarray(inputs.get(buffer.name, undefined))
    memories = [gpu.allocate(array.nbytes, 0) for array in arrays.values()]
    for array, memory in zip(arrays.values(), memories, strict=True):
        gpu.send(_bytes(array), memory, 0)
    if scratch := number(scratch_bytes(function)):
        memories.append(gpu.allocate(scratch, 0))
    places = [(memory, 0) for memory in memories]
    for entry in entry_points(function):
        symbol = f"{function.name}{entry.suffix}"
        launch = Launch(symbol, None, (number(entry.blocks),), (entry.threads,))
        gpu.launch(gpu.bind(launch, places))
    outputs = {name: array for name, array in arrays.items() if name not in inputs}
    for (name, array), memory in zip(arrays.items(), memories, strict=False):
        if name in outputs:
            gpu.receive(memory, 0, _bytes(array))
    assert gpu.synchronize() == 0
    return outputs
