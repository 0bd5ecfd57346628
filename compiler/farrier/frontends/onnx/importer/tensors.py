"""Convert ONNX tensors and element types to numpy arrays and dtypes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from farrier.errors import InvalidModelError
from farrier.frontends.builder.limits import MAX_MADE_BYTES, MAX_TENSOR_BYTES, check_size
from farrier.frontends.onnx.importer.external import external_elements, is_external
from farrier.frontends.onnx.model.file import Model
from farrier.ir.strings import codes_of, strings_of
from farrier.ir.types import DType, TensorType

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
    onnx.TensorProto.BFLOAT16: DType.BF16,
    onnx.TensorProto.FLOAT8E4M3FN: DType.F8E4M3FN,
    onnx.TensorProto.FLOAT8E4M3FNUZ: DType.F8E4M3FNUZ,
    onnx.TensorProto.FLOAT8E5M2: DType.F8E5M2,
    onnx.TensorProto.FLOAT8E5M2FNUZ: DType.F8E5M2FNUZ,
    onnx.TensorProto.FLOAT8E8M0: DType.F8E8M0,
    onnx.TensorProto.FLOAT6E2M3: DType.F6E2M3,
    onnx.TensorProto.FLOAT6E3M2: DType.F6E3M2,
    onnx.TensorProto.FLOAT4E2M1: DType.F4E2M1,
    onnx.TensorProto.INT4: DType.I4,
    onnx.TensorProto.UINT4: DType.U4,
    onnx.TensorProto.INT2: DType.I2,
    onnx.TensorProto.UINT2: DType.U2,
}
_MAX_ADDRESSED = 1 << 46  # The most bytes of a tensor in a file.
_CODES = {dtype: int(code) for code, dtype in _DTYPES.items()}
# The field that holds the elements if raw_data does not, and the numpy type to read it as.
_FIELDS = {
    DType.F32: "float_data",
    DType.F64: "double_data",
    DType.I64: "int64_data",
    DType.U32: "uint64_data",
    DType.U64: "uint64_data",
}


def dtype_of(code: int, what: str) -> DType:
    """Return the dtype for ONNX's element type code; raises InvalidModelError, which names
    `what`."""
    dtype = _DTYPES.get(code)
    if dtype is None:
        codes = onnx.TensorProto.DataType.values()
        name = onnx.TensorProto.DataType.Name(code) if code in codes else f"type {code}"
        raise InvalidModelError(
            f"{what} has elements of {name.lower()}, which Farrier does not compile"
        )
    return dtype


def code_of(dtype: DType) -> int:
    """Return ONNX's element type code for a dtype."""
    return _CODES[dtype]


