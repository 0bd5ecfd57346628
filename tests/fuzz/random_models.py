"""Small random ONNX models of every operator family, with shapes that no tile divides."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17)
CHANNELS = (1, 3, 8, 15, 16, 17, 24, 33)
MAX_ELEMENTS = 20_000
OPSETS = (18, 20, 21, 22)

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
INT32, INT64, BOOL = TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
FLOATS = (FLOAT, DOUBLE)
NUMBERS = (FLOAT, DOUBLE, INT32, INT64)

# Operators that turn a rounding error into a whole step, and amplify it beyond any tolerance.
STEPS = frozenset(
    [
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "ArgMax",
        "ArgMin",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
        "Equal",
        "Cast",
        "Mod",
        "Hardmax",
        "IsInf",
        "IsNaN",
        "Shrink",
        "ThresholdedRelu",
        "Not",
        "OneHot",
        "Resize",
    ]
)


@dataclasses.dataclass(frozen=True)
class Tensor:
    name: str
    dtype: int
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclasses.dataclass
class Call:
    """A node to be: inputs are tensors, arrays (which become initializers) or None."""

    op: str
    inputs: Sequence[Tensor | np.ndarray[Any, Any] | None]
    outputs: int = 1
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)


class Draft:
    """A model that grows by one node at a time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.opset = rng.choice(OPSETS)
        self.arrays = np.random.default_rng(rng.getrandbits(32))
        self.inputs: list[Tensor] = []
        self.values: list[Tensor] = []
        self.constants: list[onnx.TensorProto] = []
        self.nodes: list[onnx.NodeProto] = []

    def new_input(self, shape: Sequence[int], dtype: int = FLOAT) -> Tensor:
        tensor = Tensor(f"x{len(self.inputs)}", dtype, tuple(shape))
        self.inputs.append(tensor)
        self.values.append(tensor)
        return tensor

    def array(self, shape: Sequence[int], dtype: int = FLOAT) -> np.ndarray[Any, Any]:
        kind = helper.tensor_dtype_to_np_dtype(dtype)
        if dtype in FLOATS:
            return self.arrays.standard_normal(tuple(shape)).astype(kind)
        return self.arrays.integers(0, 2 if dtype == BOOL else 4, tuple(shape)).astype(kind)

    def pick(
        self, dtypes: Sequence[int] = FLOATS, rank: int | None = None, least: int = 0
    ) -> Tensor:
        """A value of one of `dtypes`, late ones first; a new input where none fits."""
        fitting = [
            v
            for v in self.values
            if v.dtype in dtypes and (v.rank == rank if rank is not None else v.rank >= least)
        ]
        if fitting and self.rng.random() < 0.9:
            return fitting[-1] if self.rng.random() < 0.6 else self.rng.choice(fitting)
        return self.new_input(self.shape(rank, least), self.rng.choice(list(dtypes)))

    def shape(self, rank: int | None = None, least: int = 0) -> tuple[int, ...]:
        rank = (
            self.rng.choice([r for r in (0, 1, 2, 3, 4, 4, 5) if r >= least])
            if rank is None
            else rank
        )
        if rank == 4 and self.rng.random() < 0.7:
            side = (self.rng.choice(SIZES), self.rng.choice(SIZES))
            return (self.rng.choice((1, 1, 2, 3)), self.rng.choice(CHANNELS), *side)
        small = SIZES if rank < 4 else SIZES[:6]
        return tuple(self.rng.choice(small) for _ in range(rank))

    def other(self, shape: Sequence[int], dtype: int) -> Tensor | np.ndarray[Any, Any]:
        """Something of this shape and dtype: a value, a constant, or a new input."""
        same = [v for v in self.values if v.shape == tuple(shape) and v.dtype == dtype]
        draw = self.rng.random()
        if same and draw < 0.5:
            return self.rng.choice(same)
        return self.array(shape, dtype) if draw < 0.8 else self.new_input(shape, dtype)

    def broadcast_to(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts with `shape`."""
        kept = list(shape)[self.rng.randint(0, len(shape)) if self.rng.random() < 0.4 else 0 :]
        return tuple(1 if self.rng.random() < 0.25 else extent for extent in kept)

    def axis(self, tensor: Tensor) -> int:
        return self.rng.randint(-tensor.rank, tensor.rank - 1)

    def axes(self, tensor: Tensor) -> list[int]:
        return sorted(self.rng.sample(range(tensor.rank), self.rng.randint(1, tensor.rank)))

    def add(self, call: Call) -> bool:
        """Appends the node where its output shapes are known and small; says whether it did."""
        if not onnx.defs.has(call.op, max_inclusive_version=self.opset):
            return False
        names, constants, types = [], [], []
        for i, given in enumerate(call.inputs):
            if given is None:
                names.append("")
            elif isinstance(given, Tensor):
                names.append(given.name)
                types.append(helper.make_tensor_value_info(given.name, given.dtype, given.shape))
            else:
                name = f"c{len(self.constants) + len(constants)}_{i}"
                constants.append(numpy_helper.from_array(np.asarray(given), name))
                names.append(name)
        made = [f"v{len(self.values) + i}" for i in range(call.outputs)]
        node = helper.make_node(call.op, names, made, **call.attrs)
        infos = [onnx.ValueInfoProto(name=name) for name in made]
        unique = list({t.name: t for t in types}.values())
        graph = helper.make_graph([node], "one", unique, infos, constants)
        one = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        try:
            inferred = onnx.shape_inference.infer_shapes(one, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError:
            return False
        results = []
        for output in inferred.graph.output:
            kind = output.type.tensor_type
            if not kind.HasField("shape") or not all(
                d.HasField("dim_value") for d in kind.shape.dim
            ):
                return False
            shape = tuple(d.dim_value for d in kind.shape.dim)
            if not 0 < np.prod(shape, dtype=np.int64) <= MAX_ELEMENTS:
                return False
            results.append(Tensor(output.name, kind.elem_type, shape))
        self.constants += constants
        self.nodes.append(node)
        self.values += results
        return True

    def model(self) -> bytes:
        outputs = self._outputs()
        infos = [helper.make_tensor_value_info(t.name, t.dtype, t.shape) for t in self.inputs]
        results = [helper.make_tensor_value_info(t.name, t.dtype, t.shape) for t in outputs]
        graph = helper.make_graph(self.nodes, "random", infos, results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 9
        return bytes(model.SerializeToString())

    def _outputs(self) -> list[Tensor]:
        """What nothing reads, some intermediate values, and at times an input."""
        read = {name for node in self.nodes for name in node.input}
        made = [v for v in self.values if v not in self.inputs]
        outputs = [v for v in made if v.name not in read]
        outputs += [v for v in made if v.name in read and self.rng.random() < 0.15]
        outputs += [v for v in self.inputs if self.rng.random() < 0.05]
        for tensor in self.constants:
            if self.rng.random() < 0.05:
                outputs.append(Tensor(tensor.name, tensor.data_type, tuple(tensor.dims)))
        return outputs or self.values[:1]


Maker: TypeAlias = Callable[[Draft], Call]
_UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Celu",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Identity",
    "Dropout",
]
_ONLY_F32 = frozenset(
    [
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Tan",
        "Sinh",
        "Cosh",
        "Mish",
        "HardSwish",
        "Celu",
    ]
)
_BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu", "Mod"]
_REDUCE = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
]


def _unary(d: Draft) -> Call:
    op = d.rng.choice(_UNARY)
    attrs = {"fmod": 1} if op == "Mod" else {}
    return Call(op, [d.pick((FLOAT,) if op in _ONLY_F32 else FLOATS)], attrs=attrs)


def _whole(d: Draft) -> Call:
    return Call(d.rng.choice(["Abs", "Neg", "Sign", "Identity"]), [d.pick((INT32, INT64))])


def _binary(d: Draft) -> Call:
    op = d.rng.choice(_BINARY)
    a = d.pick(FLOATS if op in ("PRelu", "Pow", "Div", "Mod") else NUMBERS)
    b: Any = d.other(d.broadcast_to(a.shape) if d.rng.random() < 0.6 else a.shape, a.dtype)
    swapped = d.rng.random() < 0.3 and op != "PRelu"
    return Call(op, [b, a] if swapped else [a, b], attrs={"fmod": 1} if op == "Mod" else {})


def _many(d: Draft) -> Call:
    a = d.pick((FLOAT,))
    others = [d.other(d.broadcast_to(a.shape), FLOAT) for _ in range(d.rng.randint(0, 3))]
    return Call(d.rng.choice(["Sum", "Mean", "Max", "Min"]), [a, *others])


def _compare(d: Draft) -> Call:
    a = d.pick(NUMBERS)
    op = d.rng.choice(["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"])
    return Call(op, [a, d.other(d.broadcast_to(a.shape), a.dtype)])


def _logic(d: Draft) -> Call:
    a = d.pick((BOOL,))
    if d.rng.random() < 0.3:
        return Call("Not", [a])
    return Call(d.rng.choice(["And", "Or", "Xor"]), [a, d.other(d.broadcast_to(a.shape), BOOL)])


def _where(d: Draft) -> Call:
    a = d.pick((FLOAT, INT64))
    return Call(
        "Where",
        [d.other(d.broadcast_to(a.shape), BOOL), a, d.other(d.broadcast_to(a.shape), a.dtype)],
    )


def _cast(d: Draft) -> Call:
    return Call("Cast", [d.pick((*NUMBERS, BOOL))], attrs={"to": d.rng.choice((*NUMBERS, BOOL))})


def _clip(d: Draft) -> Call:
    a = d.pick(FLOATS)
    kind = helper.tensor_dtype_to_np_dtype(a.dtype)
    low = np.array(-0.5, kind) if d.rng.random() < 0.7 else None
    return Call("Clip", [a, low, np.array(1.5, kind)])


def _windows(d: Draft, x: Tensor, *, half: bool = False) -> dict[str, Any]:
    """Kernel, strides, dilations and pads that leave an output."""
    kernel, strides, dilations, begin, end = [], [], [], [], []
    for extent in x.shape[2:]:
        k = d.rng.choice((1, 1, 2, 3, 3, 3, 4, 5, 7))
        dil = d.rng.choice((1, 1, 1, 2, 3))
        most = k - 1 if half else 3
        pads = [d.rng.randint(0, min(most, 3)) for _ in range(2)]
        if (k - 1) * dil + 1 > extent + sum(pads):
            k, dil = d.rng.randint(1, min(extent, 3)), 1
            pads = [min(p, k - 1) for p in pads]
        kernel.append(k)
        dilations.append(dil)
        strides.append(d.rng.choice((1, 1, 1, 2, 2, 3)))
        begin.append(pads[0])
        end.append(pads[1])
    attrs = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    if d.rng.random() < 0.2:
        return {**attrs, "dilations": [1] * len(kernel), "auto_pad": "SAME_UPPER"}
    return {**attrs, "pads": begin + end}


def _conv(d: Draft) -> Call:
    x = d.pick((FLOAT,), rank=4 if d.rng.random() < 0.85 else d.rng.choice((3, 5)))
    attrs = _windows(d, x)
    channels = x.shape[1]
    groups = d.rng.choice([g for g in (1, 1, 1, 2, 3, channels) if channels % g == 0])
    per = d.rng.choice((1, 1, 2, 3)) if groups > 1 else d.rng.choice(CHANNELS)
    weights = d.array((groups * per, channels // groups, *attrs["kernel_shape"]))
    bias = [d.array((groups * per,))] if d.rng.random() < 0.6 else []
    return Call("Conv", [x, weights, *bias], attrs={**attrs, "group": groups})


def _conv_transpose(d: Draft) -> Call:
    x = d.pick((FLOAT,), rank=4)
    channels = x.shape[1]
    groups = d.rng.choice([g for g in (1, 1, 2, 3, channels) if channels % g == 0])
    kernel = [d.rng.randint(1, 4), d.rng.randint(1, 4)]
    strides = [d.rng.randint(1, 3), d.rng.randint(1, 3)]
    pads = [d.rng.randint(0, k - 1) for k in (*kernel, *kernel)]
    attrs = {"kernel_shape": kernel, "strides": strides, "group": groups, "pads": pads}
    weights = d.array((channels, d.rng.randint(1, 5), *kernel))
    return Call("ConvTranspose", [x, weights], attrs=attrs)


def _pool(d: Draft) -> Call:
    x = d.pick((FLOAT,), rank=4 if d.rng.random() < 0.85 else d.rng.choice((3, 5)))
    op = d.rng.choice(("MaxPool", "AveragePool", "LpPool"))
    attrs = {**_windows(d, x, half=True), "ceil_mode": d.rng.randint(0, 1)}
    # A last window that starts in the padding is dropped, but not by onnx's shape inference.
    ends = attrs.get("pads", [3] * len(x.shape[2:]))[-len(x.shape[2:]) :]
    steps = zip(ends, attrs["strides"], attrs["kernel_shape"], strict=True)
    if any(end + stride > kernel for end, stride, kernel in steps):
        attrs["ceil_mode"] = 0
    if op != "MaxPool" or attrs.get("auto_pad"):
        attrs["dilations"] = [1] * (x.rank - 2)
    if op == "LpPool":
        attrs["p"] = d.rng.randint(1, 3)
    if op == "AveragePool":
        attrs["count_include_pad"] = d.rng.randint(0, 1)
        if d.opset < 19:
            del attrs["dilations"]
    return Call(op, [x], attrs=attrs)


def _global_pool(d: Draft) -> Call:
    op = d.rng.choice(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    return Call(op, [d.pick((FLOAT,), least=3)])


def _matmul(d: Draft) -> Call:
    a = d.pick((FLOAT, FLOAT, DOUBLE), least=1)
    k, n = a.shape[-1], d.rng.choice((1, 3, 8, 16, 17, 33))
    form = d.rng.random()
    if form < 0.15:
        return Call("MatMul", [a, d.other((k,), a.dtype)])
    if form < 0.4 and a.rank > 2:
        batch = d.broadcast_to(a.shape[:-2])
        return Call("MatMul", [a, d.other((*batch, k, n), a.dtype)])
    if form < 0.5 and a.rank >= 2:
        return Call("MatMul", [d.other((a.shape[-2],), a.dtype), a])
    return Call("MatMul", [a, d.other((k, n), a.dtype)])


def _gemm(d: Draft) -> Call:
    a = d.pick((FLOAT,), rank=2)
    trans_a, trans_b, n = d.rng.randint(0, 1), d.rng.randint(0, 1), d.rng.choice((1, 5, 16, 17))
    k, m = a.shape if trans_a else a.shape[::-1]
    c = [d.other(d.broadcast_to((m, n)), FLOAT)] if d.rng.random() < 0.7 else []
    b = d.other((n, k) if trans_b else (k, n), FLOAT)
    attrs = {"transA": trans_a, "transB": trans_b, "alpha": d.rng.choice((1.0, 0.5)), "beta": 2.0}
    return Call("Gemm", [a, b, *c], attrs=attrs)


def _einsum(d: Draft) -> Call:
    equation, shapes = d.rng.choice(
        (
            ("bij,bjk->bik", ((2, 5, 7), (2, 7, 9))),
            ("bhid,bhjd->bhij", ((1, 3, 5, 8), (1, 3, 7, 8))),
            ("ij->ji", ((5, 9),)),
            ("ij,j->i", ((7, 5), (5,))),
            ("ijk->k", ((3, 5, 17),)),
            ("i,j->ij", ((5,), (17,))),
            ("bijd,bjkd->bikd", ((1, 3, 4, 5), (1, 4, 2, 5))),
        )
    )
    return Call("Einsum", [d.other(s, FLOAT) for s in shapes], attrs={"equation": equation})


def _softmax(d: Draft) -> Call:
    x = d.pick((FLOAT,), least=1)
    return Call(
        d.rng.choice(("Softmax", "Softmax", "LogSoftmax", "Hardmax")),
        [x],
        attrs={"axis": d.axis(x)},
    )


def _reduce(d: Draft) -> Call:
    x = d.pick((FLOAT, FLOAT, DOUBLE), least=1)
    axes = np.array(d.axes(x), np.int64)
    attrs = {"keepdims": d.rng.randint(0, 1)}
    return Call(d.rng.choice(_REDUCE), [x, axes] if d.rng.random() < 0.9 else [x], attrs=attrs)


def _reduce_whole(d: Draft) -> Call:
    x = d.pick((INT32, INT64), least=1)
    op = d.rng.choice(("ReduceSum", "ReduceMax", "ReduceMin"))
    return Call(op, [x, np.array(d.axes(x), np.int64)], attrs={"keepdims": d.rng.randint(0, 1)})


def _arg(d: Draft) -> Call:
    x = d.pick((FLOAT,), least=1)
    attrs = {
        "axis": d.axis(x),
        "keepdims": d.rng.randint(0, 1),
        "select_last_index": d.rng.randint(0, 1),
    }
    return Call(d.rng.choice(("ArgMax", "ArgMin")), [x], attrs=attrs)


def _norm(d: Draft) -> Call:
    op = d.rng.choice(
        (
            "LayerNormalization",
            "BatchNormalization",
            "BatchNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "LpNormalization",
            "MeanVarianceNormalization",
            "LRN",
        )
    )
    if op == "LayerNormalization":
        x = d.pick((FLOAT,), least=1)
        axis = d.axis(x)
        shape = x.shape[axis:]
        bias = [d.array(shape)] if d.rng.random() < 0.7 else []
        return Call(op, [x, d.array(shape), *bias], attrs={"axis": axis})
    if op == "LpNormalization":
        x = d.pick((FLOAT,), least=1)
        return Call(op, [x], attrs={"axis": d.axis(x), "p": d.rng.choice((1, 2))})
    x = d.pick((FLOAT,), rank=4)
    channels = (x.shape[1],)
    if op == "BatchNormalization":
        mean, variance = d.array(channels), np.abs(d.array(channels)) + np.float32(0.5)
        return Call(op, [x, d.array(channels), d.array(channels), mean, variance])
    if op == "InstanceNormalization":
        return Call(op, [x, d.array(channels), d.array(channels)])
    if op == "GroupNormalization":
        groups = d.rng.choice([g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0])
        extent = (groups,) if d.opset < 21 else channels
        return Call(op, [x, d.array(extent), d.array(extent)], attrs={"num_groups": groups})
    if op == "LRN":
        return Call(op, [x], attrs={"size": d.rng.choice((1, 3, 5))})
    return Call(op, [x])


def _transpose(d: Draft) -> Call:
    x = d.pick((*NUMBERS, BOOL), least=1)
    perm = list(range(x.rank))
    d.rng.shuffle(perm)
    return Call("Transpose", [x], attrs={"perm": perm})


def _reshape(d: Draft) -> Call:
    x = d.pick((*NUMBERS, BOOL))
    kind = d.rng.choice(("Reshape", "Flatten", "Unsqueeze", "Squeeze", "merge"))
    if kind == "Flatten" and x.rank:
        return Call("Flatten", [x], attrs={"axis": d.rng.randint(0, x.rank)})
    if kind == "Unsqueeze" and x.rank < 5:
        return Call("Unsqueeze", [x, np.array([d.rng.randint(0, x.rank)], np.int64)])
    ones = [i for i, extent in enumerate(x.shape) if extent == 1]
    if kind == "Squeeze" and ones:
        return Call("Squeeze", [x, np.array([d.rng.choice(ones)], np.int64)])
    if kind == "merge" and x.rank >= 2:
        at = d.rng.randrange(x.rank - 1)
        shape = [*x.shape[:at], -1, *x.shape[at + 2 :]]
        return Call("Reshape", [x, np.array(shape, np.int64)])
    left, shape = int(np.prod(x.shape, dtype=np.int64)), []
    while left > 1 and len(shape) < 4:
        shape.append(d.rng.choice([f for f in range(1, left + 1) if left % f == 0]))
        left //= shape[-1]
    return Call("Reshape", [x, np.array([*shape, left], np.int64)])


def _slice(d: Draft) -> Call:
    x = d.pick((*NUMBERS, BOOL), least=1)
    axes = d.axes(x)
    starts, ends, steps = [], [], []
    for axis in axes:
        extent = x.shape[axis]
        low, high = sorted((d.rng.randint(0, extent - 1), d.rng.randint(0, extent - 1)))
        step = d.rng.choice((1, 1, 2, 3, -1, -1, -2))
        first, last = (low, high + 1) if step > 0 else (high, low - 1 if low else -(2**31))
        starts.append(first - extent if step > 0 and d.rng.random() < 0.3 else first)
        ends.append(last)
        steps.append(step)
    return Call("Slice", [x, *(np.array(v, np.int64) for v in (starts, ends, axes, steps))])


def _concat(d: Draft) -> Call:
    x = d.pick(NUMBERS, least=1)
    axis = d.axis(x)
    parts: list[Any] = [x]
    for _ in range(d.rng.randint(0, 3)):
        shape = list(x.shape)
        shape[axis] = d.rng.choice((1, 2, 3, 8, 16, shape[axis]))
        parts.append(d.other(shape, x.dtype))
    d.rng.shuffle(parts)
    return Call("Concat", parts, attrs={"axis": axis})


def _split(d: Draft) -> Call:
    x = d.pick(NUMBERS, least=1)
    axis = d.axis(x)
    extent = x.shape[axis]
    cuts = sorted(d.rng.sample(range(1, extent), min(d.rng.randint(1, 2), extent - 1)))
    sizes = np.diff([0, *cuts, extent])
    return Call("Split", [x, sizes.astype(np.int64)], outputs=len(sizes), attrs={"axis": axis})


def _pad(d: Draft) -> Call:
    x = d.pick((FLOAT, FLOAT, INT64), least=1)
    mode = d.rng.choice(("constant", "constant", "reflect", "edge", "wrap"))
    if mode == "wrap" and d.opset < 19:
        mode = "edge"
    most = [min(3, e - 1) if mode in ("reflect", "wrap") else 3 for e in x.shape]
    least = [-min(1, e - 1) if mode == "constant" else 0 for e in x.shape]
    pads = [d.rng.randint(lo, hi) for _ in range(2) for lo, hi in zip(least, most, strict=True)]
    return Call("Pad", [x, np.array(pads, np.int64)], attrs={"mode": mode})


def _gather(d: Draft) -> Call:
    x = d.pick((FLOAT, FLOAT, INT64), least=1)
    axis = d.axis(x)
    extent = x.shape[axis]
    kind = d.rng.choice(("Gather", "GatherElements", "GatherND"))
    if kind == "Gather":
        shape = d.shape(d.rng.choice((0, 1, 2)))
        return Call(kind, [x, d.arrays.integers(-extent, extent, shape)], attrs={"axis": axis})
    if kind == "GatherElements":
        shape = tuple(d.rng.randint(1, e) for e in x.shape)
        return Call(kind, [x, d.arrays.integers(-extent, extent, shape)], attrs={"axis": axis})
    depth = d.rng.randint(1, x.rank)
    picks = [d.arrays.integers(0, e, (3, 5)) for e in x.shape[:depth]]
    return Call("GatherND", [x, np.stack(picks, -1)])


def _expand(d: Draft) -> Call:
    x = d.pick((FLOAT, INT64))
    if d.rng.random() < 0.5 and x.rank:
        return Call("Tile", [x, np.array([d.rng.randint(1, 3) for _ in x.shape], np.int64)])
    shape = [d.rng.choice((1, 3, 5)) if e == 1 else e for e in x.shape]
    return Call("Expand", [x, np.array([d.rng.choice((1, 2)), *shape], np.int64)])


def _resize(d: Draft) -> Call:
    x = d.pick((FLOAT,), rank=4)
    mode = d.rng.choice(("nearest", "linear", "linear"))
    where = d.rng.choice(("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"))
    scales = np.array([1, 1, d.rng.choice((0.5, 2, 1.5, 3)), d.rng.choice((1, 2, 0.6))], np.float32)
    attrs = {"mode": mode, "coordinate_transformation_mode": where}
    return Call("Resize", [x, None, scales], attrs=attrs)


def _blocks(d: Draft) -> Call:
    block = d.rng.choice((2, 3))
    if d.rng.random() < 0.5:
        x = d.new_input((1, d.rng.choice((1, 3)) * block**2, 3, 5))
        return Call(
            "DepthToSpace", [x], attrs={"blocksize": block, "mode": d.rng.choice(("DCR", "CRD"))}
        )
    x = d.new_input((1, d.rng.choice((1, 3, 16)), 2 * block, block))
    return Call("SpaceToDepth", [x], attrs={"blocksize": block})


def _running(d: Draft) -> Call:
    x = d.pick((FLOAT, INT64), least=1)
    attrs = {"exclusive": d.rng.randint(0, 1), "reverse": d.rng.randint(0, 1)}
    return Call("CumSum", [x, np.array(d.axis(x), np.int64)], attrs=attrs)


def _trilu(d: Draft) -> Call:
    x = d.pick((FLOAT, INT64), least=2)
    return Call(
        "Trilu", [x, np.array(d.rng.randint(-2, 3), np.int64)], attrs={"upper": d.rng.randint(0, 1)}
    )


def _one_hot(d: Draft) -> Call:
    x = d.pick((INT64,))
    values = np.array([0.5, 2], np.float32)
    return Call("OneHot", [x, np.array(5, np.int64), values], attrs={"axis": -1})


def _residual(d: Draft) -> Call:
    """The second half of a diamond: a late value plus an earlier one of its shape."""
    a = d.pick((FLOAT,))
    return Call("Add", [a, d.other(a.shape, FLOAT)])


MAKERS: tuple[tuple[int, Maker], ...] = (
    (12, _conv), (6, _unary), (6, _binary), (6, _residual), (5, _matmul), (4, _pool),
    (4, _norm), (4, _transpose), (4, _reshape), (4, _concat), (3, _softmax), (4, _reduce),
    (3, _slice), (2, _split), (2, _pad), (2, _gather), (2, _gemm), (2, _conv_transpose),
    (2, _resize), (2, _expand), (2, _global_pool), (1, _arg), (1, _compare), (1, _logic),
    (1, _where), (2, _cast), (1, _clip), (1, _whole), (1, _many), (1, _einsum), (1, _blocks),
    (1, _running), (1, _trilu), (1, _one_hot), (1, _reduce_whole),
)  # fmt: skip


def random_model(rng: random.Random, most: int = 8) -> bytes:
    """A valid model of 1 to `most` nodes."""
    draft = Draft(rng)
    first = rng.random()
    draft.new_input(draft.shape(4 if first < 0.6 else None), FLOAT)
    weights, makers = zip(*MAKERS, strict=True)
    wanted = rng.randint(1, most)
    for _ in range(4 * wanted):
        (maker,) = rng.choices(makers, weights)
        inputs, values = len(draft.inputs), len(draft.values)
        try:
            added = draft.add(maker(draft))
        except (IndexError, ValueError):  # the maker found no way to fit this draft
            added = False
        if not added:
            del draft.inputs[inputs:], draft.values[values:]
        if len(draft.nodes) == wanted:
            break
    if not draft.nodes:
        draft.add(Call("Relu", [draft.inputs[0]]))
    return draft.model()


def random_feeds(model: bytes, rng: np.random.Generator, kind: str) -> dict[str, Any]:
    """Inputs of one kind: normal, special (with NaN and ±inf) or huge."""
    feeds = {}
    for info in onnx.load_from_string(model).graph.input:
        kinds = info.type.tensor_type
        shape = tuple(d.dim_value for d in kinds.shape.dim)
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kinds.elem_type))
        if dtype.kind == "f":
            array = rng.standard_normal(shape).astype(dtype)
            if kind == "huge":
                array = (array * dtype.type(1e30)).astype(dtype)
            if kind == "special":
                spots = rng.random(shape)
                array = np.where(spots < 0.03, dtype.type("nan"), array)
                array = np.where((spots > 0.94) & (spots < 0.97), dtype.type("inf"), array)
                array = np.where(spots > 0.97, dtype.type("-inf"), array).astype(dtype)
        else:
            array = rng.integers(0, 2 if dtype.kind == "b" else 4, shape).astype(dtype)
        feeds[info.name] = array
    return feeds
