"""Neighbouring vectors that one instruction loads or stores, and what stays where it is."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.ir import instr
from farrier.ir.instr import F32, PTR, Branch, Function, Loop, Variable, While, index
from farrier.targets import parse_target
from farrier.targets.cpu.codegen import assembly, emit_function
from farrier.targets.cpu.codegen.pair_vectors import pair_vectors
from farrier.targets.cpu.rules import for_program
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.llvm_text import lines_of
from tests.lowering import final_loops
from tests.targets.cpu.codegen.emulated import needs_qemu, run_emulated
from tests.targets.cpu.rules.space_programs import Region, nchwc, tensor

REACH = 1008
RPI5 = parse_target("rpi5")
A, B = Variable(PTR, "a"), Variable(PTR, "b")
X = Variable(F32.of(4), "x")


def load(b, pointer, displacement):
    return b.load(F32.of(4), b.emit(instr.OFFSET, PTR, (pointer, index(displacement))), 4)


def store(b, pointer, displacement):
    b.store(X, b.emit(instr.OFFSET, PTR, (pointer, index(displacement))), 4)


def paired(builder):
    return list(pair_vectors(Function("f", (A, B, X), builder.body, None), REACH).body)


def flat(body):
    return [x for part in body for x in (flat(part) if isinstance(part, list) else [part])]


def accesses(body):
    """Return where accesses go, each with the stores before it, in the order of the instructions
    that were made for them."""
    reached, ends, stores = {}, {}, 0
    for x in flat(body):
        if x.operation is instr.OFFSET:
            pointer, start = reached.get(x.operands[0], (x.operands[0], 0))
            reached[x] = pointer, start + x.operands[1].number
        elif x.operation is instr.OPAQUE:
            reached[x] = reached[x.operands[0]]
        elif x.operation in (instr.LOAD, instr.STORE):
            is_store = x.operation is instr.STORE
            ends[x] = *reached[x.operands[-1]], is_store, stores
            stores += is_store
    return ends


steps = st.tuples(
    st.sampled_from([load, load, load, store]),
    st.sampled_from([A, B]),
    st.integers(-80, 300).map(lambda vectors: 16 * vectors),
)


@given(st.lists(steps, max_size=60))
def test_accesses_keep_their_places_and_their_order_among_stores(drawn):
    b = Builder()
    for access, pointer, displacement in drawn:
        access(b, pointer, displacement)
    before = accesses(b.body)
    assert accesses(paired(b)) == before


def test_vectors_out_of_reach_share_a_pointer_of_their_own():
    b = Builder()
    for displacement in range(3136, 3200, 16):
        load(b, A, displacement)
    start, hidden, *rest = paired(b)
    assert start.operands == (A, index(3136))
    assert (hidden.operation, hidden.operands) == (instr.OPAQUE, (start,))
    assert [x.operands for x in rest[::2]] == [(hidden, index(at)) for at in (0, 16, 32, 48)]
    assert len({x.number for x in (start, hidden, *rest)}) == 10


@pytest.mark.parametrize("displacements", [(3136, 3152, 3168), (0, 16, 32, 48), (2000, 6000)])
def test_too_few_vectors_and_those_within_reach_keep_theirs(displacements):
    b = Builder()
    for displacement in displacements:
        load(b, A, displacement)
    before = lines_of(b.body)
    assert lines_of(paired(b)) == before


def test_a_load_moves_up_to_its_neighbour():
    b = Builder()
    first = load(b, A, 0)
    use = b.fneg(first)
    second = load(b, A, 16)
    assert paired(b)[1:] == [first, second.operands[0], second, use]


def _store(b):
    store(b, B, 0)


def _call(b):
    b.put(instr.CALL, (instr.symbol("f"), A))


def _loop(b):
    b.body.append(Loop((), [], instr.number_of(instr.I1, False), b.labels(2)))


def _much(b):
    for _ in range(64):
        b.emit(instr.FNEG, X.type, (X,))


@pytest.mark.parametrize("between", [_store, _call, _loop, _much])
def test_a_load_stays_behind_what_it_must_not_pass(between):
    b = Builder()
    load(b, A, 0)
    between(b)
    load(b, A, 16)
    before = lines_of(b.body)
    assert lines_of(paired(b)) == before


def test_bodies_of_loops_and_branches_are_paired():
    b, condition = Builder(), instr.number_of(instr.I1, False)
    with b.nested() as body:
        first = load(b, A, 0)
        b.fneg(first)
        load(b, A, 16)
    _, _, use, _, _ = body
    for statement, inside in (
        (Loop((), list(body), condition, 0), lambda x: x.body),
        (While((), list(body), condition, [], 0), lambda x: x.test),
        (Branch(condition, list(body), [], (), 0), lambda x: x.then),
    ):
        function = Function("f", (A,), [statement], None)
        assert inside(pair_vectors(function, REACH).body[0])[-1] is use


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
    (result,) = run_emulated(function, inputs, RPI5, "neoverse-n1").values()
    x, w = (array.astype(np.float64) for array in inputs.values())
    exact = np.einsum("ncyx,oc->noyx", x, w[..., 0, 0])
    np.testing.assert_allclose(result, exact, atol=2e-6 * np.abs(exact).max())
