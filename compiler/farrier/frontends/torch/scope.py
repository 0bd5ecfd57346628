"""The interface of rules to the builder: nodes, constants, sizes, and torch's type promotion."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from farrier.frontends.builder import Builder, Number, Numbers
from farrier.frontends.builder.rewrites.numbers import Operand
from farrier.frontends.torch.program import Call, TensorMeta
from farrier.ir.dim import Extent
from farrier.ir.types import DType, Shape
from farrier.ops import Mismatch, NotSupported

Scalar: TypeAlias = int | float | bool
LAST = np.iinfo(np.int64).max  # As torch writes an omitted end of a slice.


class Scope:
    """The call for which a rule adds nodes. Tensors are names of values of the builder; a size is
    an extent, or the name of an i64 scalar that is known only at run time."""

    def __init__(
        self,
        builder: Builder,
        call: Call,
        metas: Sequence[TensorMeta | None],
        notices: list[str],
    ) -> None:
        """Create the scope of a call. `metas` are the types of its results in the program. Rules
        add to `notices` facts about the compiled model that the user should know."""
        self.b, self.call, self._metas, self.notices = builder, call, metas, notices
        self.numbers = Numbers(builder)

    # Nodes ---------------------------------------------------------------------------------------

    def node(self, op: str, *operands: Operand, **attrs: Any) -> str:
        """Add a node and return the name of its output."""
        return self.nodes(op, operands, 1, **attrs)[0]

    def nodes(
        self, op: str, operands: Sequence[Operand], outputs: int, **attrs: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs and return their names."""
        return self.b.node(op, operands, attrs, origin=self.call.name, outputs=outputs)

    def scalar(self, value: Scalar, dtype: DType) -> str:
        """Add a constant of rank 0, and return its name."""
        if dtype.is_integer and isinstance(value, float):
            value = int(value)
        return self.b.constant(np.array(value).astype(dtype.numpy), dtype)

    def ints(self, values: Sequence[int]) -> str:
        """Add a constant vector of i64, and return its name."""
        return self.b.constant(np.array(values, np.int64).reshape(len(values)))

    def tensor(self, value: Any, dtype: DType) -> str:
        """Return an operand (a name, a number or a size) as a tensor of a dtype."""
        if isinstance(value, str):
            return self.cast(value, dtype)
        if isinstance(value, bool | int | float):
            return self.scalar(value, dtype)
        return self.cast(self.node("Reshape", [value], []), dtype)

    # Types ---------------------------------------------------------------------------------------

    @property
    def result(self) -> DType:
        """The element type of the first result."""
        return self.result_of(0)

    def result_of(self, position: int) -> DType:
        """Return the element type of a result. Raises NotSupported."""
        meta = self._metas[position] if position < len(self._metas) else None
        if meta is None or meta.dtype is None:
            name = "unknown" if meta is None else meta.type_name
            raise NotSupported(f"the element type {name}")
        return meta.dtype

    @property
    def sizes(self) -> tuple[Any, ...]:
        """The sizes of the first result in the program."""
        meta = self._metas[0] if self._metas else None
        return () if meta is None else meta.sizes

    def dtype(self, x: str) -> DType:
        """Return the element type of a tensor."""
        return self.b.dtype(x)

    def shape(self, x: str) -> Shape:
        """Return the shape of a tensor."""
        return self.b.shape(x)

    def rank(self, x: str) -> int:
        """Return the number of axes of a tensor."""
        return len(self.b.shape(x))

    def axis(self, x: str, dim: int, extra: int = 0) -> int:
        """Return the axis `dim` counted from the front. Negative numbers count from the end of a
        tensor that has `extra` more axes than `x`, such as the result of an unsqueeze."""
        rank = max(self.rank(x) + extra, 1)
        if not -rank <= dim < rank:
            raise Mismatch(f"the dimension {dim} of a tensor of {rank} dimensions")
        return dim % rank

    def axes(self, x: str, dims: int | Sequence[int] | None) -> list[int]:
        """Return axes of `x`; all of them for None or an empty list."""
        dims = [dims] if isinstance(dims, int) else dims
        return [self.axis(x, d) for d in dims] if dims else list(range(self.rank(x)))

    def cast(self, x: str, dtype: DType | None) -> str:
        """Return the tensor converted to a dtype; unchanged if it has that dtype or `dtype` is
        None."""
        if dtype is None or self.dtype(x) is dtype:
            return x
        return self.node("Cast", x, to=dtype.value)

    def promoted(self, *operands: Any) -> DType:
        """Return the dtype to which torch promotes tensors and Python numbers. Tensors of rank 0
        and numbers affect it only if they are of a higher category (bool, integer, float)."""
        best: DType | None = None
        for level in (2, 1):
            for x in operands:
                if isinstance(x, str) and (2 if self.rank(x) else 1) == level:
                    own = self.dtype(x)
                    if best is None:
                        best = own
                    elif level == 2 or _category(own) > _category(best):
                        best = _wider(best, own)
        numbers = [x for x in operands if not isinstance(x, str) and x is not None]
        needed = max((_number_category(x) for x in numbers), default=0)
        if best is None or needed > _category(best):
            return (DType.BOOL, DType.I64, DType.F32)[needed]
        return best

    def promote(self, *operands: Any) -> tuple[str, ...]:
        """Return the operands as tensors of the dtype to which torch promotes them."""
        dtype = self.promoted(*operands)
        return tuple(self.tensor(x, dtype) for x in operands)

    def floating(self, x: str) -> str:
        """Return a float tensor unchanged, and any other tensor converted to f32."""
        return x if self.dtype(x).is_float else self.cast(x, DType.F32)

    # Shapes --------------------------------------------------------------------------------------

    def reshape(self, x: str, sizes: Sequence[Number]) -> str:
        """Return the tensor reshaped to `sizes`; -1 is computed from the number of elements."""
        return self.node("Reshape", x, self.vector(sizes), allowzero=1)

    def vector(self, sizes: Sequence[Number]) -> Operand:
        """Return sizes, each an extent or a name, as an operand."""
        return list(sizes) if sizes else self.ints([])

    def transpose(self, x: str, permutation: Sequence[int]) -> str:
        """Return the tensor with its axes permuted."""
        if list(permutation) == sorted(permutation):
            return x
        return self.node("Transpose", x, perm=tuple(permutation))

    def swapped(self, x: str, first: int, second: int) -> str:
        """Return the tensor with two axes swapped."""
        order = list(range(self.rank(x)))
        first, second = self.axis(x, first), self.axis(x, second)
        order[first], order[second] = second, first
        return self.transpose(x, order)

    def slice(self, x: str, axis: int, start: Number, end: Number, step: Number = 1) -> str:
        """Return the elements from `start` to `end` in steps of `step` along an axis."""
        return self.node("Slice", x, [start], [end], [axis], [step])

    def expand(self, x: str, shape: Sequence[Number]) -> str:
        """Return the tensor repeated along its axes of extent 1."""
        return self.node("Expand", x, self.vector(shape))

    def concat(self, parts: Sequence[str], axis: int) -> str:
        """Return tensors concatenated along an axis."""
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=axis)

    def unsqueeze(self, x: str, *axes: int) -> str:
        """Return the tensor with axes of extent 1 inserted."""
        return self.node("Unsqueeze", x, self.ints(axes))

    def squeeze(self, x: str, *axes: int) -> str:
        """Return the tensor without these axes, which have extent 1."""
        return self.node("Squeeze", x, self.ints(axes))

    def full(self, shape: Sequence[Number], value: Scalar | str, dtype: DType) -> str:
        """Return a tensor filled with a value."""
        if isinstance(value, str):
            return self.expand(self.cast(value, dtype), shape)
        if dtype is DType.BOOL:
            value = bool(value)
        elif not math.isfinite(value) or dtype.is_integer:
            value = float(value) if dtype.is_float else int(value)
        return self.node("ConstantOfShape", self.vector(shape), dtype=dtype.value, value=value)

    def truth(self, x: str) -> str:
        """Return the tensor converted to bool."""
        return self.cast(x, DType.BOOL)

    def place(self, x: str, axis: int, index: int) -> Extent:
        """Return an index along an axis, counted from the front."""
        return index if index >= 0 else self.shape(x)[axis] + index

    @contextlib.contextmanager
    def batched(self, x: str, rank: int) -> Iterator[Batched]:
        """Return a context for an operator that requires a batch axis before the channels and the
        `rank` spatial axes.

        `batch.x` is x, with a batch axis of extent 1 added if x lacks one. The caller sets
        `batch.y` to the operator's result. At the end of the context, `batch.result` is y without
        the added axis.
        """
        lacks = self.rank(x) == rank + 1
        batch = Batched(self.unsqueeze(x, 0) if lacks else x)
        yield batch
        batch.result = self.squeeze(batch.y, 0) if lacks else batch.y

    def is_size(self, x: str, axis: int, size: Extent) -> bool:
        """Check whether an axis is certain to have a size."""
        return self.shape(x)[axis] == size


