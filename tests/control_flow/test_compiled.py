"""If and Loop as compiled code: the branch that runs, and where values are carried, read and
stacked."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.control import graphs_in
from farrier.ir.parser import parse_ir
from farrier.ops.verify import verify
from farrier.partition.program import Branch, Repeat
from farrier.passes import PASSES, Settings

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


IF = """@graph
def g(c: bool[()], x: f32[3, 5], w: f32[5]):
    z: f32[3, 5] = Exp(x)
    def yes(a: f32[3, 5], b: f32[5]):
        y: f32[3, 5] = Add(a, b)
        return y, a
    def no(a: f32[3, 5], b: f32[5]):
        y: f32[3, 5] = Mul(a, b)
        n: f32[3, 5] = Neg(y)
        return n, y
    r: f32[3, 5]
    s: f32[3, 5]
    r, s = If[yes, no](c, z, w)
    t: f32[3, 5] = Sub(r, z)
    return t, s
"""


def test_a_branch_runs_where_its_condition_holds(compiled):
    """Both branches use one name for different values, and one returns what it was given."""
    model = compiled(IF)
    assert [type(step) for step in model.program.steps].count(Branch) == 1
    for condition in (True, False):
        model.check(c=np.array(condition), x=normal(3, 5), w=normal(5))


WHILE = """@graph
def g(n: i64[()], start: bool[()], x: f32[3, 5], w: f32[5], k: f32[7, 5]):
    first: f32[3, 5] = Mul(x, w)
    def body(i: i64[()], h: f32[3, 5], old: f32[3, 5], row: f32[5], b: f32[5]):
        limit: f32[()] = constant(40.0)
        u: f32[3, 5] = Add(h, row)
        v: f32[3, 5] = Mul(u, b)
        total: f32[1, 1] = ReduceSum(v)
        flat: f32[()] = Squeeze(total)
        go: bool[()] = Less(flat, limit)
        f: f32[()] = Cast(i, to='f32')
        vi: f32[3, 5] = Add(v, f)
        return go, vi, h
    a: f32[3, 5]
    o: f32[3, 5]
    a, o = Loop[body](n, start, first, first, k, w, carried=2, conditional=True, scanned=1)
    y: f32[3, 5] = Sub(a, o)
    return y, a
"""


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 7])
def test_a_loop_runs_as_often_as_data_says(compiled, trips):
    """By count and by condition; a result is the initial value, or in one buffer or the other."""
    model = compiled(WHILE)
    for start in (True, False):
        model.check(
            n=np.array(trips), start=np.array(start), x=normal(3, 5), w=normal(5), k=normal(7, 5)
        )
    model.check(
        n=np.array(trips),
        start=np.array(True),
        x=normal(3, 5),
        w=np.full(5, 3, np.float32),
        k=np.full((7, 5), 2, np.float32),
    )


NESTED = """@graph
def g(x: f32[3, 5], k: f32[7, 5]):
    n: i64[()] = constant(7)
    def body(i: i64[()], h: f32[3, 5], row: f32[5]):
        three: i64[()] = constant(3)
        u: f32[3, 5] = Add(h, row)
        e: f32[3, 5] = Sin(u)
        m: f32[3, 5] = Neg(e)
        def sub(j: i64[()], s: f32[3, 5], part: f32[5], gate: f32[3, 5]):
            zero: f32[()] = constant(0.0)
            total: f32[1] = ReduceMax(part, keepdims=1)
            most: f32[()] = Squeeze(total)
            positive: bool[()] = Less(zero, most)
            def up(a: f32[3, 5], b: f32[5]):
                y: f32[3, 5] = Mul(a, b)
                return y
            def down(a: f32[3, 5], b: f32[5]):
                return a
            y: f32[3, 5] = If[up, down](positive, s, part)
            z: f32[3, 5] = Sub(y, gate)
            return z, part
        q: f32[3, 5]
        st: f32[3, 5]
        q, st = Loop[sub](three, None, m, e, u, carried=1, conditional=False, scanned=1)
        return q, u, st, u
    a: f32[3, 5]
    s1: f32[7, 3, 5]
    s2: f32[7, 3, 5]
    s3: f32[7, 3, 5]
    a, s1, s2, s3 = Loop[body](n, None, x, k, carried=1, conditional=False, scanned=1)
    return a, s1, s2, s3
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_loops_and_conditions_in_a_loop(compiled, threads):
    """Slices of slices, a value stacked twice, and slices whose addresses are not aligned."""
    model = compiled(NESTED, threads)
    (outer,) = (step for step in model.program.steps if isinstance(step, Repeat))
    assert outer.trips == 7
    # The call that runs once copies the last result out.
    assert {call.runs for call in model.program.calls} == {1, 7, 21}
    model.check(x=normal(3, 5) * 0.1, k=normal(7, 5) * 0.1)


