"""A kernel's dims name sizes: none is negative, whatever the extents of the model are made of."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from farrier.errors import CompilerError
from farrier.ir.dim import Extent, bounds, dim, evaluate, is_less, minimum
from farrier.ir.expr import Axis, Buffer, Const
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, TensorType
from farrier.lower.program import to_program
from farrier.ops.slicing import slices
from farrier.ops.verify import verify
from farrier.partition.dims import OwnDims, own_dims

N, M = dim("s0", 1, 65536, 128), dim("s1", 1, 65536, 1)
SIZES = range(1, 18)


def value(name: str, *shape: Extent) -> Value:
    return Value(name, TensorType(DType.F32, shape))


def exponential(*shape: Extent) -> Graph:
    """y = exp(x)."""
    x, y = value("x", *shape), value("y", *shape)
    return Graph("g", (x,), (), (Node("Exp", (x,), (y,)),), (y,))


def assert_same_sizes(region: Graph, own: OwnDims) -> None:
    """At all sizes at which the kernel is called, its shapes are those of the region, and its dims
    lie in their ranges."""
    verify(to_program(own.region, "kernel"))
    for n in SIZES:
        sizes = {"s0": n, "s1": 1 + n % 3}
        if not all(evaluate(extent, sizes) for extent in own.needed):
            continue
        dims = {
            symbol.name: evaluate(extent, sizes)
            for symbol, extent in zip(own.region.given_dims, own.dims, strict=True)
        }
        for symbol in own.region.given_dims:
            assert symbol.low <= dims[symbol.name] <= bounds(symbol.high)[1]
        renamed_values = (*own.region.inputs, *own.region.outputs)
        for renamed, old in zip(renamed_values, (*region.inputs, *region.outputs), strict=True):
            assert [evaluate(extent, dims) for extent in renamed.type.shape] == [
                evaluate(extent, sizes) for extent in old.type.shape
            ]


BOUND = st.one_of(st.integers(-9, 9), st.sampled_from([2**63 - 1, -(2**63)]))
STEP = st.sampled_from([-3, -2, -1, 1, 2, 3])


@hypothesis.given(start=BOUND, end=BOUND, step=STEP)
@hypothesis.example(start=-6, end=2**63 - 1, step=3)
@hypothesis.example(start=0, end=-1, step=1)
def test_what_reads_a_slice_has_no_negative_extent(start, end, step):
    (taken,) = slices((N,), (start,), (end,), (0,), (step,))
    region = exponential(M, 2, taken.count)
    assert_same_sizes(region, own_dims(region))


@hypothesis.given(start=BOUND, end=BOUND, step=STEP)
def test_a_slice_and_what_follows_it_in_one_kernel(start, end, step):
    (taken,) = slices((N,), (start,), (end,), (0,), (step,))
    x, y, z = value("x", N), value("y", taken.count), value("z", taken.count)
    numbers = {"starts": start, "ends": end, "axes": 0, "steps": step}
    constants = tuple(
        Constant(Value(name, TensorType(DType.I64, (1,))), np.array([number]))
        for name, number in numbers.items()
    )
    operands = (x, *(constant.value for constant in constants))
    nodes = (Node("Slice", operands, (y,)), Node("Exp", (y,), (z,)))
    region = Graph("g", (x,), constants, nodes, (z,))
    assert_same_sizes(region, own_dims(region))


@pytest.mark.parametrize(
    ("extent", "kernel"),
    [
        (N - 1, "(d0 - 1)"),  # Here d0 is at least 2.
        (-((N // 2 - N) // 3), "(d0)"),
        ((N + 1) // 2 - minimum(1, (N + 1) // 2), "(d0 - 1)"),
        (N - minimum(N, M), "(max(d0, d1) - d1)"),
    ],
)
def test_an_output_is_not_empty_in_its_kernel(extent, kernel):
    region = exponential(extent)
    own = own_dims(region)
    assert str(own.region.outputs[0].type.shape).replace(",)", ")") == kernel
    assert own.needed == ((extent,) if bounds(extent)[0] < 1 else ())
    assert_same_sizes(region, own)


def test_an_extent_that_is_a_size_for_some_values_alone_is_a_dim_itself():
    region = exponential(20 - N - 2 * M, 3)
    own = own_dims(region)
    assert str(own.region.outputs[0].type.shape) == "(d2, 3)"
    assert is_less(-1, own.region.outputs[0].type.shape[0])
    assert own.dims == (20 - N - 2 * M,)


def test_an_extent_that_may_be_negative_is_refused():
    symbol = dim("d0", 1, 8, 4)
    buffer = Buffer("y", DType.F32, (-symbol,))
    stage = Stage(buffer, (Axis("i", -symbol),), Const(0.0, DType.F32))
    program = TensorProgram("kernel", (), (stage,), (buffer,), tuple(exponential(symbol).dims))
    with pytest.raises(CompilerError, match="the extent -d0 of y is negative"):
        verify(program)


def test_rows_of_two_slices_are_a_size():
    (backwards,) = slices((N,), (-15,), (4,), (0,), (-1,))
    (rest,) = slices((M,), (2,), (2**63 - 1,), (0,), (1,))
    rows = 2 * backwards.count * rest.count
    assert is_less(-1, rows)
    region = exponential(rows, 3)
    assert_same_sizes(region, own_dims(region))
