"""Every primitive does to the `before:` of its docstring what its `after …:` shows, and the result
is the same."""

from __future__ import annotations

import inspect
import re
import textwrap

import pytest

from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.verify_kernel import verify_function
from farrier.schedule import Schedule, Trace, primitives
from farrier.schedule.primitives import PRIMITIVES
from tests.schedule.checks import assert_equal_results


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_the_docstring_is_true(name):
    text = inspect.getdoc(getattr(primitives, name))
    actual = re.search(r"^before:\n(.*?)^after (.*?):\n(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.M)
    before, after = (textwrap.dedent(part).strip() + "\n" for part in actual.group(1, 3))
    (step,) = Trace.parse(actual.group(2)).steps
    assert step.primitive == name
    schedule = Schedule(parse_ir(before))
    verify_function(schedule.function)
    schedule.apply(step.primitive, *step.args)
    verify_function(schedule.function)
    assert print_ir(schedule.function) == after
    assert str(schedule.trace) == f"{actual.group(2)}\n"
    assert_equal_results(parse_ir(before), schedule.function)
