"""Strategies that draw small nodes of every grammar."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from farrier.ir.dim import dim, minimum, symbols
from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    ByteTable,
    Cast,
    Const,
    Load,
    MemoryScope,
    Reduce,
    ReduceOp,
    Select,
    Size,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.loop import (
    Alloc,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Store,
    Tile,
    While,
)
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, Layout, PhysicalDim, TensorType

N = dim("n", 1, 64, 16)
KEPT = dim("kept", 0, 4 * N)
extents = st.sampled_from([N, KEPT, 2 * N + 1, (N + 3) // 4 * KEPT, 9 - N, N % 3, minimum(N, KEPT)])
DIMS = tuple(dict.fromkeys(symbols((N, KEPT))))
dtypes = st.sampled_from(DType)
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
texts = st.text(max_size=8)


@st.composite
def layouts(draw, rank):
    if rank == 0 or draw(st.booleans()):
        return None
    halo = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=2)).copy()
    dims = draw(
        st.lists(
            st.builds(
                PhysicalDim, st.integers(0, rank - 1), st.integers(1, 32), st.integers(0, 32)
            ),
            min_size=1,
            max_size=5,
        )
    )
    return Layout(tuple(dims), tuple(halo))


@st.composite
def tensor_types(draw, symbolic=True):
    shape = draw(shapes)
    if symbolic and draw(st.booleans()):
        shape = (*shape, draw(extents))
    return TensorType(draw(dtypes), shape, draw(layouts(len(shape))))


attribute_values = st.one_of(
    st.integers(-5, 1 << 40),
    st.floats(allow_nan=False),
    st.booleans(),
    texts,
    st.lists(st.integers(-3, 3), max_size=3).map(tuple),
    st.lists(st.floats(allow_nan=False), max_size=2).map(tuple),
    st.lists(texts, max_size=2).map(tuple),
)
attribute_names = st.sampled_from(["axis", "strides", "mode", "to", "epsilon", "perm"])


@st.composite
def constants(draw, name):
    dtype = draw(dtypes)
    shape = draw(st.sampled_from([(), (1,), (2, 3), (17,), (0,), (5, 7)]))
    bits = np.random.default_rng(draw(st.integers(0, 99))).bytes(math.prod(shape) * dtype.nbytes)
    data = np.frombuffer(bits, np.uint8)
    if dtype.bits < 8 or dtype is DType.BOOL:
        data = data & ((1 << (dtype.bits if dtype.bits < 8 else 1)) - 1)
    data = data.view(dtype.numpy).reshape(shape)
    return Constant(Value(name, TensorType(dtype, shape)), data)


@st.composite
def graphs(draw, depth=1, prefix="v"):
    inputs = tuple(
        Value(f"{prefix}x{i}", draw(tensor_types())) for i in range(draw(st.integers(0, 2)))
    )
    consts = tuple(draw(constants(f"{prefix}c{i}")) for i in range(draw(st.integers(0, 2))))
    values = [*inputs, *(constant.value for constant in consts)]
    nodes = []
    for n in range(draw(st.integers(0, 3))):
        operands = draw(st.lists(st.sampled_from([None, *values]), max_size=3))
        outputs = tuple(
            Value(f"{prefix}{n}_{i}", draw(tensor_types())) for i in range(draw(st.integers(1, 3)))
        )
        attrs = draw(st.dictionaries(attribute_names, attribute_values, max_size=3))
        count = draw(st.integers(0, 2)) if depth else 0
        regions = tuple(draw(graphs(depth - 1, f"{prefix}{n}r{i}")) for i in range(count))
        nodes.append(
            Node(
                draw(st.sampled_from(["Conv", "Relu", "com.acme.Thing"])),
                tuple(operands),
                outputs,
                tuple(sorted(attrs.items())),
                regions,
                draw(texts),
            )
        )
        values.extend(outputs)
    outputs = draw(st.lists(st.sampled_from(values), max_size=3)) if values else []
    return Graph(f"{prefix}graph", inputs, consts, tuple(nodes), tuple(outputs))


@st.composite
def buffers(draw, name):
    type = draw(tensor_types())
    return Buffer(name, type.dtype, type.shape, type.layout, draw(st.sampled_from(MemoryScope)))


@st.composite
def numbers(draw):
    dtype = draw(dtypes)
    if dtype is DType.BOOL:
        return Const(draw(st.booleans()), dtype)
    return Const(draw(st.floats() if dtype.is_float else st.integers(-9, 9)), dtype)


def expressions(available, names):
    variables = st.sampled_from(names).map(Var)
    sizes = st.builds(Binary, st.sampled_from(BinaryOp), variables, extents.map(Size))
    leaves = [numbers(), variables, sizes]

    def extend(inner):
        grown = [
            st.builds(Unary, st.sampled_from(UnaryOp), inner),
            st.builds(Binary, st.sampled_from(BinaryOp), inner, inner),
            st.builds(Select, inner, inner, inner),
            st.builds(
                ByteTable,
                st.binary(min_size=256, max_size=256),
                st.sampled_from([DType.U8, DType.I8]),
                inner,
            ),
            st.builds(Cast, dtypes, inner),
        ]
        if available:
            indices = st.lists(inner, max_size=2).map(tuple)
            grown.append(st.builds(Load, st.sampled_from(available), indices))
        return st.one_of(*grown)

    return st.recursive(st.one_of(*leaves), extend, max_leaves=6)


@st.composite
def programs(draw):
    inputs = tuple(draw(buffers(f"in{i}")) for i in range(draw(st.integers(0, 2))))
    available, stages = list(inputs), []
    for n in range(draw(st.integers(0, 3))):
        buffer = draw(buffers(f"s{n}"))
        axes = tuple(Axis(f"a{i}", extent) for i, extent in enumerate(buffer.shape))
        body = draw(expressions(available, ["a0", "a1"]))
        if draw(st.booleans()):
            count = draw(st.integers(0, 2))
            lengths = st.integers(1, 9) | extents
            reduced = tuple(Axis(f"k{i}", draw(lengths)) for i in range(count))
            body = Reduce(draw(st.sampled_from(ReduceOp)), reduced, body)
        stages.append(Stage(buffer, axes, body))
        available.append(buffer)
    written = [stage.buffer for stage in stages]
    outputs = draw(st.lists(st.sampled_from(written), max_size=2)) if written else []
    return TensorProgram("kernel", inputs, tuple(stages), tuple(outputs), DIMS)


@st.composite
def statements(draw, available, depth):
    indices = st.lists(expressions(available, ["i", "j"]), max_size=2).map(tuple)
    values = expressions(available, ["i", "j"])
    kinds = ["block", "for", "alloc", "if", "while"] if depth else []
    kinds += ["store", "prefetch", "intrinsic"] if available else []
    match draw(st.sampled_from(kinds or ["empty"])):
        case "empty":
            return Block(())
        case "block":
            return Block(tuple(draw(st.lists(statements(available, depth - 1), max_size=3))))
        case "for":
            body = draw(statements(available, depth - 1))
            length = draw(st.integers(0, 9) | extents)
            return For(f"i{depth}", length, draw(st.sampled_from(LoopKind)), body)
        case "alloc":
            buffer = draw(buffers(draw(st.sampled_from(["t", "u"]))))
            others = [other for other in available if other.name != buffer.name]
            return Alloc(buffer, draw(statements([*others, buffer], depth - 1)))
        case "if":
            otherwise = draw(st.none() | statements(available, depth - 1))
            return If(draw(values), draw(statements(available, depth - 1)), otherwise)
        case "while":
            return While(draw(values), draw(statements(available, depth - 1)))
        case "store":
            return Store(draw(st.sampled_from(available)), draw(indices), draw(values))
        case "prefetch":
            return Prefetch(
                draw(st.sampled_from(available)), draw(indices), draw(st.integers(1, 3))
            )
        case _:
            tiles = st.lists(st.builds(Tile, st.sampled_from(available), indices), max_size=2)
            return Intrinsic(draw(texts), tuple(draw(tiles)))


@st.composite
def functions(draw):
    params = tuple(draw(buffers(f"p{i}")) for i in range(draw(st.integers(0, 2))))
    return Function("kernel", params, draw(statements(list(params), 3)), DIMS)
