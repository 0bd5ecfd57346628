"""Programs placed in spaces compute the same, and need every copy and wait that they have."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.errors import CompilerError
from farrier.frontends.onnx.importer import import_model
from farrier.ir.parser import parse_ir
from farrier.ops import run_graph
from farrier.partition import extract_tasks
from farrier.partition.placement import Placement, place
from farrier.partition.plan_memory import Segment
from farrier.partition.print_program import print_driver
from farrier.partition.program import Branch, Copy, Repeat, Shape, Wait, steps_in
from farrier.partition.verify_program import verify_driver
from farrier.passes import optimize
from tests.control_flow.test_models import INT64, branching, info, looping, model, node
from tests.partition.numpy_devices import ALIGNMENT, FRAME, Placed
from tests.passes.graph_tools import SETTINGS, image_networks, random_inputs


def by_bits(bits, spaces=("host", FRAME)):
    """Return sites that follow the bits of a number, call by call."""
    sites = {}

    def site_of(task, call):
        return sites.setdefault(
            call.outputs[0].name, Placement(spaces[bits // len(spaces) ** len(sites) % len(spaces)])
        )

    return site_of


def without_one(steps):
    """Yield the steps without one copy or wait, for each of them, and that step."""
    for at, step in enumerate(steps):
        ahead, behind = steps[:at], steps[at + 1 :]
        match step:
            case Copy() | Wait():
                yield (*ahead, *behind), step
            case Branch():
                for field in ("then", "otherwise"):
                    for left, gone in without_one(getattr(step, field)):
                        yield (*ahead, dataclasses.replace(step, **{field: left}), *behind), gone
            case Repeat():
                for left, gone in without_one(step.body):
                    yield (*ahead, dataclasses.replace(step, body=left), *behind), gone


def assert_needs_everything(program):
    """The verifier misses each copy and each wait."""
    for steps, gone in without_one(program.steps):
        with pytest.raises(CompilerError, match=r"is missing|is not written"):
            refuse(dataclasses.replace(program, steps=steps), gone)


def refuse(program, gone):
    verify_driver(program)
    pytest.fail(f"{gone} is not missed in\n{print_driver(program)}")


def assert_same(graph, placed, inputs, sizes=()):
    outputs = placed.run(inputs, sizes)
    for name, wanted in run_graph(graph, inputs).items():
        np.testing.assert_allclose(outputs[name], wanted, rtol=1e-6, atol=1e-6)


@settings(max_examples=25)
@given(image_networks, st.integers(0, 1 << 40))
def test_networks_compute_the_same_in_any_spaces(network, bits):
    graph = optimize(network, SETTINGS)
    placed = Placed.of(graph, by_bits(bits))
    assert_needs_everything(placed.program)
    assert_same(graph, placed, random_inputs(graph))


@settings(max_examples=10)
@given(image_networks, st.integers(0, 1 << 40))
def test_two_devices_exchange_values_by_way_of_the_host(network, bits):
    graph = optimize(network, SETTINGS)
    placed = Placed.of(graph, by_bits(bits, ("host", FRAME, "other")))
    assert_needs_everything(placed.program)
    assert_same(graph, placed, random_inputs(graph))


def inputs_of(graph, *scalars, scale=1.0):
    """Return a random first input, and the others as they are."""
    first, *others = graph.inputs
    inputs = {first.name: random_inputs(graph)[first.name] * np.float32(scale)}
    for value, scalar in zip(others, scalars, strict=True):
        inputs[value.name] = np.array(scalar, value.type.dtype.numpy)
    return inputs


BRANCHING = optimize(import_model(branching("c")).graph, SETTINGS)
LOOPING = optimize(import_model(looping("n", "c", "below")).graph, SETTINGS)


@settings(max_examples=20)
@given(st.integers(0, 1 << 12), st.booleans())
def test_branches_and_what_stands_around_them(bits, condition):
    placed = Placed.of(BRANCHING, by_bits(bits))
    assert_needs_everything(placed.program)
    assert_same(BRANCHING, placed, inputs_of(BRANCHING, condition))


@settings(max_examples=25)
@given(st.integers(0, 1 << 12), st.integers(0, 4), st.booleans())
def test_loops_and_what_they_carry(bits, trips, condition):
    placed = Placed.of(LOOPING, by_bits(bits))
    assert_needs_everything(placed.program)
    assert_same(LOOPING, placed, inputs_of(LOOPING, trips, condition))


STACKING = optimize(
    import_model(
        looping("n", "c", "below", (node("Add", ["h", "h_next"], ["part"]),)),
    ).graph,
    SETTINGS,
)


@settings(max_examples=20)
@given(st.integers(0, 1 << 9), st.integers(0, 4))
def test_a_stack_has_as_many_slices_as_the_loop_has_run(bits, trips):
    placed = Placed.of(STACKING, by_bits(bits))
    assert_needs_everything(placed.program)
    inputs = inputs_of(STACKING, trips, True, scale=0.01)
    assert_same(STACKING, placed, inputs, (max(trips, 1),))
    if trips > 1:
        check, size = placed.run(inputs, (1,))
        assert (check.is_final, size) == (False, 2)


COUNTING = optimize(
    import_model(
        model(
            [
                node("Relu", ["x"], ["r"]),
                node("NonZero", ["r"], ["places"]),
                node("Transpose", ["places"], ["rows"], perm=[1, 0]),
                node("GatherND", ["r", "rows"], ["picked"]),
                node("Tanh", ["picked"], ["y"]),
            ],
            [info("x", shape=[2, 5])],
            [info("y"), info("places", INT64)],
        )
    ).graph,
    SETTINGS,
)


@given(st.integers(0, 1 << 5))
def test_a_kernel_of_a_device_decides_a_size(bits):
    placed = Placed.of(COUNTING, by_bits(bits))
    assert_needs_everything(placed.program)
    assert_same(COUNTING, placed, random_inputs(COUNTING))


def test_a_copy_of_a_constant_is_called():
    """It reads no input that the caller could have put where the copy would."""
    graph = parse_ir(
        """@graph
