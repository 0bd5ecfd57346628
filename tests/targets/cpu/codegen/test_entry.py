"""The driver of a whole model, several kernels in one library, and what the linker refuses."""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.ir.dim import dim, evaluate, maximum, minimum, symbols
from farrier.ir.expr import Binary, BinaryOp, Buffer, Load, Unary, UnaryOp, Var
from farrier.ir.graph import Value
from farrier.ir.loop import For, Function, LoopKind, Store
from farrier.ir.types import DType, TensorType
from farrier.partition.addresses import Addresses, KernelCall, Sizes
from farrier.partition.plan_memory import MemoryPlan, Place, Segment
from farrier.partition.program import Branch, Call, DriverProgram, Fail, Repeat, Slice
from farrier.targets.cpu.codegen import compile_functions, compile_text, link, support_object
from farrier.targets.cpu.codegen.entry import (
    WORKSPACE_BYTES,
    emit_entry,
    emit_workspace_bytes,
)
from farrier.targets.cpu.codegen.support import SYMBOLS
from farrier_device.native import Library, NativeError, Pool, pointers

SIZE = 37


def combine(name: str, op: BinaryOp) -> Function:
    """out = x op y, over SIZE elements."""
    x, y, out = (Buffer(n, DType.F32, (SIZE,)) for n in ("x", "y", "out"))
    at = (Var("i"),)
    body = Store(out, at, Binary(op, Load(x, at), Load(y, at)))
    return Function(name, (x, y, out), For("i", SIZE, LoopKind.VECTORIZED, body))


def value(name: str, *shape: int, dtype: DType = DType.I64) -> Value:
    return Value(name, TensorType(dtype, shape))


def call(output: str) -> Call:
    """The call that computes a value; what it reads is said by the placement alone."""
    return Call(output, (), (value(output),), "")


def memory(nbytes, tops=None) -> MemoryPlan:
    """A plan that needs `nbytes` bytes."""
    return MemoryPlan({}, {}, nbytes, nbytes, 0, tops or {})


def program(steps, inputs: int = 0, outputs: int = 0) -> DriverProgram:
    """A program of some steps, its inputs and outputs being single numbers."""
    sides = (
        [value(f"{side}{n}") for n in range(count)]
        for side, count in (("x", inputs), ("y", outputs))
    )
    return DriverProgram(*map(tuple, sides), (), tuple(steps), {})


def test_a_model_of_two_kernels(target):
    """(x + weights) goes to the workspace, times y to the output."""
    functions = [combine("sum_k", BinaryOp.ADD), combine("product_k", BinaryOp.MUL)]
    x_at, y_at = (Place(Segment.INPUT, number) for number in range(2))
    weights_at, sum_at = Place(Segment.PARAMS, 0, 64), Place(Segment.WORKSPACE, 0, 128)
    calls = {
        "sum": KernelCall("sum_k", (x_at, weights_at, sum_at)),
        "product": KernelCall("product_k", (sum_at, y_at, Place(Segment.OUTPUT, 0))),
    }
    entry = emit_entry(program(map(call, calls), 2, 1), Addresses(calls, {}))
    assert not entry.checks
    objects = compile_functions(functions, target)
    objects += [compile_text(entry.text, target), support_object(target)]
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, SIZE)).astype(np.float32)
    params = random.normal(size=SIZE + 16).astype(np.float32)
    out, workspace = np.zeros(SIZE, np.float32), np.zeros(128, np.float32)
    image = link(objects, exports=["farrier_entry", *SYMBOLS])
    with Library.from_bytes(image) as library, Pool(library, threads=2) as pool:
        args = pointers([a.ctypes.data for a in (x, y, out, params, workspace)])
        assert library.entry("farrier_entry")(args, pool.address) == 0
        with pytest.raises(NativeError, match="sum_k"):
            library.entry("sum_k")
    np.testing.assert_allclose(out, (x + params[16:]) * y, rtol=1e-6)


def test_the_first_failure_of_a_kernel_is_returned(target):
    kernels = """
    define i32 @good(ptr %args, ptr %pool) { ret i32 0 }
    define i32 @bad(ptr %args, ptr %pool) { ret i32 5 }
    define i32 @crash(ptr %args, ptr %pool) { unreachable }
    """
    calls = {name: KernelCall(name, ()) for name in ("good", "bad", "crash")}
    entry = emit_entry(program(map(call, calls)), Addresses(calls, {}))
    objects = [compile_text(t, target) for t in (kernels, entry.text)]
    with Library.from_bytes(link([*objects, support_object(target)])) as library:
        assert library.entry("farrier_entry")(pointers([0]), 0) == 5


