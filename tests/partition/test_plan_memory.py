"""Blocks alive at one step never share bytes, whatever the blocks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.errors import CompilerError
from farrier.ir.dim import Dim, dim, evaluate
from farrier.ir.parser import parse_ir
from farrier.partition import extract_tasks
from farrier.partition.packing import Block, _attempts, alive_at_once, pack_blocks
from farrier.partition.plan_memory import (
    GAP_BYTES,
    Place,
    Segment,
    plan_memory,
    scratch_of,
    slices_of,
)
from farrier.partition.stacking import _MOST_TERMS, pack, packed

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


def _at(stack, sizes):
    """A stack's offsets and bytes at some sizes."""
    values = dict(sizes)
    for top, extents in stack.tops.items():
        values[top.name] = max(evaluate(extent, values) for extent in extents)
    offsets = {name: evaluate(offset, values) for name, offset in stack.offsets.items()}
    return offsets, evaluate(stack.nbytes, values)


@given(symbolic_blocks(), st.integers(1, 40), st.integers(0, 9))
def test_blocks_lie_apart_whatever_the_sizes(blocks, n, m):
    sizes = {"n": n, "m": m}
    at, end = _at(pack(blocks), sizes)
    for i, a in enumerate(blocks):
        reach = at[a.name] + evaluate(a.nbytes, sizes)
        assert at[a.name] % 64 == 0
        assert reach <= end
        for b in blocks[:i]:
            if a.first <= b.last and b.first <= a.last:
                assert reach <= at[b.name] or at[b.name] + evaluate(b.nbytes, sizes) <= at[a.name]


@given(symbolic_blocks())
def test_typical_sizes_take_what_their_packing_takes(blocks):
    assert _at(pack(blocks), {"n": 10, "m": 3})[1] <= packed(blocks)[1]


def test_blocks_in_turn_share_a_slot():
    blocks = [Block(f"b{i}", 64 * _N, i, i + 1) for i in range(9)]
    assert pack(blocks).nbytes == 128 * _N


def test_heights_stay_short_however_many_blocks_there_are():
    """Sizes decide which of the two blocks that alternate is the larger one; without names each
    height contains all those below it."""
    blocks = [Block(f"b{i}", (i % 5 + 1) * (_N, 9 * _M)[i % 2], i, i + 2) for i in range(400)]
    stack = pack(blocks)
    heights = [*stack.offsets.values(), stack.nbytes, *itertools.chain(*stack.tops.values())]
    assert (
        max(len(height.terms) for height in heights if isinstance(height, Dim)) <= _MOST_TERMS + 1
    )
    assert {str(symbol) for symbol in stack.tops} > {"top.0"}


def test_what_data_decides_has_room_for_the_most():
    """`k` is known when the kernel has run; the caller passes `n` alone."""
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


@pytest.mark.parametrize("seed", range(30))
def test_few_blocks_are_packed_as_well_as_can_be(seed):
    """Each block in turn at the lowest place that is free: some order of them needs least."""
    rng = np.random.default_rng(seed)
    blocks = []
    for number in range(6):
        first = int(rng.integers(6))
        blocks.append(Block(f"b{number}", 64 * int(rng.integers(1, 9)), first, first + 2))
    least = min(map(_stacked, itertools.permutations(blocks)))
    assert least <= pack_blocks(blocks)[1] <= 1.1 * least


def _stacked(order):
    placed = []
    for block in order:
        near = [p for p in placed if p[2].first <= block.last and block.first <= p[2].last]
        offset = 0
        for start, end, _ in sorted(near, key=lambda p: p[0]):
            if start - offset >= block.nbytes:
                break
            offset = max(offset, end)
        placed.append((offset, offset + block.nbytes, block))
    return max(end for _, end, _ in placed)


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


def test_slices_lie_apart_at_one_place_behind_all_values():
    program = extract_tasks(parse_ir(_GRAPH))[1]
    without = plan_memory(program, {"b": 10 << 20})
    plan = plan_memory(program, {"b": 10 << 20}, {"a": 5120, "c": 3072}, threads=3)
    step = 5120 + GAP_BYTES
    end = Place(Segment.WORKSPACE, 0, without.workspace_bytes)
    assert plan.places[slices_of("a")] == plan.places[slices_of("c")] == end
    assert plan.slice_steps == {"a": step, "c": step}
    assert plan.workspace_bytes == without.workspace_bytes + 2 * step + 5120
    assert plan.lower_bound == without.lower_bound
    assert plan.places.items() >= without.places.items()


def test_slices_are_laid_over_values_where_they_are_much():
    program = extract_tasks(parse_ir(_GRAPH))[1]
    slices = {"a": 2 << 20, "c": 1 << 20}
    plan = plan_memory(program, {"b": 4 << 20}, slices, threads=2)
    assert plan.slice_steps == {name: nbytes + GAP_BYTES for name, nbytes in slices.items()}
    assert plan.workspace_bytes == (4 << 20) + GAP_BYTES + 256
    assert plan.lower_bound == (4 << 20) + 2 * 256


@pytest.mark.parametrize("threads", [1, 2, 5, 64])
@pytest.mark.parametrize("seed", range(5))
def test_slices_are_spread_within_a_tenth(seed, threads):
    program = extract_tasks(parse_ir(_GRAPH))[1]
    sizes = (64 * np.random.default_rng(seed).geometric(1e-4, 3)).tolist()
    scratch, slices = {"b": sizes[0]}, dict(zip("ac", sizes[1:], strict=True))
    tight = {**scratch, **{name: threads * nbytes for name, nbytes in slices.items()}}
    least = plan_memory(program, tight)
    plan = plan_memory(program, scratch, slices, threads)
    assert least.workspace_bytes <= plan.workspace_bytes <= 1.1 * least.workspace_bytes
    assert plan.lower_bound == least.lower_bound
    for name, alive in (("a", "a"), ("c", "ab")):
        step = plan.slice_steps[name]
        assert step >= slices[name]
        start = plan.places[slices_of(name)].offset
        end = start + (threads - 1) * step + slices[name]
        assert end <= plan.workspace_bytes
        for value in alive:
            if plan.places[value].segment is Segment.WORKSPACE:
                at = plan.places[value].offset
                assert at + 256 <= start or end <= at


def test_places():
    """A view lies where its operand does, an output where the caller wants it; a kernel's own
    workspace is apart from all that is alive around it."""
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
