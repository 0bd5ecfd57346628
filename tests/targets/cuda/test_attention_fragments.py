"""Attention on tensor cores: interpreter, emulator of PTX and program agree."""

from __future__ import annotations

import functools
import itertools
import re

import numpy as np
import pytest

from farrier.intrinsics import lookup
from farrier.ir.evaluate import evaluate
from farrier.ir.run_threads import run_threads
from farrier.ir.threads import launches
from farrier.ir.types import DType
from farrier.lower.lower_threads import lower_threads
from farrier.schedule import Schedule, ScheduleError
from farrier.targets.cuda.architectures import ARCHITECTURES
from farrier.targets.cuda.assembler import assemble, find_ptxas
from farrier.targets.cuda.expressible import LIMITS
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.cuda.tensor_cores import PRODUCTS, products_of
from farrier.targets.gpu import attention_fragments, rules
from farrier.targets.gpu.device import USUAL
from tests.targets.cuda.attentions import attention, causal, masked
from tests.targets.cuda.running import run_ptx
from tests.targets.cuda.test_mutants import survivors
from tests.targets.cuda.traffic import Traffic

BF16, F16 = DType.BF16, DType.F16
_SIZES = (1, 2, 3, 5, 7, 8, 11, 13, 16, 17, 23, 31, 32, 37, 41, 64, 67, 97)
_COUNT = 50
_SCORES = (None, masked, causal)
# The distance from 1 to the next number.
_STEPS = {F16: 2.0**-10, BF16: 2.0**-7}


def _inputs_of(program):
    rng = np.random.default_rng(0)
    return {b.name: rng.standard_normal(b.shape).astype(b.dtype.numpy) for b in program.inputs}


def _kernel(program, cpu="sm_80", **decisions):
    space = attention_fragments.space(program, LIMITS, USUAL, products_of(cpu))
    return lower_threads(space.schedule({**space.default(), **decisions}).function)


def _assert_near(result, expected, errors):
    """Check that a result has the same NaN as another one, and differs by no more than `errors`."""
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    excess = np.nan_to_num(np.abs(result - expected) - errors)
    assert excess.max() <= 0


def _assert_right(program, cpu="sm_80", inputs=None, **decisions):
    """Compare the interpreter and the emulator with the program; return the emulator's result.

    The program rounds each share of a key to the narrow type, and the kernel rounds exponentials
    that are not divided yet. Each rounding errs by half a step of its number at most, so that both
    together err by a step of the same sum with the absolute values of `v`."""
    function, inputs = _kernel(program, cpu, **decisions), inputs or _inputs_of(program)
    assert len(launches(function)) == 1
    with np.errstate(all="ignore"):
        expected = evaluate(program, inputs)["y"]
        sizes = evaluate(program, inputs | {"v": np.abs(inputs["v"])})["y"]
    step = _STEPS[program.inputs[0].dtype] * sizes
    interpreted = run_threads(function, inputs, meaning=lambda name: lookup(name).semantics)["y"]
    _assert_near(interpreted, expected, step)
    result = run_ptx(ptx_of(render(function, cpu), cpu), function, inputs)["y"]
    _assert_near(result, expected, step)
    # Both round the same exponentials, and few lie so near to a half that they part.
    _assert_near(result, interpreted, step / 4)
    return result


@pytest.mark.parametrize("of_score", _SCORES)
@pytest.mark.parametrize(("cpu", "dtype"), [("sm_80", F16), ("sm_80", BF16), ("sm_75", F16)])
def test_one_launch_computes_an_attention(cpu, dtype, of_score):
    program = attention((2, 21, 43, 20, 24), dtype, of_score, divides=False)
    _assert_right(program, cpu, attend_subgroups=1, attend_keys=16)


def test_keys_may_be_rows_or_columns():
    for is_transposed in (False, True):
        program = attention((1, 33, 70, 32, 40), is_transposed=is_transposed)
        _assert_right(program, attend_subgroups=2, attend_keys=32)


def test_infinities_and_nan_stay_where_they_are():
    program = attention((1, 20, 40, 16, 16), F16, masked)
    inputs = _inputs_of(program)
    mask = inputs["mask"]
    mask[1], mask[2, :30], mask[3, 35], mask[4, 3] = -np.inf, -np.inf, np.inf, np.nan
    result = _assert_right(program, inputs=inputs, attend_keys=16)
    # No key counts for the first of these rows.
    assert np.isnan(result[0]).all(1).tolist() == [row in (1, 3, 4) for row in range(20)]