@pytest.mark.parametrize("usual", [None, {}])
def test_a_branch_that_fails_ends_the_call_and_none_to_measure(target, usual):
    """Whatever the memory holds, an entry to measure reads it as conditions. Checks have numbers
    behind those of other entries."""
    kernel = "define i32 @good(ptr %args, ptr %pool) { ret i32 0 }"
    first, second = (value(f"x{number}", dtype=DType.BOOL) for number in range(2))
    steps = [
        Branch(first, (Fail("the first", "a"),), (call("good"),)),
        Branch(second, (call("good"),), (Fail("the second", "b"),)),
    ]
    places = {
        condition.name: Place(Segment.INPUT, n) for n, condition in enumerate((first, second))
    }
    placement = Addresses({"good": KernelCall("good", ())}, places)
    entry = emit_entry(program(steps, 2), placement, usual=usual, first_check=6)
    assert [(check.reason, check.origin) for check in entry.checks] == [
        ("the first", "a"),
        ("the second", "b"),
    ]
    objects = [compile_text(t, target) for t in (kernel, entry.text)]
    with Library.from_bytes(link([*objects, support_object(target)])) as library:
        for a, b, code in ((0, 1, 0), (1, 1, -7), (0, 0, -8), (1, 0, -7)):
            inputs = [np.array(a, bool), np.array(b, bool)]
            args = pointers([*(array.ctypes.data for array in inputs), 0, 0])
            assert library.entry("farrier_entry")(args, 0) == (code if usual is None else 0)


