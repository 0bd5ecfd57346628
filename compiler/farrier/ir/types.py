"""Types shared by the three grammars: element types, layouts, tensor types.

    dtype  = f16 | bf16 | f32 | f64 | i8 | i16 | i32 | i64 | u8 | u16 | u32 | u64 | bool
           | f8e4m3fn | f8e4m3fnuz | f8e5m2 | f8e5m2fnuz | f8e8m0 | f6e2m3 | f6e3m2 | f4e2m1
           | i4 | u4 | i2 | u2
    extent = int | dim                              farrier.ir.dim
    type   = dtype '[' extent, ... ']' ['@' layout]
    layout = axis ['/' div] ['%' mod], ... ['halo' (before, after), ...] ['per_byte' count]
             ['swizzle' (chunk, rows, count)]

A layout maps the elements of a logical tensor to memory. Everything above code generation indexes
tensors by their logical axes; the layout turns these into an address at the very end, so a change
of layout never rewrites an index. Only the layout decides how many elements share a byte.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from farrier.ir.dim import Extent, ceildiv, number, product

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Shape: TypeAlias = tuple[Extent, ...]


class DType(enum.StrEnum):
    """An element type; the enum's value is its name in the text of the IR.

    In memory an element of less than a byte takes a byte, whose low bits hold the element and whose
    other bits are zero, as in arrays of ml_dtypes. In a layout with `per_byte`, several such
    integers share a byte. Registers hold a narrow integer extended, and a float of less than 32
    bits as f32.
    """

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    BOOL = "bool"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2 = "f8e5m2"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E8M0 = "f8e8m0"
    F6E2M3 = "f6e2m3"
    F6E3M2 = "f6e3m2"
    F4E2M1 = "f4e2m1"
    I4 = "i4"
    U4 = "u4"
    I2 = "i2"
    U2 = "u2"

    @property
    def bits(self) -> int:
        """The number of significant bits of an element; a bool has eight."""
        return _BITS[self]

    @property
    def nbytes(self) -> int:
        """The size of an element in memory in bytes."""
        return -(-_BITS[self] // 8)

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_narrow_float(self) -> bool:
        """Check whether the type is a float of less than 32 bits, which registers hold as f32 and a
        store rounds."""
        return self in _NARROW_FLOATS

    @property
    def is_integer(self) -> bool:
        return self in _INTEGERS

    @property
    def is_signed(self) -> bool:
        return self.is_float or self.value[0] == "i"

    @property
    def limits(self) -> tuple[int, int]:
        """Return the least and the greatest value of an integer type."""
        if self.is_signed:
            return -(1 << self.bits - 1), (1 << self.bits - 1) - 1
        return 0, (1 << self.bits) - 1

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of this element type; types that numpy lacks come from ml_dtypes."""
        return _numpy(self)

    @classmethod
    def from_numpy(cls, dtype: Any) -> DType:
        """Return the element type of a numpy dtype. Raises ValueError for a dtype that no tensor
        can have (strings, objects, complex)."""
        import numpy as np

        name = np.dtype(dtype).name
        if name not in _BY_NUMPY:
            raise ValueError(f"no tensor element type for numpy {name}")
        return _BY_NUMPY[name]


