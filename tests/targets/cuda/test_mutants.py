"""Each barrier and each wait matters in the code that ships: without it the emulator names a race,
a value that nobody wrote, or threads of a warp that are apart. `OWN` and `_is_needed` name the
exceptions, with the reasons."""

from __future__ import annotations

import itertools
import re

import pytest

from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.expressible import LIMITS
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.cuda.tensor_cores import PRODUCTS
from farrier.targets.gpu import (
    attention,
    direct,
    few_rows,
    fragment_parts,
    fragments,
    parts,
    rows,
    tiles,
    transposes,
)
from farrier.targets.gpu.device import USUAL
from tests.ir.kernels import KERNELS, inputs_of
from tests.schedule.programs import inputs_of as inputs_of_floats
from tests.schedule.programs import matmul, softmax
from tests.targets.cuda.products import inputs_of as inputs_of_product
from tests.targets.cuda.products import product
from tests.targets.cuda.ptx import PtxError, kernels_of
from tests.targets.cuda.running import run_ptx
from tests.targets.gpu.convolutions import convolution
from tests.targets.gpu.packed import packed_product
from tests.targets.gpu.test_attention import program_of
from tests.targets.gpu.test_parts import row_ends
from tests.targets.gpu.transposed import relayout

FAULT = r"threads race|nobody has written|of a warp"
BARRIER = re.compile(r"\bbar(?:rier)?\.(?:cta\.)?sync[^;]*;")
_WAITING = re.compile(r"\b(?:bar(?:rier)?\.[\w.]*sync|cp\.async\.wait_(?:group|all))\b[^;]*;")
_GROUP = re.compile(r"(?<=wait_group)\s+(\d+)")

# `points` has no barriers, nor has `direct`.
RULES = {
    "attention": (attention, program_of(2, 24, 37, 17)),
    "convolution": (tiles, convolution(11, 17, 13, 13, 3, 1)),
    "convolution of groups": (tiles, convolution(15, 21, 8, 8, 3, 2, 3)),
    "few terms": (direct, matmul(37, 37, 8)),
    "packed weights": (few_rows, packed_product(3, 8, 64, 40)),
    "parts of a product": (parts, matmul(16, 17, 1024)),
    "parts of a row": (parts, row_ends(3, 512 * 37)),
    "product": (tiles, matmul(37, 31, 37)),
    "rows": (rows, softmax(3, 300)),
    "short rows": (rows, softmax(30, 37)),
    "transposes": (transposes, relayout(2, 40, 7, 9)),
}
# Barriers between two phases in which each thread touches elements of its own alone: what it
# computes of its part of a row, it reads in the next pass. They stay where threads do not divide
# the row, since a compiler may load before the condition that the last threads do not fulfil.
OWN = {"attention": 3, "rows": 1, "short rows": 1}
_DECLARED = {each.name: each for each in PRODUCTS}
# Types and stages: sm_75 multiplies by k8, and has no copies that go on by themselves.
_FRAGMENTS = [
    *itertools.product(("mma_f16", "mma_bf16", "mma_tf32", "mma_i8_i8"), (1, 2, 4)),
    ("mma_f16_k8", 1),
    ("mma_f16_k8", 2),
]


def without_each(text, pattern):
    """Yield a module without each match of a pattern, except any before the first access: LLVM
    leaves the barrier of a loop's first turn where it has peeled that off."""
    for match in pattern.finditer(text):
        before = text[text.rindex(".entry", 0, match.start()) : match.start()]
        if "shared." in before or "$L__" in before:
            yield text[: match.start()] + text[match.end() :]


@pytest.mark.parametrize("name", KERNELS)
def test_each_barrier_that_is_taken_away_is_missed(name):
    function = lower_threads(KERNELS[name][0])
    text, inputs = ptx_of(render(function, "sm_80"), "sm_80"), inputs_of(function)
    run_ptx(text, function, inputs)
    for mutant in without_each(text, BARRIER):
        with pytest.raises(PtxError, match=FAULT):
            run_ptx(mutant, function, inputs)


def _mutants(text, needed):
    """Yield a module without each barrier and each wait that `needed` does not except, and with
    each wait for one group less."""
    places = [
        (kernel.name, place, instruction)
        for kernel in kernels_of(text).values()
        for place, instruction in enumerate(kernel.code)
        if _WAITING.match(f"{instruction.text};")
    ]
    for match, (kernel, place, instruction) in zip(_WAITING.finditer(text), places, strict=True):
        if _is_needed(kernel, place, instruction, needed):
            yield text[: match.start()] + text[match.end() :]
            if _GROUP.search(match[0]):
                later = _GROUP.sub(lambda count: f" {int(count[1]) + 1}", match[0])
                yield text[: match.start()] + later + text[match.end() :]


def _is_needed(kernel, place, instruction, needed):
    """Check whether something had to wait. The first turns of a loop wait for copies of turns
    before it, of which there are none, and a warp may wait for threads that are together."""
    is_of_block = instruction.name != "cp" and "warp" not in instruction.suffixes
    return is_of_block or (kernel, place) in needed


def survivors(text, function, inputs):
    """Return the number of mutants that the emulator does not find at fault, and of all mutants."""
    needed, survivors, count = set(), 0, 0
    run_ptx(text, function, inputs, needed=needed)
    for mutant in _mutants(text, needed):
        count += 1
        try:
            run_ptx(mutant, function, inputs)
        except PtxError as error:
            assert re.search(FAULT, str(error))  # noqa: PT017
        else:
            survivors += 1
    return survivors, count


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_the_barriers_of_each_rule(name):
    rule, program = RULES[name]
    space = rule.space(program, LIMITS, USUAL)
    function = lower_threads(space.schedule(space.default()).function)
    text = ptx_of(render(function, "sm_80"), "sm_80")
    surviving, count = survivors(text, function, inputs_of_floats(program, 0))
    assert surviving == OWN.get(name, 0)
    assert count or rule is direct


@pytest.mark.slow
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(("name", "stages"), _FRAGMENTS)
def test_the_barriers_and_waits_of_fragments(name, is_transposed, stages):
    cpu = "sm_75" if name.endswith("k8") else "sm_80"
    program = product(40, 64, 160, _DECLARED[name], is_transposed=is_transposed)
    space = fragments.space(program, LIMITS, USUAL, [_DECLARED[name]])
    function = lower_threads(space.schedule({**space.default(), "stages": stages}).function)
    text = ptx_of(render(function, cpu), cpu)
    surviving, count = survivors(text, function, inputs_of_product(program))
    assert surviving == 0
    assert count


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mma_f16", "mma_i8_i8", "mma_tf32"])
def test_the_barriers_and_waits_of_parts_of_fragments(name):
    program = product(16, 24, 1024, _DECLARED[name])
    space = fragment_parts.space(program, LIMITS, USUAL, [_DECLARED[name]])
    function = lower_threads(space.schedule(space.default()).function)
    text = ptx_of(render(function, "sm_80"), "sm_80")
    surviving, count = survivors(text, function, inputs_of_product(program))
    assert surviving == 0
    assert count
