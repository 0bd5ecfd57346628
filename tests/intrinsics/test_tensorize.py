"""A declared intrinsic replaces the nest that means the same, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.intrinsics import lookup
from farrier.ir.expr import MemoryScope
from farrier.ir.instr import Variable, vector
from farrier.ir.loop import Intrinsic
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.ir.types import DType, Layout, PhysicalDim
from farrier.ir.verify_kernel import verify_function
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule, ScheduleError, Trace, replay
from farrier.targets.x86.intrinsics import BROADCASTS
from tests.intrinsics.written_out import written_out
from tests.lowering import finalize
from tests.schedule.programs import assert_same_result, matmul, narrow_matmul

NAME = "avx512_broadcast_fma"


def _lanes(program, *, packed=True):
    """A matmul whose innermost loop runs over 16 neighbouring columns."""
    s = Schedule(to_loops(program))
    s.cache_write("y", "acc")
    s.split("y_n", 16, "y_vec", "y_lane")
    s.compute_at("acc", "y_vec")
    s.set_scope("acc", MemoryScope.REGISTER)
    s.reorder("acc_k", "acc_m", "acc_n")
    if packed:
        s.transform_layout("w", Layout((PhysicalDim(1, 16), PhysicalDim(0), PhysicalDim(1, 1, 16))))
    return s


def test_a_matching_nest_becomes_a_call_that_means_the_same():
    program = matmul(3, 32, 5)
    schedule = _lanes(program)
    schedule.tensorize("acc_n", NAME)
    function = finalize(schedule.function)
    verify_function(function)
    calls = [s for s in walk_stmts(function.body) if isinstance(s, Intrinsic)]
    assert [call.name for call in calls] == [NAME]
    assert [tile.buffer.name for tile in calls[0].operands] == ["acc", "x", "w"]
    assert_same_result(written_out(function), program)
    trace = Trace.parse(str(schedule.trace))
    assert replay(trace, to_loops(program)) == schedule.function


@pytest.mark.parametrize(
    ("prepare", "loop", "reason"),
    [
        (lambda: _lanes(matmul(3, 32, 5)), "y_lane", "computes something else"),
        (lambda: _lanes(matmul(3, 32, 5)), "acc_m", "runs over 16, acc_m is serial over 1"),
        (lambda: _lanes(matmul(3, 24, 5)), "acc_n", "has a Store where the nest has a If"),
        (
            lambda: Schedule(to_loops(matmul(3, 5, 16))),
            "y_k",
            "runs along axes of c that the nest does not",
        ),
    ],
)
def test_another_nest_is_refused(prepare, loop, reason):
    schedule = prepare()
    with pytest.raises(ScheduleError) as caught:
        schedule.tensorize(loop, NAME)
    assert reason in caught.value.reason


def test_an_undeclared_intrinsic_is_refused():
    with pytest.raises(ScheduleError, match="no intrinsic magic"):
        _lanes(matmul(3, 32, 5)).tensorize("acc_n", "magic")


@pytest.mark.parametrize("intrinsic", BROADCASTS, ids=lambda i: i.name)
def test_a_broadcast_fma_means_what_it_says(intrinsic):
    rng = np.random.default_rng(1)
    c, b = (rng.standard_normal(intrinsic.lanes).astype(np.float32) for _ in "cb")
    a = np.float32(1.5)
    semantics = intrinsic.semantics
    written = {p.name: p for p in semantics.params}
    result = run_loops(semantics, {"a": np.array(a), "b": b}, initial={"c": c})["c"]
    assert set(written) == {"a", "b", "c"}
    np.testing.assert_allclose(result, c + a * b, rtol=1e-6)


def test_an_emitter_calls_fma_on_the_operands_in_order():
    class Recorder:
        def call(self, name, result, *arguments, flags=""):
            self.called = (name, result, arguments)
            return Variable(result, "r")

    recorder = Recorder()
    total, scalar, row = (Variable(vector("f32", 16), name) for name in "cab")
    result = lookup(NAME).emit(recorder, [total, scalar, row])
    assert (str(result), result.type) == ("%r", total.type)
    assert recorder.called == ("llvm.fma.v16f32", total.type, (scalar, row, total))


@pytest.mark.parametrize(("rows", "depth"), [(2, 32), (7, 16), (16, 32)])
def test_tiles_of_bf16_mean_what_they_say(rows, depth):
    rng = np.random.default_rng(rows)
    c = rng.standard_normal((rows, 16)).astype(np.float32)
    shapes = (rows, depth), (depth, 16)
    a, b = (rng.standard_normal(shape).astype(DType.BF16.numpy) for shape in shapes)

    def run(name, inputs, output):
        return run_loops(lookup(name).semantics, inputs, initial={output: c})[output]

    assert (run(f"amx_zero_f32_{rows}", {}, "c") == 0).all()
    np.testing.assert_array_equal(run(f"amx_store_f32_{rows}", {"c": 2 * c}, "memory"), 2 * c)
    expected = c + a.astype(np.float64) @ b.astype(np.float64)
    result = run(f"amx_dot_bf16_{rows}x{depth}", {"a": a, "b": b}, "c")
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "depth"), [(2, 64), (7, 16), (16, 8)])
def test_tiles_of_bytes_mean_what_they_say(rows, depth):
    """Sums of i32 wrap around."""
    rng = np.random.default_rng(rows)
    c = rng.integers(2**31 - 2**18, 2**31, (rows, 16)).astype(np.int32)
    a = rng.integers(0, 256, (rows, depth)).astype(np.uint8)
    b = rng.integers(-20, 128, (depth, 16)).astype(np.int8)

    def run(name, inputs, output):
        return run_loops(lookup(name).semantics, inputs, initial={output: c})[output]

    assert (run(f"amx_zero_i32_{rows}", {}, "c") == 0).all()
    np.testing.assert_array_equal(run(f"amx_store_i32_{rows}", {"c": c}, "memory"), c)
    expected = (c + a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    assert (expected < 0).any()
    result = run(f"amx_dot_u8_i8_{rows}x{depth}", {"a": a, "b": b}, "c")
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("kind", "depth"), [("u8_i8", 8), ("u8_i8", 16), ("i8_i8", 16), ("bf16_bf16", 8)]
)
def test_tiles_of_two_by_two_mean_what_they_say(kind, depth):
    _assert_product(lookup(f"neon_matrix_{kind}_2x{depth}"), depth)


@pytest.mark.parametrize(("rows", "depth"), [(2, 8), (7, 16), (4, 32)])
def test_tiles_of_half_precision_mean_what_they_say(rows, depth):
    _assert_product(lookup(f"neon_half_product_{rows}x{depth}"), depth)


def _assert_product(intrinsic, depth):
    product = intrinsic.semantics
    rng, (c, a, b) = np.random.default_rng(depth), product.params
    tiles = {
        tile.name: rng.integers(-9, 10, tile.shape).astype(tile.dtype.numpy) for tile in (c, a, b)
    }
    result = run_loops(product, {"a": tiles["a"], "b": tiles["b"]}, initial={"c": tiles["c"]})["c"]
    wide = {name: tile.astype(np.int64) for name, tile in tiles.items()}
    np.testing.assert_array_equal(result, wide["c"] + wide["a"] @ wide["b"])


def test_rows_that_do_not_lie_as_declared_are_refused():
    """The weights of a bf16 product have to be in adjacent pairs."""
    program = narrow_matmul(16, 16, 32)
    s = Schedule(to_loops(program))
    s.split("y_k", 32)
    s.split("y_m", 16)
    s.reorder("y_m_o", "y_k_o", "y_m_i", "y_n", "y_k_i")
    with pytest.raises(ScheduleError) as caught:
        s.tensorize("y_m_i", "amx_dot_bf16_16x32")
    assert "those of w do not lie so" in caught.value.reason
    pairs = Layout((PhysicalDim(0, 2), PhysicalDim(1), PhysicalDim(0, 1, 2)))
    s.transform_layout("w", pairs)
    s.tensorize("y_m_i", "amx_dot_bf16_16x32")
    assert_same_result(written_out(s.function), program)