_BITS = {
    DType.F16: 16, DType.BF16: 16, DType.F32: 32, DType.F64: 64,
    DType.I8: 8, DType.I16: 16, DType.I32: 32, DType.I64: 64,
    DType.U8: 8, DType.U16: 16, DType.U32: 32, DType.U64: 64, DType.BOOL: 8,
    DType.F8E4M3FN: 8, DType.F8E4M3FNUZ: 8, DType.F8E5M2: 8, DType.F8E5M2FNUZ: 8, DType.F8E8M0: 8,
    DType.F6E2M3: 6, DType.F6E3M2: 6, DType.F4E2M1: 4,
    DType.I4: 4, DType.U4: 4, DType.I2: 2, DType.U2: 2,
}  # fmt: skip
_FLOATS = frozenset(dtype for dtype in DType if dtype[0] == "f" or dtype is DType.BF16)
_NARROW_FLOATS = frozenset(dtype for dtype in _FLOATS if _BITS[dtype] < 32)
_INTEGERS = frozenset(dtype for dtype in DType if dtype[0] in "iu")
_NUMPY = {
    DType.F16: "float16", DType.BF16: "bfloat16", DType.F32: "float32", DType.F64: "float64",
    DType.I8: "int8", DType.I16: "int16", DType.I32: "int32", DType.I64: "int64",
    DType.U8: "uint8", DType.U16: "uint16", DType.U32: "uint32", DType.U64: "uint64",
    DType.BOOL: "bool",
    DType.F8E4M3FN: "float8_e4m3fn", DType.F8E4M3FNUZ: "float8_e4m3fnuz",
    DType.F8E5M2: "float8_e5m2", DType.F8E5M2FNUZ: "float8_e5m2fnuz",
    DType.F8E8M0: "float8_e8m0fnu", DType.F6E2M3: "float6_e2m3fn", DType.F6E3M2: "float6_e3m2fn",
    DType.F4E2M1: "float4_e2m1fn",
    DType.I4: "int4", DType.U4: "uint4", DType.I2: "int2", DType.U2: "uint2",
}  # fmt: skip
_BY_NUMPY = {name: dtype for dtype, name in _NUMPY.items()}


@functools.cache
def _numpy(dtype: DType) -> np.dtype[Any]:
    import numpy as np

    name = _NUMPY[dtype]
    if hasattr(np, name):
        return np.dtype(name)
    import ml_dtypes

    dtype_of_ml: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype_of_ml


