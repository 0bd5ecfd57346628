"""A model that grows by a node at a time, and the tensors it has so far."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17)
CHANNELS = (1, 3, 8, 15, 16, 17, 24, 33)
MAX_ELEMENTS = 20_000
OPSETS = (18, 20, 21, 22)
EMPTY_AXES = 0.2  # The share of axes without elements, in models that have some.

FLOAT, DOUBLE, HALF = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16
INT32, INT64, BOOL = TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
INT8, INT16, UINT8, UINT16 = (
    TensorProto.INT8,
    TensorProto.INT16,
    TensorProto.UINT8,
    TensorProto.UINT16,
)
UINT32, UINT64 = TensorProto.UINT32, TensorProto.UINT64
FLOATS = (FLOAT, FLOAT, FLOAT, DOUBLE)
ALL_FLOATS = (*FLOATS, HALF)
WHOLE = (INT32, INT64, INT64, INT8, INT16, UINT8, UINT16, UINT32, UINT64)
NUMBERS = (FLOAT, FLOAT, DOUBLE, INT32, INT64)
ANY = (*FLOATS, *FLOATS, HALF, *WHOLE, BOOL)

# The greatest sum of eighths that a type holds exactly.
_EXACT = {HALF: 2.0**8, FLOAT: 2.0**20, DOUBLE: 2.0**49}


T = TypeVar("T")


class Refused(Exception):
    """A node that ONNX's shape inference does not admit, or whose result is too large."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A value: `exact` if all engines compute the same bits, `magnitude` an estimate of its
    greatest element."""

    name: str
    dtype: int
    shape: tuple[int, ...]
    exact: bool = True
    magnitude: float = 2.0

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in _EXACT


@dataclasses.dataclass
class Call:
    """A node to be: inputs are tensors, arrays (which become initializers) or None. `shapes` are
    those of the outputs where ONNX cannot infer them, `exact` says that exact operands have an
    exact result, and `magnitude` is that of the result, by default the operands'."""

    op: str
    inputs: Sequence[Tensor | np.ndarray[Any, Any] | None]
    outputs: int = 1
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)
    exact: bool = False
    magnitude: float | None = None
    shapes: Sequence[Sequence[int]] | None = None


@functools.cache
def types_of(op: str, opset: int) -> frozenset[int]:
    """The element types that an operator takes as its first operand; raises Refused."""
    if not onnx.defs.has(op, max_inclusive_version=opset):
        raise Refused(f"{op} came after opset {opset}")
    schema = onnx.defs.get_schema(op, opset)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    names = allowed.get(schema.inputs[0].type_str, [schema.inputs[0].type_str])
    return frozenset(dtype for dtype in ANY if f"tensor({_type_name(dtype)})" in names)


def _type_name(dtype: int) -> str:
    return str(TensorProto.DataType.Name(dtype)).lower()


