"""A declared intrinsic replaces the nest that means the same, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.intrinsics import expand, lookup
from farrier.intrinsics.x86 import INTRINSICS
from farrier.ir.expr import Scope
from farrier.ir.loop import Function, Intrinsic
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.ir.types import Layout, PhysicalDim
from farrier.ir.verify import verify_function
from farrier.lower.finalize import finalize
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule, ScheduleError, Trace, replay
from farrier.schedule.nest import map_children
from tests.schedule.programs import assert_same_result, matmul

NAME = "avx512_broadcast_fma"


def _lanes(program, *, packed=True):
    """A matmul whose innermost loop runs over 16 neighbouring columns."""
    s = Schedule(to_loops(program))
    s.cache_write("y", "acc")
    s.split("y_n", 16, "y_vec", "y_lane")
    s.compute_at("acc", "y_vec")
    s.set_scope("acc", Scope.REGISTER)
    s.reorder("acc_k", "acc_m", "acc_n")
    if packed:
        s.transform_layout("w", Layout((PhysicalDim(1, 16), PhysicalDim(0), PhysicalDim(1, 1, 16))))
    return s


def _expanded(function):
    """The function with every call of an intrinsic written out."""
    count = 0

    def visit(stmt):
        nonlocal count
        if isinstance(stmt, Intrinsic):
            count += 1
            return expand(stmt, lookup(stmt.name), f"i{count}_")
        return map_children(stmt, visit)

    return Function(function.name, function.params, visit(function.body)), count


def test_a_matching_nest_becomes_a_call_that_means_the_same():
    program = matmul(3, 32, 5)
    schedule = _lanes(program)
    schedule.tensorize("acc_n", NAME)
    function = finalize(schedule.function)
    verify_function(function)
    calls = [s for s in walk_stmts(function.body) if isinstance(s, Intrinsic)]
    assert [call.name for call in calls] == [NAME]
    assert [tile.buffer.name for tile in calls[0].operands] == ["acc", "x", "w"]
    expanded, count = _expanded(function)
    assert count == 1
    assert_same_result(expanded, program)
    trace = Trace.parse(str(schedule.trace))
    assert replay(trace, to_loops(program)) == schedule.function


@pytest.mark.parametrize(
    ("prepare", "loop", "reason"),
    [
        (lambda: _lanes(matmul(3, 32, 5)), "y_lane", "computes something else"),
        (lambda: _lanes(matmul(3, 32, 5)), "acc_m", "runs over 16, acc_m is serial over 1"),
        (lambda: _lanes(matmul(3, 24, 5)), "acc_n", "has a Store where the nest has a If"),
        (lambda: Schedule(to_loops(matmul(3, 5, 16))), "y_k", "is not where they lie"),
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


@pytest.mark.parametrize("intrinsic", INTRINSICS, ids=lambda i: i.name)
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
            return "%r"

    recorder = Recorder()
    assert lookup(NAME).emit(recorder, ["%c", "%a", "%b"]) == "%r"
    kind = "<16 x float>"
    assert recorder.called == (
        "llvm.fma.v16f32",
        kind,
        ((kind, "%a"), (kind, "%b"), (kind, "%c")),
    )
