"""Arrays that stay in the memory of the device that runs a model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.errors import InputMismatchError, UsageError
from farrier.runtime import dlpack
from farrier_device.devices.device import AnyDevice


class DeviceArray:
    """An array that a session takes and returns without a copy to the host: it starts at `offset`
    in the device's `memory`."""

    def __init__(
        self,
        device: AnyDevice,
        memory: Any,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        offset: int = 0,
    ) -> None:
        self.device = device
        self.memory = memory
        self.offset = offset
        self.shape = shape
        self.dtype = np.dtype(dtype)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def empty(cls, device: AnyDevice, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Return an array with undefined content."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        return cls(device, device.allocate(nbytes, 0), shape, dtype)

    @classmethod
    def of(cls, device: AnyDevice, array: npt.ArrayLike) -> DeviceArray:
        """Return a copy of a host array in the device's memory."""
        content = np.ascontiguousarray(array)
        copy = cls.empty(device, content.shape, content.dtype)
        device.send(content.reshape(-1).view(np.uint8).data, copy.memory, 0)
        device.synchronize()
        return copy

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy of the array in the memory of the host."""
        result = np.empty(self.shape, self.dtype)
        self.device.receive(self.memory, self.offset, result.reshape(-1).view(np.uint8).data)
        self.device.synchronize()
        return result

    def __dlpack_device__(self) -> tuple[int, int]:
        number = getattr(self.device, "number", None)
        if number is None:
            raise BufferError("only arrays of CUDA can be taken by other libraries")
        return dlpack.CUDA, number

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        """Return the array as a DLPack capsule, through which another library can use it without a
        copy."""
        _, number = self.__dlpack_device__()
        self.device.synchronize()  # What writes it is done on every stream then.
        address = self.memory.address + self.offset
        return dlpack.lend(address, number, self.shape, self.dtype, self.memory)


def is_on_device(value: object) -> bool:
    """Check whether an input is in the memory of a device: a DeviceArray, or a CUDA array of
    another library."""
    if isinstance(value, DeviceArray):
        return True
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return False
    return bool(value.__dlpack_device__()[0] == dlpack.CUDA)


def taken(name: str, value: Any, device: Any) -> DeviceArray:
    """Return an input in the memory of a session's device as a DeviceArray. Raises
    InputMismatchError if it is on another device."""
    if isinstance(value, DeviceArray):
        if value.device is not device:
            raise InputMismatchError(
                f"input {name} lies on the device of another session",
                hint="give its .numpy(), or an array of session.to_device",
            )
        return value
    if not hasattr(device, "wrap"):
        raise UsageError(
            f"input {name} lies on a GPU of NVIDIA, and the model does not run by CUDA",
            hint="give an array of the host, or compile the model with --target cuda:…",
        )
    memory = device.wrap(0, 0)
    lent = dlpack.borrow(name, value, device.stream, memory)
    if lent.device != device.number:
        raise InputMismatchError(
            f"input {name} lies on GPU {lent.device}, and the model runs on GPU {device.number}",
            hint="copy it there first",
        )
    memory.address = lent.address
    memory.nbytes = math.prod(lent.shape) * lent.dtype.itemsize
    return DeviceArray(device, memory, lent.shape, lent.dtype)
