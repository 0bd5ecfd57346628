"""Neighbouring vectors that one instruction loads or stores, and what stays where it is."""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.targets import parse_target
from farrier.targets.cpu.codegen import assembly, emit_function
from farrier.targets.cpu.codegen.vector_pairs import paired
from farrier.targets.cpu.rules import for_program
from tests.codegen.emulated import needs_qemu, run_emulated
from tests.lowering import final_loops
from tests.space.space_programs import Region, nchwc, tensor

REACH = 1008
RPI5 = parse_target("rpi5")


def load(name, pointer, displacement):
    return [
        f"  %{name}.at = getelementptr i8, ptr {pointer}, i64 {displacement}",
        f"  %{name} = load <4 x float>, ptr %{name}.at, align 4",
    ]


def loads(displacements):
    return [line for n, at in enumerate(displacements) for line in load(f"v{n}", "%p", at)]


def store(name, pointer, displacement):
    return [
        f"  %{name}.at = getelementptr i8, ptr {pointer}, i64 {displacement}",
        f"  store <4 x float> %x, ptr %{name}.at, align 4",
    ]


class Access(NamedTuple):
    pointer: str
    displacement: int
    is_store: bool
    stores_before: int


def accesses(lines):
    """What is accessed, by the name of its address."""
    at, found, stores = {}, {}, 0
    for line in lines:
        if made := re.match(r"  (%\S+) = getelementptr i8, ptr (%\S+), i64 (-?\d+)", line):
            pointer, start = at.get(made[2], (made[2], 0))
            at[made[1]] = pointer, start + int(made[3])
        elif hidden := re.match(r'  (%\S+) = call ptr asm "", "=r,0"\(ptr (%\S+)\)', line):
            at[hidden[1]] = at[hidden[2]]
        elif used := re.search(r"(load|store) .*ptr (%\S+), align", line):
            is_store = used[1] == "store"
            found[used[2]] = Access(*at[used[2]], is_store, stores)
            stores += is_store
    return found


steps = st.tuples(
    st.sampled_from([load, load, load, store]),
    st.sampled_from(["%a", "%b"]),
    st.integers(-80, 300).map(lambda vectors: 16 * vectors),
)


@given(st.lists(st.one_of(steps, st.just("next:")), max_size=60))
def test_what_is_accessed_stays_and_so_does_its_order_among_stores(drawn):
    lines = []
    for number, step in enumerate(drawn):
        if isinstance(step, str):
            lines.append(f"next{number}:")
        else:
            access, pointer, displacement = step
            lines += access(f"v{number}", pointer, displacement)
    assert accesses(paired(lines, REACH)) == accesses(lines)


def test_vectors_out_of_reach_share_a_pointer_of_their_own():
    lines = loads(range(3136, 3200, 16))
    start, hidden, *rest = paired(lines, REACH)
    assert start.endswith("getelementptr i8, ptr %p, i64 3136")
    assert hidden.endswith(f"(ptr {start.split()[0]})")
    assert [int(line.split()[-1]) for line in rest[::2]] == [0, 16, 32, 48]


@pytest.mark.parametrize("displacements", [(3136, 3152, 3168), (0, 16, 32, 48), (2000, 6000)])
def test_too_few_vectors_and_those_within_reach_keep_theirs(displacements):
    lines = loads(displacements)
    assert paired(lines, REACH) == lines


def test_a_load_moves_up_to_its_neighbour():
    first, second, use = load("v0", "%p", 0), load("v1", "%p", 16), ["  %y = fneg <4 x float> %v0"]
    assert paired([*first, *use, *second], REACH) == [*first, *second, *use]


@pytest.mark.parametrize(
    "between",
    [store("s", "%q", 0), ["  call void @f(ptr %p)"], ["next:"], ["  %y = fneg float %x"] * 64],
    ids=["a store", "a call", "another block", "much else"],
)
def test_a_load_stays_behind_what_it_must_not_pass(between):
    lines = [*load("v0", "%p", 0), *between, *load("v1", "%p", 16)]
    assert paired(lines, REACH) == lines


def conv_space(channels, size, outputs):
    x = tensor("x", 1, channels, size, size, layout=nchwc())
    region = Region(x).then(
        "Conv",
        tensor("w", outputs, channels, 1, 1),
        shape=(1, outputs, size, size),
        kernel_shape=(1, 1),
        strides=(1, 1),
        dilations=(1, 1),
        pads=(0,) * 4,
        group=1,
    )
    return for_program(region.program, RPI5, 1)


def built(space):
    return final_loops(space, space.default(), RPI5)


def test_the_hot_loop_loads_pairs_and_counts_down():
    text = assembly(emit_function(built(conv_space(64, 14, 96)), RPI5), RPI5)
    loop = max(re.split(r"\n\.LBB\w+:", text), key=lambda block: block.count("fmla"))
    loop = loop[: loop.index("b.ne")]
    assert loop.count("fmla") >= 100
    pairs, single = (len(re.findall(rf"\t{name}\tq", loop)) for name in ("ldp", "ldr"))
    assert pairs > 4 * single
    assert re.search(r"\tsubs\tx\d+, x\d+, #1\n", loop)
    assert "[sp" not in loop


@needs_qemu
@pytest.mark.parametrize(("channels", "size", "outputs"), [(64, 14, 96), (12, 5, 20), (132, 7, 8)])
def test_convolutions_are_right(channels, size, outputs):
    rng = np.random.default_rng(channels)
    shapes = {"x": (1, channels, size, size), "w": (outputs, channels, 1, 1)}
    inputs = {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    function = dataclasses.replace(built(conv_space(channels, size, outputs)), name="kernel")
    (found,) = run_emulated(function, inputs, RPI5, "neoverse-n1").values()
    x, w = (array.astype(np.float64) for array in inputs.values())
    exact = np.einsum("ncyx,oc->noyx", x, w[..., 0, 0])
    np.testing.assert_allclose(found, exact, atol=2e-6 * np.abs(exact).max())