def g(x: f32[2]):
    w: f32[2] = constant([1.0, 2.0])
    def copy(w: f32[2]):
        a: f32[2] = Relayout(w)
        return a
    y: f32[2] = Fused[copy](w)
    def same(x: f32[2]):
        b: f32[2] = Relayout(x)
        return b
    z: f32[2] = Fused[same](x)
    return y, z
"""
    )
    assert_same(
        graph, Placed.of(graph, lambda task, call: Placement()), {"x": np.ones(2, np.float32)}
    )


@settings(max_examples=10)
@given(image_networks)
def test_values_of_a_space_are_aligned_as_it_needs(network):
    graph = optimize(network, SETTINGS)
    placed = Placed.of(graph, lambda task, call: Placement(FRAME))
    memories, _ = placed.planned()
    offsets = [
        place.offset
        for name, place in memories[FRAME].places.items()
        if name not in placed.program.homes and place.segment is Segment.WORKSPACE
    ]
    assert offsets
    assert all(offset % ALIGNMENT == 0 for offset in offsets)


def test_a_loop_copies_once_what_stays_the_same():
    placed = Placed.of(LOOPING, by_bits(0b111110))
    (loop,) = (step for step in placed.program.steps if isinstance(step, Repeat))
    around = [step.target.name for step in placed.program.steps if isinstance(step, Copy)]
    inside = [step.target.name for step in loop.body if isinstance(step, Copy)]
    assert around[0] == loop.carried[0].initial.name  # It is read in the loop, too.
    assert inside == [f"{loop.iteration.name}@{FRAME}", loop.again.name]


def test_one_space_is_the_identity():
    _, program = extract_tasks(LOOPING)
    assert place(program, lambda call: Placement()) is program
    verify_driver(program)


def test_a_small_program_as_text():
    graph = parse_ir(
        """@graph
def g(x: f32[2, 3]):
    w: f32[3, 3] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    def one(x: f32[2, 3], w: f32[3, 3]):
        a: f32[2, 3] = MatMul(x, w)
        return a
    a: f32[2, 3] = Fused[one](x, w)
    def two(a: f32[2, 3]):
        y: f32[2, 3] = Relu(a)
        return y
    y: f32[2, 3] = Fused[two](a)
    return y
"""
    )
    shapes = (Shape("", (2,)), Shape("", (3, 4), (32,)))
    placed = Placed.of(
        graph,
        lambda task, call: Placement(FRAME if call.outputs[0].name == "a" else "host", shapes),
    )
    first, second = (call.task for call in placed.program.calls)
    assert (
        print_driver(placed.program)
        == f"""driver(x: f32[2, 3]):
    w@frame: f32[3, 3] in frame = constant
    a lies in frame
    x@frame lies in frame
    copy(x -> x@frame)
    launch[frame] {first}(x@frame, w@frame) -> a grid (2) block () grid (3, 4) block (32)
    copy(a -> a@host)
    wait(frame)
    call {second}(a@host) -> y
    return y
"""
    )
    assert_same(graph, placed, {"x": np.ones((2, 3), np.float32)})
    assert sum(isinstance(step, Wait) for step in steps_in(placed.program.steps)) == 1
