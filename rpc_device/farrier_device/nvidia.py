"""The NVIDIA GPUs of this machine, in the order of their driver.

The name of such an adapter is `cuda:` followed by the name of the GPU, as in `cuda:NVIDIA H200`;
its features are the architectures whose code it runs, such as sm_90.
"""

from __future__ import annotations

import ctypes
from typing import Any

from farrier_device.adapters import Adapter, NoAdapterError, chosen, numbered
from farrier_device.cuda_library import ARCH, runnable
from farrier_device.devices.libcuda import (
    L2_BYTES,
    MAJOR,
    MINOR,
    NO_DEVICE,
    SHARED_BYTES,
    THREADS,
    UNITS,
    CudaError,
    Driver,
    NoDriverError,
)

PREFIX = "cuda:"
_NAME_BYTES = 256
_BUS_BYTES = 32  # "00000000:00:00.0" and its end.


def find_gpus(library: Any = None) -> tuple[Adapter, ...]:
    """Return the GPUs in the driver's order. Raises NoAdapterError if there is none, or no
    driver."""
    driver = open_driver(library)
    try:
        count = driver.integer("cuDeviceGetCount")
        models = [name_of(driver, number) for number in range(count)]
        names = numbered(f"{PREFIX}{model}" for model in models)
        return tuple(
            _described(driver, *each) for each in zip(range(count), names, models, strict=True)
        )
    except CudaError as error:
        raise NoAdapterError(f"the NVIDIA driver does not describe its GPUs: {error}") from None


def find_gpu(name: str = "", library: Any = None) -> Adapter:
    """Return the GPU with the given name, or the first GPU. Raises NoAdapterError."""
    return chosen(find_gpus(library), name)


def number_of(name: str, library: Any = None) -> int:
    """Return the number of a GPU in the driver's order, from that number itself, from a name, or
    for the first GPU. Raises NoAdapterError."""
    if name.isdigit():
        return int(name)
    names = [adapter.name for adapter in find_gpus(library)]
    return names.index(find_gpu(name, library).name)


def open_driver(library: Any = None) -> Driver:
    """Return the CUDA driver, which has at least one GPU. Raises NoAdapterError."""
    try:
        driver = Driver(library)
        driver.call("cuInit", 0)
        has_gpu = driver.integer("cuDeviceGetCount") > 0
    except NoDriverError as error:
        raise NoAdapterError(str(error)) from None
    except CudaError as error:
        if error.code != NO_DEVICE:
            message = f"the NVIDIA driver cannot be initialized: {error}"
            raise NoAdapterError(message) from None
        has_gpu = False
    if not has_gpu:
        raise NoAdapterError("the NVIDIA driver finds no GPU on this machine")
    return driver


def name_of(driver: Driver, number: int) -> str:
    """Return the driver's name of a GPU."""
    return _text(driver, "cuDeviceGetName", _NAME_BYTES, number)


def bus_of(number: int, library: Any = None) -> str:
    """Return the PCI bus address of a GPU, by which other libraries identify the GPU."""
    return _text(open_driver(library), "cuDeviceGetPCIBusId", _BUS_BYTES, number)


def capability_of(driver: Driver, number: int) -> tuple[int, int]:
    """Return the compute capability of a GPU: the major and minor number."""
    return _attribute(driver, MAJOR, number), _attribute(driver, MINOR, number)


def cuda_of(driver: Driver) -> tuple[int, int]:
    """Return the CUDA version of the driver: the major and minor number."""
    version = driver.integer("cuDriverGetVersion")  # 1000 times the major one, and 10 the minor.
    return version // 1000, version % 1000 // 10


def _described(driver: Driver, number: int, name: str, model: str) -> Adapter:
    cuda = ".".join(map(str, cuda_of(driver)))
    return Adapter(
        name=name,
        model=model,
        driver=f"CUDA {cuda}",
        is_emulated=driver.is_emulated,
        features=runnable(*capability_of(driver, number)),
        limits={
            "max-buffer-size": driver.handle("cuDeviceTotalMem_v2", number),
            "max-compute-invocations-per-workgroup": _attribute(driver, THREADS, number),
            "max-compute-workgroup-storage-size": _attribute(driver, SHARED_BYTES, number),
        },
        arch=ARCH,
        units=_attribute(driver, UNITS, number),
        l2_bytes=_attribute(driver, L2_BYTES, number),
    )


def _attribute(driver: Driver, attribute: int, number: int) -> int:
    return driver.integer("cuDeviceGetAttribute", attribute, number)


def _text(driver: Driver, function: str, nbytes: int, number: int) -> str:
    text = ctypes.create_string_buffer(nbytes)
    driver.call(function, text, nbytes, number)
    return text.value.decode(errors="replace")