def test_a_kernel_gets_the_sizes_that_it_runs_for(target):
    """Its output begins where they say, and a loop runs as often."""
    kernel = """
    define i32 @note(ptr %args, ptr %pool) {
      %out = load ptr, ptr %args
      %sizes.at = getelementptr ptr, ptr %args, i64 1
      %sizes = load ptr, ptr %sizes.at
      %second = getelementptr i64, ptr %sizes, i64 1
      %a = load i64, ptr %sizes
      %b = load i64, ptr %second
      %sum = add i64 %a, %b
      store i64 %sum, ptr %out
      ret i32 0
    }
    """
    n, m = dim("n", 1, 100), dim("m", 1, 9)
    sizes = Sizes(((n + 1) // 2, 10 * m))
    loop = Repeat(
        trips=m,
        condition=None,
        again=None,
        iteration=value("i"),
        carried=(),
        read=(),
        written=(Slice(value("rest", 50, 2), value("part", 2)),),
        body=(call("part"),),
    )
    top = dim("top", 0, 8 * 50, 8)
    placement = Addresses(
        {
            "first": KernelCall("note", (Place(Segment.OUTPUT, 0, 8 * n - 8), sizes)),
            "part": KernelCall("note", (Place(Segment.POINTER, pointer="part"), sizes)),
        },
        {"i": Place(Segment.WORKSPACE), "rest": Place(Segment.OUTPUT, 0, top)},
        dict(zip(symbols((top,)), [(8 * n, 8 * m - 400)], strict=True)),
    )
    dims = tuple(symbols((n, m)))
    entry = emit_entry(program([call("first"), loop], 0, 1), placement, dims=dims)
    texts = (kernel, entry.text, emit_workspace_bytes(memory(n * m), dims))
    objects = [compile_text(text, target) for text in texts]
    with Library.from_bytes(link([*objects, support_object(target)])) as library:
        room = library.function(WORKSPACE_BYTES, ctypes.c_int64, ctypes.c_void_p)
        for sizes_given in ((1, 1), (7, 3), (8, 9)):
            out, dim_values = np.zeros(64, np.int64), np.array(sizes_given)
            workspace = np.zeros(1, np.int64)
            args = pointers([out.ctypes.data, 0, workspace.ctypes.data, dim_values.ctypes.data])
            assert library.entry("farrier_entry")(args, 0) == 0
            first, trips = sizes_given
            wanted = np.zeros(64, np.int64)
            places = [first - 1, *(first + 2 * i for i in range(trips))]
            wanted[places] = (first + 1) // 2 + 10 * trips
            np.testing.assert_array_equal(out, wanted)
            assert room(dim_values.ctypes.data) == first * trips


N, M = dim("n", 1, 1000), dim("m", 0, 50)
EXTENTS = (
    N,
    3 * N * M - 7,
    (N + 6) // 7,
    (M - 20) // 3,
    (M - 20) % 6,
    minimum(N, 10 * M),
    maximum(M - 9, 5 - N) * 2,
    (N * M + 3) // (M + 1),
)


@pytest.mark.parametrize("extent", EXTENTS, ids=str)
def test_extents_are_computed_as_they_are_evaluated(target, extent):
    dims = tuple(symbols((N, M)))
    code = compile_text(emit_workspace_bytes(memory(extent), dims), target)
    with Library.from_bytes(link([code, support_object(target)])) as library:
        computed = library.function(WORKSPACE_BYTES, ctypes.c_int64, ctypes.c_void_p)
        for n in (1, 2, 13, 999, 1000):
            for m in (0, 1, 19, 20, 23, 50):
                values = np.array([n, m])
                assert computed(values.ctypes.data) == evaluate(extent, {"n": n, "m": m})


def test_kernels_share_modules(target):
    functions = [combine(f"k{n}", BinaryOp.ADD) for n in range(20)]
    objects = compile_functions(functions, target)
    assert 1 < len(objects) < 20
    with Library.from_bytes(link([*objects, support_object(target)])) as library:
        for function in functions:
            assert library.entry(function.name) is not None


def test_an_undefined_symbol_is_an_error_that_names_it(target):
    text = """
    declare float @expf(float)
    define float @kernel(float %x) {
      %y = call float @expf(float %x)
      ret float %y
    }
    """
    with pytest.raises(CompilerError, match="undefined symbol: expf"):
        link([compile_text(text, target)])


def test_text_that_does_not_parse_is_an_error_with_the_place(target):
    with pytest.raises(CompilerError, match="bogus"):
        compile_text("define i32 @f() { bogus }", target)


def transform(name: str, op: UnaryOp, dtype: DType) -> Function:
    """out = op x, over SIZE elements."""
    x, out = (Buffer(n, dtype, (SIZE,)) for n in ("x", "out"))
    body = Store(out, (Var("i"),), Unary(op, Load(x, (Var("i"),))))
    return Function(name, (x, out), For("i", SIZE, LoopKind.VECTORIZED, body))


LEVELS = {
    "x86-64-v2": ("x86_64-unknown-linux-gnu", 128, 16),
    "x86-64-v3": ("x86_64-unknown-linux-gnu", 256, 16),
    "x86-64-v4": ("x86_64-unknown-linux-gnu", 512, 32),
    "cortex-a72": ("aarch64-unknown-linux-gnu", 128, 32),
}


@pytest.mark.long
@pytest.mark.parametrize("cpu", LEVELS)
def test_no_machine_needs_a_library_for_its_arithmetic(target, cpu):
    """v2 has neither multiply-add nor masks: nothing may become a call to libm."""
    triple, bits, registers = LEVELS[cpu]
    other = dataclasses.replace(
        target, triple=triple, cpu=cpu, features=(), vector_bits=bits, registers=registers
    )
    logical = (BinaryOp.AND, BinaryOp.OR)
    operators = [op for op in BinaryOp if not op.is_comparison and op not in logical]
    functions = [combine(f"k_{op.value}", op) for op in operators]
    for dtype in (DType.F32, DType.F64):
        functions += [
            transform(f"k_{op.value}_{dtype}", op, dtype) for op in UnaryOp if op is not UnaryOp.NOT
        ]
    assert link(compile_functions(functions, other))


def test_tops_are_computed_as_they_are_evaluated(target):
    first, second = dim("top.0", 0, 9999, 0), dim("top.1", 0, 99999, 0)
    extents = ((N, 9 * M + 1, 40), (first + 3 * M, 2 * N, first + 100))
    plan = memory(64 * second + first, dict(zip(symbols((first, second)), extents, strict=True)))
    code = compile_text(emit_workspace_bytes(plan, tuple(symbols((N, M)))), target)
    with Library.from_bytes(link([code, support_object(target)])) as library:
        computed = library.function(WORKSPACE_BYTES, ctypes.c_int64, ctypes.c_void_p)
        for n, m in ((1, 0), (41, 4), (1000, 3), (12, 50), (300, 33)):
            top = max(n, 9 * m + 1, 40)
            needed = 64 * max(top + 3 * m, 2 * n, top + 100) + top
            assert computed(np.array([n, m]).ctypes.data) == needed
            assert plan.workspace_at({"n": n, "m": m}) == needed