@functools.cache
def _cases():
    """Return the first fifty draws that the rule takes, each as a program and an architecture.

    The rule leaves attentions of one row, one key or one column to other rules."""
    rng, cases = np.random.default_rng(1), []
    for number in range(2 * _COUNT):
        shape = number % 3 + 1, *map(int, rng.choice(_SIZES, 4))
        dtype = (F16, BF16)[number % 2]
        program = attention(shape, dtype, _SCORES[number % 3], is_transposed=number % 4 == 0)
        cpu = "sm_75" if dtype is F16 and number % 5 == 0 else "sm_80"
        if attention_fragments.space(program, LIMITS, USUAL, products_of(cpu)) is not None:
            cases.append((program, cpu))
        if len(cases) == _COUNT:
            return cases
    raise AssertionError(f"the rule takes {len(cases)} of the shapes")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, _COUNT, 10))
def test_fifty_shapes(first):
    for program, cpu in _cases()[first : first + 10]:
        _assert_right(program, cpu)


@pytest.mark.slow
@pytest.mark.parametrize("of_score", _SCORES)
def test_each_barrier_matters(of_score):
    program = attention((1, 33, 70, 32, 24), F16, of_score)
    function = _kernel(program, attend_subgroups=2, attend_keys=16)
    text = ptx_of(render(function, "sm_80"), "sm_80")
    surviving, count = survivors(text, function, _inputs_of(program))
    assert surviving == 0
    assert count >= 3


@pytest.mark.parametrize("width", [64, 80])
def test_memory_is_read_without_detours(width):
    program = attention((2, 128, 128, width, width), F16, masked)
    function, traffic = _kernel(program), Traffic()
    run_ptx(ptx_of(render(function, "sm_80"), "sm_80"), function, _inputs_of(program), traffic)
    assert traffic.over_the_fewest("shared") <= 1.1
    assert traffic.over_the_fewest("global") <= 1.25


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is missing")
@pytest.mark.parametrize("cpu", ARCHITECTURES)
def test_ptxas_keeps_it_in_registers(cpu):
    choices = (16, {}), (200, {}), (200, {"attend_subgroups": 1, "attend_keys": 64})
    for width, (rows, decisions) in itertools.product((64, 128), choices):
        program = attention((2, rows, 197, width, width), F16, causal)
        function = _kernel(program, cpu, **decisions)
        _, frames = assemble(ptx_of(render(function, cpu), cpu), cpu, find_ptxas())
        assert all(frame.is_in_registers for frame in frames), (rows, width, frames)


def test_what_is_no_attention_on_fragments_stays_with_other_rules():
    products = products_of("sm_80")
    single = attention((1, 32, 1, 16, 16))
    assert attention_fragments.space(single, LIMITS, USUAL, products) is None
    exact = attention((1, 32, 40, 16, 16), DType.F32)
    assert attention_fragments.space(exact, LIMITS, USUAL, products) is None
    wide = attention((1, 32, 40, 512, 512))
    assert attention_fragments.space(wide, LIMITS, USUAL, products) is None
    assert rules.space(wide, LIMITS, USUAL, products).rule != attention_fragments.RULE
    usual = attention((1, 32, 40, 64, 64))
    assert rules.space(usual, LIMITS, USUAL, products).rule == attention_fragments.RULE


@functools.cache
def _loops():
    from farrier.lower.loops import to_loops

    return to_loops(attention((1, 32, 40, 16, 16)))


@pytest.mark.parametrize(
    ("between", "intrinsic", "keys", "message"),
    [
        (("most", "p", "norm"), "mma_f16", 24, "a slice of 24 columns"),
        (("most", "p", "norm"), "mma_i8_i8", 32, "does not multiply"),
        (("most", "p"), "mma_f16", 32, "no softmax stands between"),
    ],
)
def test_what_the_primitive_refuses(between, intrinsic, keys, message):
    with pytest.raises(ScheduleError, match=re.escape(message)):
        Schedule(_loops()).attend_fragments(("s", "s"), between, ("y", "y"), intrinsic, 1, keys)


def test_totals_become_factors_where_threads_have_both():
    names = {product.name for product in PRODUCTS if product.keeps_places}
    assert names == {"mma_f16", "mma_f16_k8", "mma_bf16"}
