"""Blocks alive at one step never share bytes, whatever the blocks."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.errors import CompilerError
from farrier.ir.dim import dim, evaluate
from farrier.ir.parser import parse_ir
from farrier.partition import extract_tasks
from farrier.passes.plan_memory import (
    Block,
    Place,
    Segment,
    _attempts,
    alive_at_once,
    pack,
    pack_blocks,
    plan_memory,
    scratch_of,
)

_STEPS = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted)


@st.composite
def block_lists(draw):
    spans = draw(st.lists(st.tuples(st.integers(0, 5000), _STEPS), max_size=25))
    return [Block(f"b{i}", size, *steps) for i, (size, steps) in enumerate(spans)]


@given(block_lists())
def test_blocks_alive_together_lie_apart(blocks):
    offsets, total = pack_blocks(blocks)
    for i, a in enumerate(blocks):
        assert offsets[a.name] % 64 == 0
        assert offsets[a.name] + a.nbytes <= total
        for b in blocks[:i]:
            if a.first <= b.last and b.first <= a.last and a.nbytes and b.nbytes:
                start, other = offsets[a.name], offsets[b.name]
                assert start + a.nbytes <= other or other + b.nbytes <= start
    assert alive_at_once(blocks) <= total


@given(block_lists())
def test_the_plan_does_not_depend_on_the_order_of_blocks(blocks):
    assert pack_blocks(blocks) == pack_blocks(blocks[::-1])


_N = dim("n", 1, 40, 10)
_M = dim("m", 0, 9, 3)


@st.composite
def symbolic_blocks(draw):
    """Blocks of `a + b*n + c*m*n` bytes, some of them of a known size."""
    factors = st.tuples(st.integers(0, 300), st.sampled_from([0, 1, 7]), st.sampled_from([0, 0, 3]))
    spans = draw(st.lists(st.tuples(factors, _STEPS), max_size=12))
    return [
        Block(f"b{i}", a + b * _N + c * _M * _N, *steps)
        for i, ((a, b, c), steps) in enumerate(spans)
    ]


@given(symbolic_blocks(), st.integers(1, 40), st.integers(0, 9))
def test_blocks_lie_apart_whatever_the_sizes(blocks, n, m):
    offsets, total = pack(blocks)
    sizes = {"n": n, "m": m}
    end = evaluate(total, sizes)
    at = {name: evaluate(offset, sizes) for name, offset in offsets.items()}
    for i, a in enumerate(blocks):
        reach = at[a.name] + evaluate(a.nbytes, sizes)
        assert at[a.name] % 64 == 0
        assert reach <= end
        for b in blocks[:i]:
            if a.first <= b.last and b.first <= a.last:
                assert reach <= at[b.name] or at[b.name] + evaluate(b.nbytes, sizes) <= at[a.name]


def test_blocks_in_turn_share_a_slot():
    blocks = [Block(f"b{i}", 64 * _N, i, i + 1) for i in range(9)]
    assert pack(blocks)[1] == 128 * _N


def test_what_data_decides_has_room_for_the_most():
    """`k` is known when the kernel has run; the caller gives `n` alone."""
    k = dim("k", 0, 2 * _N, 5)
    text = """@graph(n=dim(1, 40, 10), k=dim(0, 2*n, 5))
def g(x: f32[n, 16]):
    def first(x: f32[n, 16]):
        a: f32[k, 16] = Relu(x)
        return a
    a: f32[k, 16] = Fused[first](x)
    def second(a: f32[k, 16]):
        y: f32[k, 16] = Exp(a)
        return y
    y: f32[k, 16] = Fused[second](a)
    return y
"""
    graph = parse_ir(text)
    assert graph.nodes[0].outputs[0].type.shape == (k, 16)
    plan = plan_memory(extract_tasks(graph)[1])
    assert plan.workspace_bytes == 128 * _N


def test_a_chain_needs_two_buffers():
    """Whatever the length: each kernel's operand is free once it has run."""
    blocks = [Block(f"b{i}", 1000, i, i + 1) for i in range(20)]
    assert pack_blocks(blocks)[1] == alive_at_once(blocks) == 2048


