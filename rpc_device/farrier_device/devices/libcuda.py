"""NVIDIA's CUDA driver library, through one table of the functions in use and their argument types.

Each function returns an error code. `Driver.call` raises CudaError for any code other than 0. An
object with the same functions, such as an emulator, can replace the library.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
from ctypes import c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

_LIBRARY = "libcuda.so.1"
# An environment variable may name a module whose `library()` returns an emulator's object.
MODULE = "FARRIER_CUDA"
_OUT = c_void_p  # A pointer to where a result goes.
_HANDLE = c_void_p  # A context, module, function, stream or event.
_ADDRESS = c_uint64  # In the memory of the device.

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_OUT,),
    "cuGetErrorName": (c_int, _OUT),
    "cuDeviceGetCount": (_OUT,),
    "cuDeviceGet": (_OUT, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (_OUT, c_int, c_int),
    "cuDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "cuDeviceTotalMem_v2": (_OUT, c_int),
    "cuDevicePrimaryCtxRetain": (_OUT, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuCtxPushCurrent_v2": (_HANDLE,),
    "cuCtxPopCurrent_v2": (_OUT,),
    "cuModuleLoadData": (_OUT, c_char_p),
    "cuModuleUnload": (_HANDLE,),
    "cuModuleGetFunction": (_OUT, _HANDLE, c_char_p),
    "cuFuncSetAttribute": (_HANDLE, c_int, c_int),
    "cuMemGetInfo_v2": (_OUT, _OUT),
    "cuMemAlloc_v2": (_OUT, c_size_t),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemsetD8Async": (_ADDRESS, c_ubyte, c_size_t, _HANDLE),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, c_void_p, c_size_t, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (c_void_p, _ADDRESS, c_size_t, _HANDLE),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, c_size_t, _HANDLE),
    "cuTensorMapEncodeTiled": (
        *(_OUT, c_int, c_uint, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
        *(c_int, c_int, c_int, c_int),
    ),
    "cuLaunchKernel": (_HANDLE, *(c_uint,) * 7, _HANDLE, c_void_p, c_void_p),
    "cuGraphCreate": (_OUT, c_uint),
    "cuGraphAddKernelNode": (_OUT, _HANDLE, c_void_p, c_size_t, c_void_p),
    "cuGraphInstantiateWithFlags": (_OUT, _HANDLE, c_uint64),
    "cuGraphExecKernelNodeSetParams": (_HANDLE, _HANDLE, c_void_p),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
    "cuGraphExecDestroy": (_HANDLE,),
    "cuGraphDestroy": (_HANDLE,),
    "cuStreamCreate": (_OUT, c_uint),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamDestroy_v2": (_HANDLE,),
    "cuEventCreate": (_OUT, c_uint),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventElapsedTime": (_OUT, _HANDLE, _HANDLE),
    "cuEventDestroy_v2": (_HANDLE,),
}
OUT_OF_MEMORY, NO_DEVICE = 2, 100  # CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NO_DEVICE
# CUDA_ERROR_ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, ASSERT, HARDWARE_STACK_ERROR to LAUNCH_FAILED: after
# one of them the context does nothing more, and only another process has a new one.
LOST = frozenset({700, 702, 710, *range(714, 720)})
# CUdevice_attribute: COMPUTE_CAPABILITY_MAJOR and _MINOR, MULTIPROCESSOR_COUNT, L2_CACHE_SIZE,
# MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, MAX_THREADS_PER_BLOCK.
MAJOR, MINOR, UNITS, L2_BYTES, SHARED_BYTES, THREADS = 75, 76, 16, 38, 81, 1
MOST_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class CudaError(Exception):
    """A call of the driver has failed, with an error code and the name of the code."""

    def __init__(self, function: str, code: int, name: str) -> None:
        super().__init__(f"{function} returned {name}")
        self.code = code
        self.name = name


class NoDriverError(Exception):
    """The driver's library is not on this machine."""


class Driver:
    """The functions of the driver's library. Raises NoDriverError if the library is missing."""

    def __init__(self, library: Any = None) -> None:
        self._library = _loaded() if library is None else library

    @property
    def is_emulated(self) -> bool:
        """True if a processor runs the kernels; their times are then not those of a GPU."""
        return not isinstance(self._library, ctypes.CDLL)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver. Raises CudaError."""
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CudaError(name, code, self._name_of(code))

    def has(self, name: str) -> bool:
        """Return whether the library has a function; older drivers lack those for graphs."""
        return hasattr(self._library, name)

    def _name_of(self, code: int) -> str:
        text = c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(text))
        return text.value.decode() if text.value else f"code {code}"

    def integer(self, name: str, *arguments: Any) -> int:
        """Call a function that writes an int to its first argument, and return the int."""
        result = c_int()
        self.call(name, ctypes.byref(result), *arguments)
        return result.value

    def handle(self, name: str, *arguments: Any) -> int:
        """Call a function that writes a handle or an address to its first argument, and return the
        value."""
        result = c_uint64()
        self.call(name, ctypes.byref(result), *arguments)
        return result.value

    def milliseconds(self, start: int, end: int) -> float:
        """Return the time in milliseconds between two CUDA events."""
        result = c_float()
        self.call("cuEventElapsedTime", ctypes.byref(result), start, end)
        return result.value


def _loaded() -> Any:
    if name := os.environ.get(MODULE):
        return _emulator(name)
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise NoDriverError(f"{_LIBRARY} is missing: NVIDIA's driver is not installed") from None
    for name, arguments in SIGNATURES.items():
        if (function := getattr(library, name, None)) is not None:
            function.argtypes = arguments
    return library


@functools.cache
def _emulator(name: str) -> Any:
    try:
        return importlib.import_module(name).library()
    except ImportError:
        raise NoDriverError(
            f"the variable {MODULE} is {name!r}, which is not a module here"
        ) from None