class Draft:
    """A model that grows by one node at a time; `empty` is the chance that it has axes without
    elements."""

    def __init__(self, rng: random.Random, empty: float = 0.0) -> None:
        self.rng = rng
        self.opset = rng.choice(OPSETS)
        self.arrays = np.random.default_rng(rng.getrandbits(32))
        self.has_empty = rng.random() < empty
        self.inputs: list[Tensor] = []
        self.values: list[Tensor] = []
        self.constants: list[onnx.TensorProto] = []
        self.nodes: list[onnx.NodeProto] = []

    # Drawing --------------------------------------------------------------------------------------

    def choice(self, options: Iterable[T]) -> T:
        """One of some options; raises Refused where there is none."""
        listed = list(options)
        if not listed:
            raise Refused("nothing to choose from")
        return self.rng.choice(listed)

    def between(self, low: int, high: int) -> int:
        """A number between two, both included; raises Refused where there is none."""
        if low > high:
            raise Refused(f"no number from {low} to {high}")
        return self.rng.randint(low, high)

    def new_input(self, shape: Sequence[int], dtype: int = FLOAT) -> Tensor:
        magnitude = 2.0 if dtype in _EXACT or dtype == BOOL else 100.0
        tensor = Tensor(f"x{len(self.inputs)}", dtype, tuple(shape), magnitude=magnitude)
        self.inputs.append(tensor)
        self.values.append(tensor)
        return tensor

    def array(self, shape: Sequence[int], dtype: int = FLOAT) -> np.ndarray[Any, Any]:
        return drawn(self.arrays, shape, dtype)

    def pick(
        self,
        dtypes: Sequence[int] = FLOATS,
        rank: int | None = None,
        least: int = 0,
        *,
        op: str | None = None,
        exact: bool = False,
        most: float = 1e3,
    ) -> Tensor:
        """A value of one of `dtypes` that `op` takes, late ones first, of `most` magnitude; a new
        input where none fits."""
        if op is not None:
            dtypes = [dtype for dtype in dtypes if dtype in types_of(op, self.opset)]
        fitting = [
            v
            for v in self.values
            if v.dtype in dtypes
            and (v.rank == rank if rank is not None else v.rank >= least)
            and (v.exact or not exact)
            and v.magnitude <= (most if v.is_float else np.inf)
        ]
        if fitting and self.rng.random() < 0.9:
            return fitting[-1] if self.rng.random() < 0.6 else self.choice(fitting)
        return self.new_input(self.shape(rank, least), self.choice(list(dtypes)))

    def extent(self, choices: Sequence[int] = SIZES) -> int:
        if self.has_empty and self.rng.random() < EMPTY_AXES:
            return 0
        return self.choice(choices)

    def shape(self, rank: int | None = None, least: int = 0) -> tuple[int, ...]:
        if rank is None:
            rank = self.choice([r for r in (0, 1, 2, 3, 4, 4, 5) if r >= least])
        if rank == 4 and self.rng.random() < 0.7:
            batch, channels = self.extent((1, 1, 2, 3)), self.extent(CHANNELS)
            return (batch, channels, self.extent(), self.extent())
        small = SIZES if rank < 4 else SIZES[:6]
        return tuple(self.extent(small) for _ in range(rank))

    def other(self, shape: Sequence[int], dtype: int) -> Tensor | np.ndarray[Any, Any]:
        """Something of this shape and dtype: a value, a constant, or a new input."""
        same = [
            v
            for v in self.values
            if v.shape == tuple(shape) and v.dtype == dtype and v.magnitude <= 1e3
        ]
        draw = self.rng.random()
        if same and draw < 0.5:
            return self.choice(same)
        return self.array(shape, dtype) if draw < 0.8 else self.new_input(shape, dtype)

    def broadcast_to(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts with `shape`."""
        kept = list(shape)[self.between(0, len(shape)) if self.rng.random() < 0.4 else 0 :]
        return tuple(1 if self.rng.random() < 0.25 else extent for extent in kept)

    def axis(self, tensor: Tensor) -> int:
        return self.between(-tensor.rank, tensor.rank - 1)

    def axes(self, tensor: Tensor) -> list[int]:
        return sorted(self.rng.sample(range(tensor.rank), self.between(1, tensor.rank)))

    # Growing --------------------------------------------------------------------------------------

    def add(self, call: Call) -> list[Tensor]:
        """Append a node and return its results; raise Refused."""
        types_of(call.op, self.opset)
        names, constants, operands = [], [], []
        for i, operand in enumerate(call.inputs):
            if operand is None:
                names.append("")
            elif isinstance(operand, Tensor):
                names.append(operand.name)
                operands.append(operand)
            else:
                name = f"c{len(self.constants) + len(constants)}_{i}"
                constants.append(numpy_helper.from_array(np.asarray(operand), name))
                names.append(name)
        names_out = [f"v{len(self.values) + i}" for i in range(call.outputs)]
        node = helper.make_node(call.op, names, names_out, **call.attrs)
        results = self._results(node, operands, constants, call)
        self.constants += constants
        self.nodes.append(node)
        self.values += results
        return results

    def _results(
        self,
        node: onnx.NodeProto,
        operands: Sequence[Tensor],
        constants: Sequence[onnx.TensorProto],
        call: Call,
    ) -> list[Tensor]:
        types = {t.name: helper.make_tensor_value_info(t.name, t.dtype, t.shape) for t in operands}
        infos = [onnx.ValueInfoProto(name=name) for name in node.output]
        graph = helper.make_graph([node], "one", list(types.values()), infos, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        try:
            inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError as error:
            raise Refused(str(error)) from None
        results = []
        for position, output in enumerate(inferred.graph.output):
            kind = output.type.tensor_type
            dims = kind.shape.dim
            if call.shapes is not None:
                shape = tuple(call.shapes[position])
            elif kind.HasField("shape") and all(d.HasField("dim_value") for d in dims):
                shape = tuple(d.dim_value for d in dims)
            else:
                raise Refused("an unknown shape")
            size = int(np.prod(shape, dtype=np.int64))
            if size > MAX_ELEMENTS or min(shape, default=1) < (not self.has_empty):
                raise Refused(f"{size} elements")
            results.append(self._result(output.name, kind.elem_type, shape, operands, call))
        return results

    def _result(
        self, name: str, dtype: int, shape: tuple[int, ...], operands: Sequence[Tensor], call: Call
    ) -> Tensor:
        magnitude = call.magnitude
        if magnitude is None:
            magnitude = max((t.magnitude for t in operands), default=2.0)
        exact = call.exact and all(t.exact for t in operands)
        exact = exact and magnitude <= _EXACT.get(dtype, np.inf)
        return Tensor(name, dtype, shape, exact, magnitude)

    # The model ------------------------------------------------------------------------------------

    def model(self) -> bytes:
        outputs = self._outputs()
        infos = [helper.make_tensor_value_info(t.name, t.dtype, t.shape) for t in self.inputs]
        results = [helper.make_tensor_value_info(t.name, t.dtype, t.shape) for t in outputs]
        graph = helper.make_graph(self.nodes, "random", infos, results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 9
        return bytes(model.SerializeToString())

    def _outputs(self) -> list[Tensor]:
        """Return the unread values, some intermediate values, and at times an input."""
        read = {name for node in self.nodes for name in node.input}
        computed = [v for v in self.values if v not in self.inputs]
        outputs = [v for v in computed if v.name not in read]
        outputs += [v for v in computed if v.name in read and self.rng.random() < 0.15]
        outputs += [v for v in self.inputs if self.rng.random() < 0.05]
        for tensor in self.constants:
            if self.rng.random() < 0.05:
                outputs.append(Tensor(tensor.name, tensor.data_type, tuple(tensor.dims)))
        return outputs or self.values[:1]


def drawn(rng: np.random.Generator, shape: Sequence[int], dtype: int) -> np.ndarray[Any, Any]:
    """Return an array of eighths between -2 and 2, or of integers up to 100: sums and products of a
    few are exact, so engines agree on comparisons and rounding."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    array: np.ndarray[Any, Any]
    if dtype in _EXACT:
        array = rng.integers(-16, 17, tuple(shape)) / 8
    elif dtype == BOOL:
        array = rng.integers(0, 2, tuple(shape))
    else:
        low = -100 if np.dtype(kind).kind == "i" else 0
        array = rng.integers(low, 101, tuple(shape))
    return np.asarray(array).astype(kind)  # Without axes, arithmetic yields a scalar.
