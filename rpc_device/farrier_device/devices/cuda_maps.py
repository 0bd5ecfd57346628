"""Tensor maps, by which kernels copy tiles of a matrix: the driver encodes them."""

from __future__ import annotations

import ctypes
from typing import Any

from farrier_device.cuda_library import MAP_ALIGNMENT, MAP_BYTES, ROW_BYTES, TensorMap
from farrier_device.devices.libcuda import Driver

# CU_TENSOR_MAP_DATA_TYPE_UINT8 and UINT16, by the bytes of an element: copies keep all bits.
_TYPES = {1: 0, 2: 1}
# CU_TENSOR_MAP_INTERLEAVE_NONE, SWIZZLE_128B, L2_PROMOTION_L2_128B, FLOAT_OOB_FILL_NONE.
_SETTINGS = 0, 3, 2, 0


def encoded(driver: Driver, described: TensorMap, address: int) -> tuple[Any, int]:
    """Return the tensor map of a matrix at an address of the GPU: its owner, and where it lies.
    Raises CudaError."""
    owner = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    start = ctypes.addressof(owner)
    start += -start % MAP_ALIGNMENT
    element = described.element_bytes
    sizes = (ctypes.c_uint64 * 2)(described.width, described.height)
    strides = (ctypes.c_uint64 * 1)(described.width * element)
    box = (ctypes.c_uint32 * 2)(ROW_BYTES // element, described.rows)
    steps = (ctypes.c_uint32 * 2)(1, 1)
    driver.call(
        "cuTensorMapEncodeTiled",
        *(start, _TYPES[element], 2, address),
        *(ctypes.addressof(each) for each in (sizes, strides, box, steps)),
        *_SETTINGS,
    )
    return owner, start