def to_array(
    tensor: onnx.TensorProto,
    what: str,
    elements: memoryview | None = None,
    files: Model | None = None,
) -> npt.NDArray[Any]:
    """Return the tensor as a read-only array, which may be unaligned; strings have numpy's dtype
    `U`. `elements` are its raw bytes if the message omits them, and `files` has external data;
    neither is copied.

    Raises InvalidModelError if the shape does not match the number of stored elements.
    """
    if tensor.data_type == onnx.TensorProto.STRING:
        if is_external(tensor):
            raise InvalidModelError(f"{what} has strings as external data, which ONNX does not")
        return _strings(tensor, what)
    dtype = dtype_of(tensor.data_type, what)
    shape = tuple(tensor.dims)
    if is_external(tensor):  # The size of the file is a limit.
        if elements is not None or tensor.HasField("raw_data"):
            raise InvalidModelError(f"{what} has elements in the message and in a file")
        check_size(TensorType(dtype, shape), what, _MAX_ADDRESSED)
        nbytes = -(-math.prod(shape) * dtype.bits // 8)
        elements = external_elements(tensor, nbytes, what, files)
    else:
        check_size(TensorType(dtype, shape), what)
    count = math.prod(shape)
    if elements is not None or tensor.HasField("raw_data"):
        array = np.frombuffer(tensor.raw_data if elements is None else elements, np.uint8)
        if dtype.bits < 8:
            array = _unpacked(array, dtype, count)
        stored = array.nbytes // dtype.nbytes
        if stored * dtype.nbytes == array.nbytes:
            array = array.view(dtype.numpy.newbyteorder("<")).astype(dtype.numpy, copy=False)
    else:
        field = getattr(tensor, _FIELDS.get(dtype, "int32_data"))
        if dtype.is_narrow_float or dtype.bits < 8:  # Bits of the elements, packed as in raw_data.
            array = np.array(field, np.int64).astype(f"u{dtype.nbytes}")
            if dtype.bits < 8 and len(array) != count:
                array = _unpacked(array, dtype, count)
            array = array.view(dtype.numpy)
        else:
            array = np.array(field, np.int64 if dtype is DType.BOOL else None).astype(dtype.numpy)
        stored = len(array)
    if stored != count or array.dtype != dtype.numpy:
        raise InvalidModelError(
            f"{what} of {dtype} has the shape {shape}, which is {count} elements, and stores "
            f"{array.nbytes} bytes"
        )
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def dense_array(
    tensor: onnx.SparseTensorProto, what: str, files: Model | None = None
) -> npt.NDArray[Any]:
    """Return a sparse tensor as a read-only array that includes its zeros. Indices are positions in
    the flattened tensor, or have one column per axis. Raises InvalidModelError for values that are
    not a vector, and for indices of another shape or out of range."""
    shape = tuple(tensor.dims)
    values = to_array(tensor.values, what, files=files)
    indices = to_array(tensor.indices, f"the indices of {what}", files=files)
    if values.dtype.kind == "U" or values.ndim != 1:
        raise InvalidModelError(f"{what} is sparse, and its values are not a vector of numbers")
    dtype = DType.from_numpy(values.dtype)
    check_size(TensorType(dtype, shape), what, MAX_MADE_BYTES)
    columns = (len(values), len(shape)) if indices.ndim == 2 else (len(values),)
    if indices.dtype != np.int64 or indices.shape != columns:
        raise InvalidModelError(f"{what} has {len(values)} values and indices {indices.shape}")
    dense = np.zeros(shape, values.dtype)
    bounds = np.array(shape if indices.ndim == 2 else (dense.size,))
    if np.any(indices < 0) or np.any(indices >= bounds):
        raise InvalidModelError(f"{what} of shape {shape} has values beyond it")
    positions = np.ravel_multi_index(tuple(indices.T), shape) if indices.ndim == 2 else indices
    dense.reshape(-1)[positions] = values
    dense.flags.writeable = False
    return dense


def _strings(tensor: onnx.TensorProto, what: str) -> npt.NDArray[np.str_]:
    shape, stored = tuple(tensor.dims), list(tensor.string_data)
    check_size(TensorType(DType.U32, shape), what)
    if math.prod(shape) != len(stored):
        raise InvalidModelError(f"{what} has the shape {shape}, and stores {len(stored)} strings")
    if 4 * len(stored) * max(map(len, stored), default=1) > MAX_TENSOR_BYTES:
        raise InvalidModelError(f"{what} has the shape {shape}, and too long a string")
    try:
        array = strings_of(codes_of(np.array(stored, object)))
    except ValueError as error:
        raise InvalidModelError(f"{what}: {error}") from error
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def _unpacked(packed: npt.NDArray[np.uint8], dtype: DType, count: int) -> npt.NDArray[np.uint8]:
    """Unpack elements of less than 8 bits to one element per byte; the first element of a byte is
    in its lowest bits.

    The length of the result shows whether bytes are missing or left over.
    """
    whole = 8 * len(packed) // dtype.bits
    if len(packed) == -(-count * dtype.bits // 8):
        whole = count
    if 8 % dtype.bits == 0:
        parts = np.empty((len(packed), 8 // dtype.bits), np.uint8)
        for place in range(8 // dtype.bits):
            parts[:, place] = packed >> np.uint8(dtype.bits * place)
        parts &= np.uint8((1 << dtype.bits) - 1)
        return parts.reshape(-1)[:whole]
    bits = np.unpackbits(packed, bitorder="little")
    rows = bits[: whole * dtype.bits].reshape(whole, dtype.bits)
    return np.packbits(rows, axis=1, bitorder="little").reshape(whole)
