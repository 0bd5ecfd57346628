"""Kernels whose threads come in blocks: the rules of their forms, and what running them finds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.ir.loop import Function
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.run_threads import run_threads
from farrier.ir.threads import launches, verify_threads
from farrier.ir.verify_kernel import verify_function
from farrier.lower.lower_threads import lower_threads
from tests.ir.kernels import KERNELS, REVERSE, function_of, inputs_of


@pytest.mark.parametrize("name", KERNELS)
def test_both_forms_compute_the_same_in_any_order(name):
    function, meaning = KERNELS[name]
    inputs = inputs_of(function)
    expected, output = meaning(*inputs.values()), function.params[-1].name
    lowered = lower_threads(function)
    for form in function, lowered:
        verify_function(form)
        verify_threads(form)
        assert parse_ir(print_ir(form)) == form
    results = [run_loops(function, inputs, seed=seed) for seed in (None, 1, 2)]
    for result in (*results, run_threads(lowered, inputs)):
        np.testing.assert_allclose(result[output], expected, 1e-5, 1e-5)
    assert lower_threads(lowered) is lowered


def test_a_kernel_of_several_launches_runs_them_in_order():
    function = function_of(
        """
@function
def twice(a: f32[8], b: f32[8]):
    with alloc(f32[8] in workspace) as t:
        for i in block(2):
            for j in thread(4):
                t[i * 4 + j] = a[i * 4 + j] + 1.0
        for k in block(1):
            for l in thread(8):
                b[l] = t[7 - l]
"""
    )
    assert len(launches(function)) == 2
    a = np.arange(8, dtype=np.float32)
    for run in run_loops, run_threads:
        assert run(function, {"a": a})["b"].tolist() == (a + 1)[::-1].tolist()


HEAD = "@function\ndef kernel(a: f32[8], b: f32[8]):\n"
RULES = {
    "stands in no block loop": """
    for i in serial(8):
        b[i] = a[i]
""",
    "the serial loop j stands|which thread runs this": """
    for i in block(8):
        b[i] = a[i]
""",
    "the thread loop k stands within a phase": """
    for i in block(2):
        for j in thread(2):
            for s in serial(1):
                for k in thread(2):
                    b[i * 4 + j * 2 + k] = 0.0
""",
    "the parallel loop j stands around thread loops": """
    for i in block(2):
        for j in parallel(2):
            for k in thread(2):
                b[i * 4 + j * 2 + k] = 0.0
""",
    "one thread allocates t for its block": """
    for i in block(2):
        for j in thread(4):
            with alloc(f32[4] in workgroup) as t:
                b[i * 4 + j] = 0.0
""",
    "a block allocates the workspace t": """
    for i in block(2):
        with alloc(f32[4] in workspace) as t:
            for j in thread(4):
                b[i * 4 + j] = 0.0
""",
    "depends on b, which the launch writes": """
    for i in block(2):
        if b[i] < 1.0:
            for j in thread(4):
                b[i * 4 + j] = 0.0
""",
    "t is each thread's own": """
    for i in block(2):
        with alloc(f32[4] in local) as t:
            for j in thread(4):
                t[3 - j] = a[j]
""",
    "t has no part for each of": """
    for i in block(2):
        with alloc(f32[5] in local) as t:
            for j in thread(4):
                t[j] = a[j]
""",
    "a phase has a barrier within it": """
    for i in block(2):
        for s in serial(2):
            for j in thread(4):
                b[i * 4 + j] = 0.0
                barrier(workgroup)
""",
    "a barrier stands outside the thread loops": """
    for i in block(2):
        barrier(workgroup)
        for j in thread(4):
            b[i * 4 + j] = 0.0
""",
    "threads that differ in j do not all come here": """
    for i in block(2):
        for j in thread(4):
            if j < 2:
                barrier(workgroup)
            b[i * 4 + j] = 0.0
