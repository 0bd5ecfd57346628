"""Programs wait for all that they must wait for: every token that is taken away is missed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.ir.parser import parse_ir
from farrier.targets.dae.description import Accelerator, Queues
from farrier.targets.dae.instructions import Instruction, Kind, Module, Pad
from farrier.targets.dae.machines import VTA
from farrier.targets.dae.rules import space
from farrier.targets.dae.simulator.functional import Functional
from farrier.targets.dae.simulator.timed import simulate
from farrier.targets.dae.tokens import TokenError, accesses, pops_and_pushes, prove

# A convolution whose tiles share weights, with a scale for each channel and another tensor.
PROGRAM = """
@program
def conv(x: i8[1, 32, 8, 8] @ layout(0, 1 / 16, 2, 3, 1 % 16), w: i8[32, 32, 3, 3] in constant, s: f32[1, 32, 1, 1] in constant, r: i8[1, 32, 6, 6] @ layout(0, 1 / 16, 2, 3, 1 % 16)):
    c: i32[1, 32, 6, 6] in workspace
    for n, oc, oy, ox in axes(1, 32, 6, 6):
        c[n, oc, oy, ox] = sum(cast(i32, x[n, ic, oy + kh, ox + kw]) * cast(i32, w[oc, ic, kh, kw]) for ic, kh, kw in axes(32, 3, 3))
    y: f32[1, 32, 6, 6] @ layout(0, 1 / 16, 2, 3, 1 % 16)
    for n, oc, oy, ox in axes(1, 32, 6, 6):
        y[n, oc, oy, ox] = cast(f32, c[n, oc, oy, ox]) * s[0, oc, 0, 0] + cast(f32, r[n, oc, oy, ox])
    return y
"""  # noqa: E501
TILINGS = [
    {"blocks": 1, "rows": 2, "columns": 6, "inputs": 1, "threads": 2, "by_points": 0},
    {"blocks": 1, "rows": 2, "columns": 6, "inputs": 2, "threads": 2, "by_points": 1},
    {"blocks": 2, "rows": 3, "columns": 3, "inputs": 2, "threads": 1, "by_points": 0},
]
TOKENS = ("pop_previous", "pop_next", "push_previous", "push_next")


def _program(tiling, text: str = PROGRAM) -> list[Instruction]:
    code = space(parse_ir(text), VTA).schedule(tiling).function.code
    return list(code.instructions)


POOL = """
@program
def pool(x: i8[1, 32, 9, 8] @ layout(0, 1 / 16, 2, 3, 1 % 16)):
    wide: i32[1, 32, 4, 4] @ layout(0, 1 / 16, 2, 3, 1 % 16) in workspace
    for n, c, oy, ox in axes(1, 32, 4, 4):
        wide[n, c, oy, ox] = max(cast(i32, x[n, c, oy * 2 + kh, ox * 2 + kw]) for kh, kw in axes(3, 2))
    y: i8[1, 32, 4, 4] @ layout(0, 1 / 16, 2, 3, 1 % 16)
    for n, c, oy, ox in axes(1, 32, 4, 4):
        y[n, c, oy, ox] = cast(i8, wide[n, c, oy, ox])
    return y
"""  # noqa: E501
ADDITION = """
@program
def add(a: i8[24, 32], b: u8[24, 32]):
    y: i32[24, 32]
    for m, n in axes(24, 32):
        y[m, n] = cast(i32, a[m, n]) + cast(i32, b[m, n])
    return y
