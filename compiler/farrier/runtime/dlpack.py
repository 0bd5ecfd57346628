"""DLPack: exchange arrays between libraries without copies.

Source: DLPack, include/dlpack/dlpack.h (DLManagedTensor), and its Python specification.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from farrier.errors import InputMismatchError
from farrier.ir.types import DType

CUDA = 2  # kDLCUDA
_NAME, _USED = b"dltensor", b"used_dltensor"
# They are kDLInt, kDLUInt, kDLFloat and kDLBool.
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4  # kDLBfloat


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


_OfCapsule = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.argtypes, _new.restype = (ctypes.c_void_p, ctypes.c_char_p, _OfCapsule), ctypes.py_object
_pointer = _api.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
_rename = _api.PyCapsule_SetName
_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
# A destructor has the capsule without a reference to it.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)


class Lent(NamedTuple):
    """An array that belongs to another library: its address on a CUDA device, its shape and its
    dtype."""

    address: int
    device: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


_exported: dict[
    int, tuple[_Managed, object]
] = {}  # Arrays that are lent, by the address of the struct.


def _end(address: int) -> None:
    _exported.pop(address, None)


def _drop(capsule: int) -> None:
    """Release a capsule that no library has consumed."""
    if _is_valid(capsule, _NAME):
        _end(_pointer_in(capsule, _NAME))


_DELETER, _DESTRUCTOR = _Deleter(_end), _OfCapsule(_drop)


def lend(
    address: int, device: int, shape: Sequence[int], dtype: np.dtype[Any], owner: object
) -> Any:
    """Return a DLPack capsule for an array on a CUDA device. `owner` is kept alive while the
    capsule or its consumer uses the array."""
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    tensor = _Tensor(address, _Device(CUDA, device), len(shape), _data_type(dtype), sizes, None, 0)
    managed = _Managed(tensor, None, _DELETER)
    place = ctypes.addressof(managed)
    _exported[place] = managed, (owner, sizes)
    return _new(place, _NAME, _DESTRUCTOR)


def borrow(name: str, array: Any, stream: int, owner: object) -> Lent:
    """Return a view of another library's array without a copy; the array stays valid as long as
    `owner` exists. Raises InputMismatchError if it is not contiguous, or of a dtype that no input
    has."""
    capsule = array.__dlpack__(stream=stream)
    place = _pointer(capsule, _NAME)
    managed = _Managed.from_address(place)
    _rename(capsule, _USED)
    weakref.finalize(owner, _returned(managed, place))
    tensor = managed.tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.rank))
    if tensor.strides and not _is_dense(shape, tensor.strides):
        raise InputMismatchError(
            f"the array for input {name} is not contiguous",
            hint="give its .contiguous() copy",
        )
    dtype = _dtype_of(name, tensor.dtype)
    return Lent((tensor.data or 0) + tensor.offset, tensor.device.number, shape, dtype)


def _returned(managed: _Managed, place: int) -> Callable[[], None]:
    def give_back() -> None:
        if managed.deleter:
            managed.deleter(place)

    return give_back


def _is_dense(shape: Sequence[int], strides: Any) -> bool:
    step = 1
    for axis in reversed(range(len(shape))):
        if shape[axis] != 1 and strides[axis] != step:
            return False
        step *= shape[axis]
    return True


def _data_type(dtype: np.dtype[Any]) -> _DataType:
    code = _BFLOAT if dtype == DType.BF16.numpy else _CODES[dtype.kind]
    return _DataType(code, 8 * dtype.itemsize, 1)


def _dtype_of(name: str, kind: _DataType) -> np.dtype[Any]:
    if (kind.code, kind.bits, kind.lanes) == (_BFLOAT, 16, 1):
        return np.dtype(DType.BF16.numpy)
    letters = {code: letter for letter, code in _CODES.items()}
    if kind.code not in letters or kind.lanes != 1 or kind.bits % 8:
        raise InputMismatchError(
            f"the array for input {name} has elements of DLPack's code {kind.code} with "
            f"{kind.bits} bits, which no input has"
        )
    letter = letters[kind.code]
    return np.dtype(bool) if letter == "b" else np.dtype(f"{letter}{kind.bits // 8}")