def test_a_gap_is_used_before_memory_grows():
    blocks = [
        Block("left", 1024, 0, 2),
        Block("gap", 512, 0, 0),
        Block("right", 640, 0, 2),
        Block("small", 256, 2, 2),
    ]
    offsets, total = pack_blocks(blocks)
    assert total == 1024 + 512 + 640
    assert offsets["small"] >= 1024 + 640 or offsets["small"] == offsets["gap"]


def test_what_ends_highest_is_placed_first_in_the_next_attempt():
    """By size alone, `wide` finds 128 bytes on either side of `long`, and room above all."""
    blocks = [
        Block("wide", 192, 5, 5),
        Block("short", 128, 3, 3),
        Block("middle", 128, 3, 4),
        Block("long", 128, 3, 5),
    ]
    assert pack_blocks(blocks)[1] == alive_at_once(blocks) == 384


def test_many_blocks_are_packed_once():
    """Attempts take time by the square of the blocks."""
    assert _attempts(32) > 50
    assert _attempts(5000) == 0
    blocks = [Block(f"b{i}", 64 * (i % 7 + 1), i, i + i % 3) for i in range(1500)]
    assert alive_at_once(blocks) <= pack_blocks(blocks)[1] <= 1.5 * alive_at_once(blocks)


_GRAPH = """@graph
def g(x: f32[1, 64], w: f32[64]):
    shape: i64[2] = constant([8, 8])
    def first(x: f32[1, 64]):
        a: f32[1, 64] = Relu(x)
        return a
    a: f32[1, 64] = Fused[first](x)
    v: f32[8, 8] = Reshape(a, shape)
    def second(v: f32[8, 8]):
        b: f32[8, 8] = Exp(v)
        return b
    b: f32[8, 8] = Fused[second](v)
    def third(v: f32[8, 8], b: f32[8, 8]):
        c: f32[8, 8] = Add(v, b)
        return c
    c: f32[8, 8] = Fused[third](v, b)
    y: f32[1, 64] = Reshape(c, shape)
    return y
"""


def test_memory_of_the_threads_own_lies_at_one_place_behind_all_values():
    program = extract_tasks(parse_ir(_GRAPH))[1]
    without = plan_memory(program, {"b": 70_000})
    plan = plan_memory(program, {"b": 70_000}, {"a": 5000, "c": 3000})
    end = without.workspace_bytes
    assert plan.places[scratch_of("a")] == plan.places[scratch_of("c")]
    assert plan.places[scratch_of("a")] == Place(Segment.WORKSPACE, 0, end)
    assert plan.slice_bytes == 5000
    assert plan.workspace_bytes == end + 5000
    assert plan.lower_bound == without.lower_bound + 5000
    assert plan.places.items() >= without.places.items()


def test_memory_of_the_threads_own_is_laid_over_values_where_it_is_much():
    program = extract_tasks(parse_ir(_GRAPH))[1]
    plan = plan_memory(program, {"b": 700}, {"a": 5000, "c": 3000})
    assert plan.slice_bytes == 0
    assert plan == plan_memory(program, {"b": 700, "a": 5000, "c": 3000})


def test_places():
    """A view lies where its operand does, an output where the caller wants it; a kernel's own
    workspace is apart from what is alive around it."""
    plan = plan_memory(extract_tasks(parse_ir(_GRAPH))[1], {"b": 700})
    assert plan.places["x"] == Place(Segment.INPUT, 0)
    assert plan.places["w"] == Place(Segment.INPUT, 1)
    assert plan.places["shape"] == Place(Segment.PARAMS, 0)
    assert plan.places["c"] == plan.places["y"] == Place(Segment.OUTPUT, 0)
    assert plan.places["a"] == plan.places["v"]
    assert plan.places["a"].segment is plan.places["b"].segment is Segment.WORKSPACE
    spans = [
        (plan.places["a"].offset, 256),
        (plan.places["b"].offset, 256),
        (plan.places[scratch_of("b")].offset, 700),
    ]
    spans.sort()
    assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(spans))
    assert plan.workspace_bytes == plan.lower_bound == 256 + 256 + 704


def test_an_output_that_is_an_input_is_a_defect():
    text = "@graph\ndef g(x: f32[4]):\n    return x\n"
    with pytest.raises(CompilerError, match="output x has no memory of its own"):
        plan_memory(extract_tasks(parse_ir(text))[1])
