"""Reductions whose threads exchange what lies in their registers: the interpreters of phases and of
threads, the emulator of PTX and the adapter of this machine agree, and whatever is taken away is
missed."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from onnx.parser import parse_model

import farrier
from farrier.errors import ArtifactError, CompilerError
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
from farrier.targets.names import parse_target
from farrier.targets.webgpu.backend import BACKEND
from farrier.targets.webgpu.wgsl import render as render_wgsl
from farrier_device import adapters
from farrier_device.webgpu_library import ENABLE_SUBGROUPS, SUBGROUPS
from tests.schedule.checks import body, scheduled
from tests.schedule.programs import inputs_of, softmax
from tests.targets.cuda.running import run_ptx
from tests.targets.gpu.test_attention import program_of
from tests.targets.webgpu import webgpu

ROWS = """
<ir_version: 10, opset_import: ["" : 20]>
rows (float[3, 300] x) => (float[3, 300] y) { y = Softmax<axis = 1>(x) }
"""
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


def test_threads_that_read_their_own_elements_do_not_wait():
    """Threads that divide a row read in each pass what they wrote."""
    decisions = {"row_threads": 32, "rows_each": 4}
    for length, count in (512, 0), (500, 1):
        program = softmax(8, length)
        phases = rows.space(program, LIMITS, USUAL).schedule(decisions).function
        kernel, inputs = lower_threads(phases), inputs_of(program)
        barriers = [stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, Barrier)]
        assert sum(barrier.scope == "workgroup" for barrier in barriers) == count
        ((name, expected),) = evaluate(program, inputs).items()
        result = run_ptx(_ptx(kernel), kernel, inputs)[name]
        np.testing.assert_allclose(result, expected, 1e-5, 1e-6)


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


def _far_apart(threads):
    """Return a kernel of rows, its inputs and its result. The greatest of a part of a row does as
    well for a softmax, unless others are far beyond it."""
    program = softmax(8, 300)
    inputs = {name: array * 1000 for name, array in inputs_of(program).items()}
    ((name, expected),) = evaluate(program, inputs).items()
    space = rows.space(program, LIMITS, USUAL)
    decisions = {"row_threads": threads, "rows_each": max(1, 32 // threads)}
    kernel = lower_threads(space.schedule(decisions).function)
    return kernel, inputs, name, expected


@pytest.mark.parametrize("threads", [8, 32, 128])
def test_each_exchange_matters(threads):
    kernel, inputs, name, expected = _far_apart(threads)
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


def _with_subgroups():
    """Skip the test where the adapter has no subgroups."""
    webgpu.device()
    adapter = adapters.find_adapter()
    if SUBGROUPS not in adapter.features:
        pytest.skip(f"{adapter.name} has no {SUBGROUPS}")
    return adapter


@pytest.mark.parametrize(
    ("rule", "program"),
    [
        *((rows, softmax(*shape)) for shape in ((3, 7), (13, 33), (2, 300), (1, 1031))),
        *((attention, program_of(*shape)) for shape in ((2, 5, 7, 3), (1, 37, 37, 17))),
    ],
)
def test_subgroups_of_webgpu(rule, program):
    _with_subgroups()
    inputs = inputs_of(program)
    ((name, expected),) = evaluate(program, inputs).items()
    limits, device = BACKEND.device(parse_target("webgpu:subgroups"))
    space = rule.space(program, limits, device)
    kernel = lower_threads(space.schedule(space.default()).function)
    assert _count(kernel, Intrinsic)
    np.testing.assert_allclose(webgpu.run(kernel, inputs)[name], expected, 1e-5, 1e-6)


LANES = "select(0u, size_, are_complete_)"
WAIT = "  workgroupBarrier();\n"


def _run_wgsl(text, kernel, inputs, name):
    return webgpu.run(kernel, inputs, text=text)[name]


@pytest.mark.parametrize("threads", [8, 32, 128])
def test_no_result_depends_on_the_size_of_a_subgroup(threads):
    _with_subgroups()
    kernel, inputs, name, expected = _far_apart(threads)
    text = render_wgsl(kernel)
    for lanes in ("0u", "1u", "2u", "4u", LANES):  # No adapter has subgroups of fewer than four.
        result = _run_wgsl(text.replace(LANES, lanes), kernel, inputs, name)
        np.testing.assert_allclose(result, expected, 1e-5, 1e-6)


def test_each_exchange_of_webgpu_matters():
    _with_subgroups()
    kernel, inputs, name, expected = _far_apart(32)
    text = render_wgsl(kernel)
    calls = list(re.finditer(r"exchanged\((bitcast<u32>\(\S+\)), \d+u, thread_, lanes_\)", text))
    assert len(calls) == 10
    mutants = [f"{text[: call.start()]}{call[1]}{text[call.end() :]}" for call in calls]
    # Without registers, a block meets twice in each exchange.
    slow = text.replace(LANES, "0u")
    body, rest = slow.split("fn infinity")
    first, second = (match.start() for match in re.finditer(re.escape(WAIT), body))
    for at in first, second:
        mutants.append(f"{body[:at]}{body[at + len(WAIT) :]}fn infinity{rest}")
    for mutant in mutants:
        result = _run_wgsl(mutant, kernel, inputs, name)
        assert not np.allclose(result, expected, 1e-5, 1e-6)


def test_a_model_for_subgroups_needs_an_adapter_with_them(monkeypatch):
    adapter = _with_subgroups()
    artifact = farrier.compile(parse_model(ROWS), target="webgpu:subgroups", verify=False)
    assert artifact.manifest.features == (SUBGROUPS,)
    assert all(ENABLE_SUBGROUPS in each.content.decode() for each in artifact.code.objects)
    x = np.linspace(-3, 5, 900, dtype=np.float32).reshape(3, 300)
    without = dataclasses.replace(adapter, features=())
    with monkeypatch.context() as patch:
        patch.setattr(adapters, "find_adapter", lambda name="": without)
        with pytest.raises(ArtifactError, match=f"needs {SUBGROUPS}"):
            artifact.run({"x": x})
    (y,) = artifact.run({"x": x}).values()
    power = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, power / power.sum(1, keepdims=True), 1e-5, 1e-7)


def test_webgpu_without_the_feature_refuses_a_schedule_with_exchanges():
    kernel, *_ = _far_apart(32)
    with pytest.raises(CompilerError, match="does not have the feature subgroups"):
        BACKEND.render(kernel, parse_target("webgpu"))


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