""",
    "threads that differ in t do not all come here": """
    for i in block(2):
        for j in thread(4):
            with alloc(f32[1] in local) as t:
                t[0] = a[j]
                if t[0] < 0.0:
                    barrier(workgroup)
""",
}


@pytest.mark.parametrize("reason", RULES)
def test_each_rule_is_an_error_with_the_statement(reason):
    function = function_of(HEAD + RULES[reason].lstrip("\n"))
    verify_function(function)
    with pytest.raises(CompilerError, match=reason) as caught:
        verify_threads(function)
    assert len(str(caught.value).splitlines()) > 1


def test_a_barrier_is_for_all_memory_where_arguments_are_handed_on():
    function = function_of(
        HEAD
        + """
    for i in block(1):
        for j in thread(8):
            b[j] = a[j]
        for k in thread(8):
            b[k] = b[7 - k] + b[k]
""".lstrip("\n")
    )
    lowered = lower_threads(function)
    assert print_ir(lowered).count("barrier(param)") == 1
    with pytest.raises(CompilerError, match="race for an element of b"):
        run_threads(lowered, {"a": np.zeros(8, np.float32)})


RACES = {
    "two threads write an element": ("b[0] = a[j]", "race for an element of b"),
    "a thread reads what another writes": ("b[j] = b[7 - j] + a[j]", "race for an element of b"),
    "an index is outside": ("b[j + 1] = a[j]", "index 8 of b outside its memory of 8"),
}


@pytest.mark.parametrize(("store", "reason"), RACES.values(), ids=RACES)
def test_a_race_is_an_error_that_names_the_statements(store, reason):
    function = function_of(
        f"{HEAD}    for i in block(1):\n        for j in thread(8):\n            {store}\n"
    )
    with pytest.raises(CompilerError, match=reason) as caught:
        run_threads(function, {"a": np.zeros(8, np.float32)})
    assert store in str(caught.value)


def test_blocks_that_touch_one_element_race():
    function = function_of(
        HEAD
        + """
    for i in block(2):
        for j in thread(4):
            b[j] = a[i * 4 + j]
""".lstrip("\n")
    )
    with pytest.raises(CompilerError, match="race for an element of b"):
        run_threads(function, {"a": np.zeros(8, np.float32)})


def test_workgroup_memory_that_nobody_wrote_is_not_read():
    text = print_ir(lower_threads(REVERSE)).replace("for j in thread(4)", "for j in thread(3)")
    function = parse_ir(text)
    assert isinstance(function, Function)
    with pytest.raises(CompilerError, match="an element of tile is read that nobody wrote"):
        run_threads(function, {"a": np.zeros(16, np.float32)})


def test_a_barrier_that_some_threads_miss_is_an_error():
    """The verifier refuses it; so does the run, for code whose conditions only look uniform."""
    function = function_of(
        HEAD
        + """
    for i in block(1):
        for j in thread(8):
            while a[j] < 1.0:
                barrier(workgroup)
            b[j] = a[j]
""".lstrip("\n")
    )
    a = np.array([2, 2, 2, 2, 2, 2, 2, 0], np.float32)
    with pytest.raises(CompilerError, match=r"differ in j|not all threads"):
        run_threads(function, {"a": a})


def test_many_blocks_run_in_several_parts(monkeypatch):
    monkeypatch.setattr("farrier.ir.run_threads._THREADS", 8)
    function, meaning = KERNELS["odd_product"]
    inputs = inputs_of(function)
    result = run_threads(lower_threads(function), inputs)["y"]
    np.testing.assert_allclose(result, meaning(*inputs.values()), 1e-5, 1e-5)
    racing = function_of(
        f"{HEAD}    for i in block(64):\n        for j in thread(1):\n            b[i // 9] = 0.0\n"
    )
    with pytest.raises(CompilerError, match="race for an element of b"):
        run_threads(dataclasses.replace(racing), {"a": np.zeros(8, np.float32)})