CARRIED_ON = """@graph
def g(x: f32[64], n: i64[()], m: i64[()]):
    shape: i64[2] = constant([4, 16])
    def one(i: i64[()], h: f32[64]):
        y: f32[64] = Sin(h)
        return y
    a: f32[64] = Loop[one](n, None, x, carried=1, conditional=False, scanned=0)
    def two(i: i64[()], h: f32[64], seen: f32[64]):
        y: f32[64] = Add(h, seen)
        return y
    b: f32[64] = Loop[two](m, None, a, a, carried=1, conditional=False, scanned=0)
    r: f32[4, 16] = Reshape(b, shape)
    c: f32[64] = Sub(b, a)
    return r, c
"""


def test_a_result_that_the_next_loop_starts_from(compiled):
    """A loop's result lies where its last iteration left it, and lives as long as it is read."""
    model = compiled(CARRIED_ON)
    for n in range(4):
        for m in range(4):
            model.check(x=normal(64), n=np.array(n), m=np.array(m))


def test_calls_in_loops_count_as_often_as_they_run(compiled):
    model = compiled(NESTED)
    for call, record in zip(model.program.calls, model.linked.calls, strict=True):
        assert record.runs == call.runs
        for argument in record.arguments:
            assert argument.offset >= 0


def test_no_step_needs_more_memory_than_is_planned(compiled):
    for text in (IF, WHILE, NESTED):
        memory = compiled(text).linked.memory
        assert memory.workspace_bytes == memory.lower_bound


UNUSED = """@graph
def g(n: i64[()], x: f32[4], w: f32[4]):
    idle: f32[4] = Exp(w)
    def body(i: i64[()], a: f32[4], b: f32[4], c: f32[4], u: f32[4]):
        p: f32[4] = Add(a, b)
        q: f32[4] = Neg(b)
        r: f32[4] = Mul(c, u)
        return p, q, r
    a: f32[4]
    b: f32[4]
    c: f32[4]
    a, b, c = Loop[body](n, None, x, x, x, idle, carried=3, conditional=False, scanned=0)
    return a
"""


def test_what_a_loop_carries_in_vain_is_dropped(target):
    """`b` stays, since `a` is computed from it; `c` goes, and with it what it alone reads."""
    graph = parse_ir(UNUSED)
    verify(graph)
    result = PASSES["eliminate-dead-code"](graph, Settings(target, 1))
    verify(result)
    (loop,) = result.nodes
    assert [value.name for value in loop.outputs] == ["a", "b"]
    assert [value.name for value in loop.inputs if value] == ["n", "x", "x"]
    assert [node.op for node in loop.regions[0].nodes] == ["Add", "Neg"]


def test_an_unused_branch_result_is_dropped(target):
    graph = parse_ir(IF.replace("return t, s", "return t"))
    result = PASSES["eliminate-dead-code"](graph, Settings(target, 1))
    verify(result)
    assert [len(region.outputs) for region in graphs_in(result)] == [1, 1, 1]