@dataclasses.dataclass(frozen=True, slots=True)
class PhysicalDim:
    """One dimension of memory: the index `(i // div) % mod` for the index i of the logical axis
    `axis`.

    `mod` 0 stands for no modulus: the dimension is the outermost one of its axis.
    """

    axis: int
    div: int = 1
    mod: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Swizzle:
    """A permutation of the chunks of each row of memory, against bank conflicts: chunk `c` of row
    `r` is stored at the position of chunk `c ^ (r // rows % count)`, where a chunk is `chunk`
    neighbours.

    The rows are indexed by the second-to-last dimension of memory, and the chunks are parts of the
    last dimension. After the permutation, the elements of a column are in different banks, even if
    the length of a row is a multiple of the number of banks.
    """

    chunk: int
    rows: int
    count: int  # A power of two: that many chunks in a row change places among themselves.

    def why_not(self, physical: Shape, halo: tuple[tuple[int, int], ...]) -> str:
        """Return why memory of this shape and halo cannot be swizzled in this way, as a clause; ""
        if it can."""
        if self.chunk < 1 or self.rows < 1 or self.count < 1 or self.count & (self.count - 1):
            return f"a swizzle of {self.count} chunks of {self.chunk} by {self.rows} rows"
        if len(physical) < 2 or any(map(any, halo)):
            return "a swizzle is for rows of at least two dimensions without a halo"
        if not isinstance(physical[-1], int) or physical[-1] % (self.chunk * self.count):
            return f"a row has {physical[-1]} elements, not {self.count} chunks of {self.chunk}"
        return ""


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The positions of a tensor's elements in memory: physical dimensions, outermost first, and a
    zero halo.

    `halo[a]` elements before the first and after the last of axis `a` hold zero, so that a
    convolution reads its padding without a branch. Only an axis that is one undivided dimension
    can have a halo.

    With `per_byte` elements in a byte, element number `n` in the order of the dimensions is in byte
    `n // per_byte`, starting with the lowest bits of a byte. If the last dimension has the extent
    `per_byte`, it selects the elements that share a byte: vectors along another axis then read
    neighbouring bytes and shift all of them by the same number of bits. Only constants have such
    layouts.

    A `swizzle` permutes the elements of each row of memory. Only workgroup buffers are swizzled.

        NCHW16c, padded by one:
            dims = (0), (1 div 16), (2), (3), (1 mod 16); halo = (0,0), (0,0), (1,1), (1,1)
        weights for 2 vectors of 16 output channels: W[oc, ic, kh, kw]
            dims = (0 div 32), (1), (2), (3), (0 mod 32)
        4-bit weights W[k, n] by panels of 32 columns, elements k and k + 16 of 32 rows in a byte:
            dims = (1 div 32), (0 div 32), (0 mod 16), (1 mod 32), (0 div 16 mod 2); per_byte = 2
    """

    dims: tuple[PhysicalDim, ...]
    halo: tuple[tuple[int, int], ...] = ()
    per_byte: int = 1
    swizzle: Swizzle | None = None

    def __post_init__(self) -> None:
        """Drop dimensions of extent one, such as the lanes of a machine without vectors."""
        if any(dim.mod == 1 for dim in self.dims):
            parts = tuple(dim for dim in self.dims if dim.mod != 1)
            object.__setattr__(self, "dims", parts)

    @classmethod
    def plain(cls, rank: int) -> Layout:
        """Return the dense row-major layout of a tensor with `rank` axes."""
        return cls(tuple(PhysicalDim(axis) for axis in range(rank)))

    @classmethod
    def ordered_by(cls, order: Iterable[int]) -> Layout:
        """Return the dense layout with the axes in an order, outermost first."""
        return cls(tuple(map(PhysicalDim, order)))

    @classmethod
    def channels_last(cls, rank: int) -> Layout:
        """Return the dense layout of an image [n, c, spatial...] with its channels innermost."""
        return cls.ordered_by((0, *range(2, rank), 1))

    @classmethod
    def blocked(
        cls, rank: int, axis: int, block: int, halo: tuple[tuple[int, int], ...] = ()
    ) -> Layout:
        """Return a layout with `axis` split into blocks of `block` elements. Two dimensions replace
        the axis: the number of the block takes the position of the axis, and the position within
        the block becomes the innermost dimension."""
        outer = (PhysicalDim(a, block if a == axis else 1) for a in range(rank))
        return cls((*outer, PhysicalDim(axis, 1, block)), halo)

    @property
    def is_plain(self) -> bool:
        return not any(map(any, self.halo)) and self == dataclasses.replace(
            Layout.plain(len(self.dims)), halo=self.halo
        )

    @property
    def is_permutation(self) -> bool:
        """Check whether the layout only changes the order of the axes: none of them is split, and
        it contains neither padding nor a halo nor a byte that elements share."""
        whole = all(dim.div == 1 and dim.mod == 0 for dim in self.dims)
        return whole and not any(map(any, self.halo)) and self.per_byte == 1 and not self.swizzle

    @property
    def by_element(self) -> Layout:
        """Return the layout with the same order of elements and at least one byte for each
        element."""
        return self if self.per_byte == 1 else dataclasses.replace(self, per_byte=1)

    def nbytes(self, shape: Shape, dtype: DType) -> Extent:
        """Return the size in bytes of a tensor in this layout, padding and halo included."""
        return ceildiv(product(self.physical_shape(shape)) * dtype.nbytes, self.per_byte)

    def join(self, ordered: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Pack an array of integers, ordered as the dimensions are, into bytes of `per_byte`
        elements each; return the array unchanged if elements do not share bytes."""
        import numpy as np

        if self.per_byte == 1:
            return ordered
        bits, codes = 8 // self.per_byte, ordered.view(np.uint8)
        if codes.shape[-1] % self.per_byte:
            flat = np.ascontiguousarray(codes).reshape(-1)
            codes = np.pad(flat, (0, -flat.size % self.per_byte))
        mask = np.uint8((1 << bits) - 1)
        joined = np.ascontiguousarray(codes[..., :: self.per_byte]) & mask
        for place in range(1, self.per_byte):
            joined |= (codes[..., place :: self.per_byte] & mask) << np.uint8(bits * place)
        return joined.reshape(-1)

    def halo_of(self, axis: int) -> tuple[int, int]:
        """Return the widths of the zero halo along `axis`: the numbers of elements before the
        axis's first element and after its last."""
        return self.halo[axis] if self.halo else (0, 0)

    @overload
    def physical_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]: ...
    @overload
    def physical_shape(self, shape: Shape) -> Shape: ...
    def physical_shape(self, shape: Shape) -> Shape:
        """Return the extent of each physical dimension for a tensor of logical shape `shape`,
        including the halo and the padding of partial blocks."""
        extents: list[Extent] = []
        for dim in self.dims:
            whole = shape[dim.axis] + sum(self.halo_of(dim.axis))
            extents.append(dim.mod or ceildiv(whole, dim.div))
        return tuple(extents)

    def pack(
        self, array: npt.NDArray[Any], out: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """Return the logical `array` in memory order: a dense array of `physical_shape`, which is
        `out` if that is passed.

        Halo and partial blocks are zero. A `mod` must be the `div` of the axis's next outer
        dimension, which holds for every layout that `transform_layout` accepts.
        """
        import numpy as np

        ordered = self.ordered(array)
        if out is None:
            return np.array(ordered, order="C")
        np.copyto(out, ordered)
        return out

    def ordered(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the array as `pack` does, but as a view of `array` if nothing needs padding."""
        import numpy as np

        parts = _parts(self, array.ndim)
        padding, split = [], []
        for axis, sizes in enumerate(parts):
            before, after = self.halo_of(axis)
            inner = math.prod(sizes[1:])
            whole = array.shape[axis] + before + after
            padding.append((before, after + -whole % inner))
            split.extend([-(-whole // inner), *sizes[1:]])
        if any(map(any, padding)):
            array = np.pad(array, padding)
        return array.reshape(split).transpose(_order(self, parts))

    def unpack(self, packed: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return the logical array of shape `shape` from its memory `packed`; the inverse of
        `pack`."""
        import numpy as np

        parts = _parts(self, len(shape))
        order = _order(self, parts)
        split = packed.reshape(self.physical_shape(shape)).transpose(np.argsort(order))
        merged, at = [], 0
        for sizes in parts:
            merged.append(math.prod(split.shape[at : at + len(sizes)]))
            at += len(sizes)
        whole = split.reshape(merged)
        window = tuple(
            slice(self.halo_of(a)[0], self.halo_of(a)[0] + shape[a]) for a in range(len(shape))
        )
        return np.array(whole[window], order="C")


def _parts(layout: Layout, rank: int) -> list[list[int]]:
    """Return, for each axis, the extents of the physical dimensions into which the layout splits
    it, outermost first. The extent of an outermost dimension is 0, because it depends on the shape
    of the tensor."""
    parts: list[list[int]] = []
    for axis in range(rank):
        dims = sorted((d for d in layout.dims if d.axis == axis), key=lambda d: -d.div)
        parts.append([d.mod for d in dims])
    return parts


def _order(layout: Layout, parts: list[list[int]]) -> list[int]:
    """Return the permutation that transposes the dimensions from the order of (axis, part) to the
    physical order."""
    starts = [sum(len(p) for p in parts[:axis]) for axis in range(len(parts))]
    order = []
    for dim in layout.dims:
        divs = sorted((d.div for d in layout.dims if d.axis == dim.axis), reverse=True)
        order.append(starts[dim.axis] + divs.index(dim.div))
    return order


@dataclasses.dataclass(frozen=True, slots=True)
class TensorType:
    """The element type, logical shape and layout of a tensor; `layout` None stands for plain
    row-major."""

    dtype: DType
    shape: Shape
    layout: Layout | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(dim, int) for dim in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as integers; raises ValueError if an extent is symbolic."""
        return tuple(map(number, self.shape))

    @property
    def size(self) -> Extent:
        """The number of logical elements, without padding and halo."""
        return product(self.shape)

    @property
    def nbytes(self) -> Extent:
        """The size in memory in bytes, padding and halo of the layout included."""
        shape = self.shape
        if self.layout is None:
            return product(shape) * self.dtype.nbytes
        return self.layout.nbytes(shape, self.dtype)
