"""ONNX tensors and element types → numpy arrays and Farrier's element types."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from farrier.errors import InvalidModelError
from farrier.importer.limits import MAX_TENSOR_BYTES
from farrier.ir.types import DType

_DTYPES = {
    onnx.TensorProto.FLOAT: DType.F32,
    onnx.TensorProto.DOUBLE: DType.F64,
    onnx.TensorProto.FLOAT16: DType.F16,
    onnx.TensorProto.INT8: DType.I8,
    onnx.TensorProto.INT16: DType.I16,
    onnx.TensorProto.INT32: DType.I32,
    onnx.TensorProto.INT64: DType.I64,
    onnx.TensorProto.UINT8: DType.U8,
    onnx.TensorProto.UINT16: DType.U16,
    onnx.TensorProto.UINT32: DType.U32,
    onnx.TensorProto.UINT64: DType.U64,
    onnx.TensorProto.BOOL: DType.BOOL,
}
_CODES = {dtype: int(code) for code, dtype in _DTYPES.items()}
# The field that holds the elements where raw_data does not, and the numpy type to read it as.
_FIELDS = {
    DType.F32: "float_data",
    DType.F64: "double_data",
    DType.I64: "int64_data",
    DType.U32: "uint64_data",
    DType.U64: "uint64_data",
}


def dtype_of(code: int, what: str) -> DType:
    """Farrier's element type for ONNX's number; raises InvalidModelError naming `what`."""
    found = _DTYPES.get(code)
    if found is None:
        known = onnx.TensorProto.DataType.values()
        name = onnx.TensorProto.DataType.Name(code) if code in known else f"type {code}"
        raise InvalidModelError(
            f"{what} has elements of {name.lower()}, which Farrier does not compile"
        )
    return found


def code_of(dtype: DType) -> int:
    """ONNX's number of an element type."""
    return _CODES[dtype]


def to_array(tensor: onnx.TensorProto, what: str) -> npt.NDArray[Any]:
    """The tensor as a read-only array, without a copy where its bytes are stored raw.

    Raises InvalidModelError where the shape and the stored elements do not fit together.
    """
    dtype = dtype_of(tensor.data_type, what)
    shape = tuple(tensor.dims)
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.nbytes > MAX_TENSOR_BYTES:
        raise InvalidModelError(f"{what} has the shape {shape}")
    if tensor.HasField("raw_data"):
        array = np.frombuffer(tensor.raw_data, np.uint8)
        stored = array.nbytes // dtype.nbytes
        if stored * dtype.nbytes == array.nbytes:
            array = array.view(dtype.numpy.newbyteorder("<")).astype(dtype.numpy, copy=False)
    else:
        field = getattr(tensor, _FIELDS.get(dtype, "int32_data"))
        wide = np.array(field, np.int64 if dtype in (DType.F16, DType.BOOL) else None)
        stored = len(wide)
        if dtype is DType.F16:
            array = wide.astype(np.uint16).view(np.float16)
        else:
            array = wide.astype(dtype.numpy)
    if stored != count or array.dtype != dtype.numpy:
        raise InvalidModelError(
            f"{what} of {dtype} has the shape {shape}, which is {count} elements, and stores "
            f"{array.nbytes} bytes"
        )
    array = array.reshape(shape)
    array.flags.writeable = False
    return array
