"""Indices take 32 bits where their extents allow that, and 64 where these do not."""

from __future__ import annotations

import re

import pytest

from bench.assembled import in_loops, wide_in_loops
from farrier.ir.expr import Axis, Buffer, Load, Var
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.gpu import points
from tests.ir.kernels import KERNELS


@pytest.mark.parametrize("name", ["tiled_product", "attention", "product"])
def test_loops_compute_nothing_in_64_bits_but_the_addresses_of_accesses(name):
    text = ptx_of(render(lower_threads(KERNELS[name][0]), "sm_80"), "sm_80")
    assert in_loops(text)
    assert wide_in_loops(text) <= {"add.s64"}


@pytest.mark.parametrize("cpu", ["sm_75", "sm_90a", "sm_120"])
def test_addresses_of_shared_memory_have_32_bits(cpu):
    text = ptx_of(render(lower_threads(KERNELS["tiled_product"][0]), cpu), cpu)
    places = re.findall(r"(?:ld|st)\.shared\S*\s[^\[;]*\[(%[a-z]+)", text)
    assert places
    assert set(places) == {"%r"}


@pytest.mark.parametrize(
    ("line", "wide"),
    [
        ("and.b64 %rd2, %rd1, 252;", set()),
        ("and.b64 %rd2, %rd1, 4294967296;", {"and.b64"}),
        ("and.b64 %rd2, %rd1, -4;", {"and.b64"}),
        ("and.b64 %rd3, %rd1, %rd2;", {"and.b64"}),
        ("mul.lo.s64 %rd3, %rd1, %rd2;", {"mul.lo.s64"}),
    ],
)
def test_a_mask_of_the_lower_word_is_the_zero_extension_of_an_index(line, wide):
    assert wide_in_loops(f"$L__BB0_1:\n\t{line}\n\tbra.uni \t$L__BB0_1;") == wide


@pytest.mark.parametrize(("rows", "is_wide"), [(1 << 10, False), (1 << 21, True)])
def test_the_size_of_an_array_decides_the_width(rows, is_wide):
    x, y = (Buffer(name, DType.F32, (rows, 1 << 10)) for name in "xy")
    body = Load(x, (Var("i"), Var("j")))
    stage = Stage(y, (Axis("i", rows), Axis("j", 1 << 10)), body)
    space = points.space(TensorProgram("copy", (x,), (stage,), (y,)))
    text = render(lower_threads(space.schedule(space.default()).function), "sm_80")
    assert (re.search(r"mul (nsw )?i64 ", text) is not None) is is_wide
    assert (re.search(r"mul (nsw )?i32 ", text) is not None) is not is_wide