@dataclasses.dataclass(slots=True)
class Batched:
    """The tensors of a context of `Scope.batched`: the input `x` and output `y` of the operator,
    and the final `result`."""

    x: str
    y: str = ""
    result: str = ""


def each(values: Any, rank: int) -> tuple[Any, ...]:
    """Return a tuple of `rank` values, one for each axis. A single value, or a list of one, applies
    to all axes: `3, 2 → (3, 3)`."""
    listed = list(values) if isinstance(values, Sequence) else [values]
    return tuple(listed * rank if len(listed) == 1 else listed)


def _category(dtype: DType) -> int:
    return 0 if dtype is DType.BOOL else 2 if dtype.is_float else 1


def _number_category(value: Any) -> int:
    return 0 if isinstance(value, bool) else 2 if isinstance(value, float) else 1


def _wider(left: DType, right: DType) -> DType:
    """Return the dtype to which torch promotes two dtypes."""
    if left is right:
        return left
    if _category(left) != _category(right):
        return max(left, right, key=_category)
    if _category(left) == 2:
        if left.bits == right.bits:
            return DType.F32
        return max(left, right, key=lambda dtype: dtype.bits)
    if left.is_signed == right.is_signed:
        return max(left, right, key=lambda dtype: dtype.bits)
    unsigned, signed = sorted((left, right), key=lambda dtype: dtype.is_signed)
    if unsigned.bits < signed.bits:
        return signed
    return {8: DType.I16, 16: DType.I32}.get(unsigned.bits, DType.I64)
