"""Each barrier of the kernels here matters in the code that ships: without it the emulator names a
race, or a value that nobody wrote."""

from __future__ import annotations

import re

import pytest

from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from tests.ir.kernels import KERNELS, inputs_of
from tests.targets.cuda.ptx import PtxError
from tests.targets.cuda.running import run_ptx

FAULT = r"threads race|nobody has written|not all threads of a warp"
BARRIER = re.compile(r"\bbar(?:rier)?\.(?:cta\.)?sync[^;]*;")


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