"""
PARTS = {"rows": 2, "columns": 2, "blocks": 1, "inputs": 1, "threads": 2, "by_points": 0}


@pytest.mark.parametrize(
    ("text", "tiling"),
    [
        *((PROGRAM, tiling) for tiling in TILINGS),
        (POOL, PARTS),
        (ADDITION, {**PARTS, "rows": 1}),
    ],
)
def test_every_token_is_missed(text, tiling):
    program = _program(tiling, text)
    prove(program, VTA)
    mutants = 0
    for number, instruction in enumerate(program):
        for token in TOKENS:
            if instruction[token]:
                mutants += 1
                changed = [*program]
                changed[number] = instruction.where(**{token: 0})
                with pytest.raises(TokenError):
                    prove(changed, VTA)
    assert mutants > 20


@pytest.mark.parametrize("tiling", TILINGS)
def test_every_pair_of_a_push_and_its_pop_is_missed(tiling):
    """No count of tokens shows these: the proof finds two accesses that nothing orders."""
    program = _program(tiling)
    pushes: dict[tuple[int, int], list[int]] = {}
    pairs = []
    for number, instruction in enumerate(program):
        popped, pushed = pops_and_pushes(instruction)
        for queue in popped:
            pairs.append((pushes[queue].pop(0), number, queue))
        for queue in pushed:
            pushes.setdefault(queue, []).append(number)
    caught = 0
    for push, pop, (source, target) in pairs:
        changed = [*program]
        toward = "next" if target > source else "previous"
        back = "previous" if target > source else "next"
        changed[push] = changed[push].where(**{f"push_{toward}": 0})
        changed[pop] = changed[pop].where(**{f"pop_{back}": 0})
        if program[pop].kind is Kind.FINISH:
            continue  # It touches nothing, and ends the program.
        with pytest.raises(TokenError, match="no token makes"):
            prove(changed, VTA)
        caught += 1
    assert caught > 10


def test_a_cycle_of_tokens_is_named_by_both_instructions():
    load = Instruction(Kind.LOAD, {"columns": 1, "rows": 1, "pop_next": 1, "push_next": 1})
    compute = Instruction(Kind.ALU, {"pop_previous": 1, "push_previous": 1})
    with pytest.raises(TokenError, match=r"wait for each other: the program never ends"):
        prove([load, compute], VTA)
    with pytest.raises(TokenError, match=r"waits for ever at the instructions 0 \(load\), 1"):
        simulate([load, compute], VTA)
    with pytest.raises(TokenError, match=r"instruction 0 \(alu\) waits for ever"):
        prove([compute.where(push_previous=0)], VTA)
    with pytest.raises(TokenError, match="nobody takes the token"):
        prove([load.where(pop_next=0)], VTA)


def test_an_element_beyond_a_scratchpad_is_named():
    with pytest.raises(TokenError, match="element 2048 is beyond the 2048"):
        prove([Instruction(Kind.ALU, {"to": 2047, "count0": 2, "to0": 1})], VTA)


def _with_elements(memory: int, elements: int) -> Accelerator:
    """Return VTA with so large a scratchpad of inputs, of weights, or of sums."""
    name = ("input", "weight", "sum")[memory]
    nbytes = elements * (VTA.input_bytes, VTA.weight_bytes, VTA.sum_bytes)[memory]
    return dataclasses.replace(VTA, memory=dataclasses.replace(VTA.memory, **{name: nbytes}))


@pytest.mark.parametrize("memory", [Pad.INPUT, Pad.WEIGHT, Pad.SUM])
def test_a_scratchpad_of_one_element_less_is_too_small(memory):
    program = _program(TILINGS[0])
    touched = [each for step in program for each in accesses(step, VTA) if each.memory == memory]
    needed = max(each.end for each in touched)
    prove(program, _with_elements(memory, needed))
    with pytest.raises(TokenError, match=f"element {needed - 1} is beyond the {needed - 1}"):
        prove(program, _with_elements(memory, needed - 1))


@pytest.mark.parametrize("tiling", TILINGS)
def test_queues_of_one_token_either_suffice_or_are_refused(tiling):
    """The proof and the simulator agree on whether a program ends."""
    program = _program(tiling)
    narrow = dataclasses.replace(VTA, queues=Queues(commands=1, tokens=1))
    proven, ended = True, True
    try:
        prove(program, narrow)
    except TokenError:
        proven = False
    try:
        simulate(program, dataclasses.replace(VTA, queues=Queues(tokens=1)))
    except TokenError:
        ended = False
    assert proven == ended


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000))
def test_all_tilings_have_one_result(seed):
    kernel = space(parse_ir(PROGRAM), VTA)
    candidates = kernel.candidates()
    row = candidates[seed % len(candidates)]
    assert np.array_equal(_result(kernel.default()), _result(kernel.decisions(row)))


def _result(tiling) -> np.ndarray:
    function = space(parse_ir(PROGRAM), VTA).schedule(tiling).function
    rng = np.random.default_rng(5)
    *inputs, output = function.params
    memories = [_bytes(rng, buffer) for buffer in inputs]
    memories.append(np.zeros(output.nbytes, np.uint8))
    Functional(VTA).run(function.code.instructions, [memoryview(each) for each in memories])
    return memories[-1]


def _bytes(rng, buffer) -> np.ndarray:
    if buffer.dtype.is_float:
        return rng.uniform(0.001, 0.01, buffer.nbytes // 4).astype("f4").view(np.uint8)
    return rng.integers(0, 256, buffer.nbytes, np.uint8)


def test_two_threads_hide_the_transfers():
    """Modules take as long as with one thread, and the program about as long as one of them."""
    serial, parallel = (
        simulate(_program({**TILINGS[0], "threads": threads}), VTA) for threads in (1, 2)
    )
    assert parallel.cycles < 0.9 * serial.cycles
    assert parallel.bound <= parallel.cycles
    assert serial.busy[Module.COMPUTE] == parallel.busy[Module.COMPUTE]
    assert serial.cycles <= sum(serial.busy.values()) + VTA.queues.commands


def test_more_steps_than_an_instruction_may_take_are_refused():
    loops = {f"count{n}": 2047 for n in range(6)}
    with pytest.raises(TokenError, match="steps, and at most"):
        prove([Instruction(Kind.GEMM, loops)], VTA)


ROW = """
@program
def row(x: i8[1, 32], w: i8[32, 40] in constant):
    y: i32[1, 40]
    for m, n in axes(1, 40):
        y[m, n] = sum(cast(i32, x[m, k]) * cast(i32, w[k, n]) for k in axes(32))
    return y
"""


def test_a_store_of_sums_beyond_a_row_is_refused():
    kernel = space(parse_ir(ROW), VTA)
    code = kernel.schedule(kernel.default()).function.code
    prove(code.instructions, VTA, code.arguments)
    (number,) = (at for at, each in enumerate(code.instructions) if each["omitted"])
    assert code.instructions[number]["omitted"] == 8
    whole = [*code.instructions]
    whole[number] = whole[number].where(omitted=0)
    with pytest.raises(TokenError, match="is beyond the 160 of argument 2"):
        prove(whole, VTA, code.arguments)


def test_an_access_beyond_an_argument_is_refused():
    fields = {"pad": Pad.INPUT, "rows": 2, "columns": 4, "stride": 64, "offset": 16}
    load = Instruction(Kind.LOAD, fields)
    prove([load], VTA, [16 + 64 + 4 * VTA.input_bytes])
    with pytest.raises(TokenError, match="is beyond the 143 of argument 0"):
        prove([load], VTA, [143])
    with pytest.raises(TokenError, match="argument 1"):
        prove([load.where(argument=1)], VTA, [4096])
