"""`OrtValue`: a tensor, or a sequence of tensors, in this process's memory."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.artifact.declaration import tensor_type
from farrier.errors import InputMismatchError, UsageError
from farrier.ir.types import DType
from farrier.onnxruntime.errors import refused

Array: TypeAlias = npt.NDArray[Any]

# ONNX's numbers of element types (TensorProto.DataType), by the IR's names.
ELEMENT_CODES = {
    "f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "string": 8, "bool": 9,
    "f16": 10, "f64": 11, "u32": 12, "u64": 13, "bf16": 16, "f8e4m3fn": 17, "f8e4m3fnuz": 18,
    "f8e5m2": 19, "f8e5m2fnuz": 20, "u4": 21, "i4": 22, "f4e2m1": 23, "f8e8m0": 24,
    "u2": 25, "i2": 26,
}  # fmt: skip
_BY_CODE = {code: name for name, code in ELEMENT_CODES.items()}
_IN_MEMORY = ("cpu",)


class OrtValue:
    """A tensor or sequence with the interface of ONNX Runtime's OrtValue. Class methods create
    it."""

    def __init__(self, value: Array | list[Any] | None) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return a value in the memory of the array if that is contiguous, so that both share their
        elements; else in a copy. Raises RuntimeError unless `numpy_obj` is an array of numbers."""
        check_device(device_type)
        if not isinstance(numpy_obj, np.ndarray) or numpy_obj.dtype.kind in "USOT":
            raise refused(
                InputMismatchError, "RuntimeError", "an OrtValue is made of an array of numbers"
            )
        _dtype_name(numpy_obj.dtype)
        return cls(np.require(numpy_obj, requirements="C"))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Return a value of zeros; `element_type` is numpy's, or ONNX's number of it. Raises
        RuntimeError."""
        check_device(device_type)
        dtype = element_dtype(element_type)
        return cls(np.zeros(_checked_shape(shape), dtype))

    @property
    def _array(self) -> Array:
        if not isinstance(self._value, np.ndarray):
            raise refused(InputMismatchError, "RuntimeError", "the value is no tensor")
        return self._value

    def numpy(self) -> Array:
        """Return the tensor, in the memory of the value."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype) if copy else np.asarray(self._array, dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._array.__dlpack_device__()
        return int(kind), int(number)

    def update_inplace(self, data: Array) -> None:
        """Write an array of the same shape and dtype to the value's memory. Raises RuntimeError for
        another shape or dtype, and for memory that is read-only."""
        if not isinstance(data, np.ndarray):
            raise refused(
                InputMismatchError, "RuntimeError", f"a {type(data).__name__} is no array"
            )
        check_writable(self._array, "the value")
        if data.shape != self._array.shape or data.dtype != self._array.dtype:
            raise refused(
                InputMismatchError,
                "RuntimeError",
                f"the value is {self._array.dtype}{self.shape()}, not "
                f"{data.dtype}{list(data.shape)}",
            )
        np.copyto(self._array, data)

    def shape(self) -> list[int]:
        """Return the extents of the tensor."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """Return the type, such as `tensor(float)` or, for a sequence, `seq(tensor(float))`."""
        if isinstance(self._value, list):
            inner = OrtValue(self._value[0]).data_type() if self._value else "tensor(float)"
            return f"seq({inner})"
        return tensor_type(_dtype_name(self._array.dtype))

    def element_type(self) -> int:
        """Return ONNX's number of the element type."""
        return ELEMENT_CODES[_dtype_name(self._array.dtype)]

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Return the size of the elements of the tensor in bytes."""
        return int(self._array.nbytes)

    def device_name(self) -> str:
        """Return `cpu`: values lie in the memory of the host."""
        return "cpu"

    def has_value(self) -> bool:
        """Return False for the absent value of an optional type."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Check whether the value is a dense tensor."""
        return isinstance(self._value, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        """Return False: sparse tensors are not supported."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Check whether the value is a sequence of tensors."""
        return isinstance(self._value, list)


def check_device(device_type: str) -> None:
    """Raise RuntimeError for memory of a device other than the host."""
    if str(device_type).lower() not in _IN_MEMORY:
        raise refused(
            UsageError,
            "RuntimeError",
            f"no memory of the device {device_type!r}: Farrier's models run on the CPU",
            "device_type='cpu'",
        )


def element_dtype(element_type: Any) -> np.dtype[Any]:
    """Return the numpy dtype for a dtype or for ONNX's element type number. Raises RuntimeError."""
    try:
        if isinstance(element_type, int):
            return DType(_BY_CODE[element_type]).numpy
        return DType.from_numpy(element_type).numpy
    except (KeyError, TypeError, ValueError):
        raise refused(
            InputMismatchError, "RuntimeError", f"{element_type!r} is no type of elements"
        ) from None


def array_at(address: int, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
    """Return the array at an address, which the caller keeps alive. Raises RuntimeError for an
    address or a shape that is not valid."""
    sizes = _checked_shape(shape)
    if not hasattr(address, "__index__") or address <= 0:
        raise refused(InputMismatchError, "RuntimeError", f"there is no array at {address!r}")
    nbytes = math.prod(sizes) * dtype.itemsize
    memory = memoryview((ctypes.c_ubyte * nbytes).from_address(address))
    array: Array = np.frombuffer(memory, dtype).reshape(sizes)
    return array


def check_writable(array: Array, what: str) -> None:
    """Raise RuntimeError for an array that is read-only; `what` names it."""
    if not array.flags.writeable:
        raise refused(
            InputMismatchError, "RuntimeError", f"the memory of {what} is only read", "array.copy()"
        )


def _checked_shape(shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(map(operator.index, shape))
    except TypeError:
        sizes = (-1,)
    if any(size < 0 for size in sizes):
        raise refused(InputMismatchError, "RuntimeError,TypeError", f"{shape!r} is no shape")
    return sizes


def _dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "USOT":
        return "string"
    try:
        return DType.from_numpy(dtype).value
    except ValueError as error:
        raise refused(InputMismatchError, "RuntimeError", str(error)) from None
