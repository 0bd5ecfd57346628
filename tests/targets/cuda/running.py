"""Run the PTX of a kernel in the emulator."""

from __future__ import annotations

import numpy as np

from farrier.ir.dim import number
from farrier.targets.cuda.kernel_text import scratch_bytes
from farrier.targets.gpu.launches import entry_points
from farrier_device.cuda_library import tensor_maps
from tests.targets.cuda import emulator
from tests.targets.cuda.fetches import encoded_map
from tests.targets.cuda.memory import Memory
from tests.targets.cuda.ptx import kernels_of


def run_ptx(text, function, inputs, traffic=None, needed=None):
    """Call a lowered kernel, its dims bound; return the other parameters by name. The set `needed`
    takes what something had to wait for, each by the name of its entry point and its place."""

    def launch(kernel, *launched):
        places = emulator.launch(kernel, *launched, traffic)
        if needed is not None:
            needed.update((kernel.name, place) for place in places)

    return run_kernels(kernels_of(text), function, inputs, launch, tensor_maps(text))


def run_kernels(kernels, function, inputs, launch, described=None):
    """Call a lowered kernel by `launch`; return the other parameters by name."""
    memory, addresses, arrays = Memory(), [], {}
    for buffer in function.params:
        empty = np.full(buffer.type.static_shape, 77, buffer.dtype.numpy)
        array = arrays[buffer.name] = np.ascontiguousarray(inputs.get(buffer.name, empty))
        addresses.append(memory.allocate(array.nbytes))
        if buffer.name in inputs:
            memory.write(addresses[-1], array.reshape(-1).view(np.uint8))
    if nbytes := number(scratch_bytes(function)):
        addresses.append(memory.allocate(nbytes))
    for entry in entry_points(function):
        kernel = kernels[f"{function.name}{entry.suffix}"]
        blocks = number(entry.blocks)
        maps = [
            encoded_map(addresses[each.position], *each[1:])
            for each in (described or {}).get(kernel.name, ())
        ]
        launch(kernel, blocks, entry.threads, [*addresses, *maps], memory)
    return {
        name: memory.read(address, array.nbytes).view(array.dtype).reshape(array.shape)
        for (name, array), address in zip(arrays.items(), addresses, strict=False)
        if name not in inputs
    }
