"""Reductions whose threads exchange what lies in their registers: the interpreters of phases and of
threads and the emulator of PTX agree, and whatever is taken away is missed."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.intrinsics import lookup
from farrier.ir.evaluate import evaluate
from farrier.ir.loop import Barrier, Block, Intrinsic
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.run_threads import run_threads
from farrier.ir.statements import map_children, walk_stmts
from farrier.ir.threads import verify_threads
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.expressible import LIMITS
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.gpu import attention, rows
from farrier.targets.gpu.device import LEAST, USUAL
from tests.schedule.checks import body, scheduled
from tests.schedule.programs import inputs_of, softmax
from tests.targets.cuda.running import run_ptx
from tests.targets.gpu.test_attention import program_of

SHAPES = [(1, 1), (3, 7), (5, 32), (13, 33), (2, 300), (31, 5), (1, 1031)]
SHARE = """
@function
def share(x: f32[32, 9], y: f32[32, 9]):
    with alloc(f32[32] in workspace) as s:
        for s_init_i in serial(32):
            s[s_init_i] = 0.0
        for s_i in serial(32):
            for s_k in serial(9):
                s[s_i] = s[s_i] + x[s_i, s_k]
        for y_i in serial(32):
            for y_j in serial(9):
                y[y_i, y_j] = x[y_i, y_j] / s[y_i]
"""


def _meaning(name):
    return lookup(name).semantics


def _kernels(program, rule=rows, count=4):
    """Yield kernels of a program by the default and by other candidates, in the form of phases."""
    space = rule.space(program, LIMITS, USUAL)
    candidates = [space.decisions(row) for row in space.candidates()]
    for decisions in [space.default(), *candidates[:: -(-len(candidates) // count)]]:
        yield space.schedule(decisions).function


def _ptx(kernel):
    return ptx_of(render(kernel, "sm_75"), "sm_75")


def _assert_right(program, rule=rows):
    inputs = inputs_of(program)
    ((name, expected),) = evaluate(program, inputs).items()
    for phases in _kernels(program, rule):
        kernel = lower_threads(phases)
        assert parse_ir(print_ir(kernel)) == kernel
        for result in (
            run_loops(phases, inputs, seed=1),
            run_threads(kernel, inputs, meaning=_meaning),
            run_ptx(_ptx(kernel), kernel, inputs),
        ):
            np.testing.assert_allclose(result[name], expected, 1e-5, 1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_any_shape(shape):
    if rows.space(softmax(*shape), LIMITS, USUAL) is not None:
        _assert_right(softmax(*shape))


def test_attention_exchanges_as_well():
    program = program_of(2, 5, 7, 3)
    _assert_right(program, attention)
    space = attention.space(program, LIMITS, USUAL)
    assert "shfl.sync.bfly" in _ptx(lower_threads(space.schedule(space.default()).function))


def _count(kernel, kind):
    return sum(isinstance(stmt, kind) for stmt in walk_stmts(kernel.body))


def test_a_row_has_fewer_barriers_than_without():
    decisions = {"row_threads": 32, "rows_each": 4}
    kernels = [
        lower_threads(rows.space(softmax(8, 300), limits, USUAL).schedule(decisions).function)
        for limits in (LIMITS, dataclasses.replace(LIMITS, lanes=1))
    ]
    met = [
        [str(s.scope) for s in walk_stmts(kernel.body) if isinstance(s, Barrier)].count("workgroup")
        for kernel in kernels
    ]
    assert met[0] < met[1]
    assert [_count(kernel, Intrinsic) for kernel in kernels] == [10, 0]


def test_webgpu_does_without_by_default():
    assert LEAST.lanes == 1
    space = rows.space(softmax(4, 300), LEAST, USUAL)
    assert not _count(space.schedule(space.default()).function, Intrinsic)


def test_four_threads_of_a_row_exchange_twice():
    text = body(scheduled(SHARE, 'share_rows(("s", "y"), 8, 4, 1024, 4)'))
    assert "s_other[s_row2, s_t2] = s_own[s_row2, bit_xor(s_t2, 2)]" in text
    assert "s_other[s_row4, s_t4] = s_own[s_row4, bit_xor(s_t4, 1)]" in text
    assert "workgroup" not in text


def _without(stmt, kind):
    """Yield a statement without each statement of a kind below it."""
    targets = [part for part in walk_stmts(stmt) if isinstance(part, kind)]
    for target in targets:

        def removed(part, target=target):
            return Block(()) if part is target else map_children(part, removed)

        yield removed(stmt)


@pytest.mark.parametrize("threads", [8, 32, 128])
def test_each_exchange_matters(threads):
    program = softmax(8, 300)
    # The greatest of a part of a row does as well for a softmax, unless others are far beyond it.
    inputs = {name: array * 1000 for name, array in inputs_of(program).items()}
    ((name, expected),) = evaluate(program, inputs).items()
    space = rows.space(program, LIMITS, USUAL)
    decisions = {"row_threads": threads, "rows_each": max(1, 32 // threads)}
    kernel = lower_threads(space.schedule(decisions).function)
    right = run_threads(kernel, inputs, meaning=_meaning)[name]
    np.testing.assert_allclose(right, expected, 1e-5, 1e-6)
    for changed in _without(kernel.body, Intrinsic):
        mutant = dataclasses.replace(kernel, body=changed)
        result = run_threads(mutant, inputs, meaning=_meaning)[name]
        assert not np.allclose(result, expected, 1e-5, 1e-6)
    text = _ptx(kernel)
    for match in re.finditer(r"shfl\.sync\.bfly[^;]*;", text):
        to, source = re.findall(r"%r\d+", match[0])[:2]
        mutant = f"{text[: match.start()]}mov.b32 {to}, {source};{text[match.end() :]}"
        result = run_ptx(mutant, kernel, inputs)[name]
        assert not np.allclose(result, expected, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("(s_t2, 2)", "(s_t2, 4)", "threads that differ by 4 are not all of one subgroup"),
        ("(s_t2, 2)", "(s_t2, 3)", "threads that differ by 3 are not all of one subgroup"),
        ("s_row2, bit_xor(s_t2, 2)", "bit_xor(s_row2, 1), s_t2", "s_own is each thread's own"),
        ("bit_xor(s_t2, 2)]", "bit_xor(s_t2, 2)] + 1.0", "s_own is each thread's own"),
        ("8", "6", "24 threads are no whole subgroups"),
        ("s_other[s_row2, s_t2] =", "y[s_row2, s_t2] =", "y is not each thread's own"),
    ],
)
def test_the_verifier_refuses_what_no_subgroup_exchanges(old, new, reason):
    text = print_ir(scheduled(SHARE, 'share_rows(("s", "y"), 8, 4, 1024, 4)'))
    assert old in text
    with pytest.raises(CompilerError, match=re.escape(reason)):
        verify_threads(parse_ir(text.replace(old, new)))
