"""Indices take 32 bits where their extents allow that, and 64 where these do not."""

from __future__ import annotations

import re

import pytest

from farrier.ir.expr import Axis, Buffer, Load, Var
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.gpu import points
from tests.ir.kernels import KERNELS

_WIDE = re.compile(r"\s(?:@!?%p\d+ )?([a-z][\w.]*\.[bsu]64)\s")


def _in_loops(text):
    """Return the lines between each label and the jumps back to it."""
    lines, labels, inside = text.splitlines(), {}, []
    for position, line in enumerate(lines):
        if label := re.match(r"(\$\w+):", line):
            labels[label[1]] = position
        jump = re.search(r"\bbra(?:\.uni)?\s+(\$\w+)", line)
        if jump and jump[1] in labels:
            inside += lines[labels[jump[1]] : position]
    return inside


def wide_in_loops(text):
    """Return the instructions on 64 bits in the loops of a module."""
    return {wide[1] for line in _in_loops(text) if (wide := _WIDE.search(line))}


@pytest.mark.parametrize("name", ["tiled_product", "attention", "product"])
def test_loops_compute_nothing_in_64_bits_but_the_addresses_of_accesses(name):
    text = ptx_of(render(lower_threads(KERNELS[name][0]), "sm_80"), "sm_80")
    assert _in_loops(text)
    assert wide_in_loops(text) <= {"add.s64"}


@pytest.mark.parametrize(("rows", "is_wide"), [(1 << 10, False), (1 << 21, True)])
def test_the_size_of_an_array_decides_the_width(rows, is_wide):
    x, y = (Buffer(name, DType.F32, (rows, 1 << 10)) for name in "xy")
    body = Load(x, (Var("i"), Var("j")))
    stage = Stage(y, (Axis("i", rows), Axis("j", 1 << 10)), body)
    space = points.space(TensorProgram("copy", (x,), (stage,), (y,)))
    text = render(lower_threads(space.schedule(space.default()).function), "sm_80")
    assert (re.search(r"mul (nsw )?i64 ", text) is not None) is is_wide
    assert (re.search(r"mul (nsw )?i32 ", text) is not None) is not is_wide
