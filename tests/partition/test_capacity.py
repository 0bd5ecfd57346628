"""A program that takes more memory, or more blocks or threads, than the machine has is refused."""

from __future__ import annotations

import dataclasses

import pytest

from farrier.errors import MemoryLimitError
from farrier.ir.dim import as_extent
from farrier.ir.parser import parse_ir
from farrier.partition import extract_tasks
from farrier.partition.capacity import check_launches, check_memories
from farrier.partition.model_plan import ModelPlan
from farrier.partition.placement import Placement, place
from farrier.partition.program import Shape
from farrier.targets.target import MemorySpace, ParallelAxis
from tests.partition.numpy_devices import FRAME, interface

_GRAPH = """@graph(n=dim(1, 1000, 100))
def g(x: f32[n, 4]):
    w: f32[4] = constant([0.5, 0.5, 0.5, 0.5])
    def first(x: f32[n, 4], w: f32[4]):
        a: f32[n, 4] = Mul(x, w)
        return a
    a: f32[n, 4] = Fused[first](x, w)
    def second(a: f32[n, 4]):
        y: f32[4, n] = Transpose(a, perm=[1, 0])
        return y
    y: f32[4, n] = Fused[second](a)
    return y
"""


def placed(shape=Shape()):
    tasks, program = extract_tasks(parse_ir(_GRAPH))
    kernels = {
        key: dataclasses.replace(interface(task), space=FRAME) for key, task in tasks.items()
    }
    return place(program, lambda _: Placement(FRAME, (shape,))), kernels


def test_a_memory_holds_the_weights_and_the_values_at_the_typical_sizes():
    program, kernels = placed()
    plan = ModelPlan.of(program, kernels, 1)
    values = plan.memories[FRAME].workspace_at({"n": 100})
    assert values >= 2 * 100 * 4 * 4
    needed = values + 4 * 4
    for spaces in (
        [MemorySpace(FRAME, nbytes=needed)],
        [MemorySpace(FRAME)],
        [MemorySpace("x", 1)],
    ):
        check_memories(plan, spaces)
    with pytest.raises(MemoryLimitError, match=f"{needed} bytes of the memory 'frame'") as caught:
        check_memories(plan, [MemorySpace(FRAME, nbytes=needed - 1)])
    assert "--shape" in caught.value.hint


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (Shape(grid=(50, 2), block=(8, 8)), ""),
        (Shape(grid=(51, 2)), "a launch takes 102 blocks .* the machine allows 100"),
        (Shape(block=(65,)), "a launch takes 65 threads .* the machine allows 64"),
    ],
)
def test_a_launch_has_as_many_blocks_and_threads_as_the_axes(shape, message):
    program, _ = placed(shape)
    axes = ParallelAxis("blocks", 100), ParallelAxis("threads", 64)
    check_launches(program, [ParallelAxis("lanes", 1)])
    if not message:
        check_launches(program, axes)
        return
    with pytest.raises(MemoryLimitError, match=message):
        check_launches(program, axes)


def test_blocks_of_open_sizes_count_at_the_typical_ones():
    program, _ = placed()
    (dim,) = program.dims
    program, _ = placed(Shape(grid=(as_extent(dim),)))
    for count in (99, 100):
        axes = [ParallelAxis("blocks", count)]
        if count < 100:
            with pytest.raises(MemoryLimitError, match="100 blocks at the typical sizes"):
                check_launches(program, axes)
        else:
            check_launches(program, axes)
