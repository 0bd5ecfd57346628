"""Every loop pass, and every idea of partitioning that has a file of its own, does to the `before:`
of its docstring what its `after:` shows, and keeps the results."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from pathlib import Path

import pytest

from farrier.ir.loop import Function
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.verify_kernel import verify_function
from farrier.lower.passes import PASSES
from farrier.targets.cpu import lowering
from tests.schedule.checks import assert_equal_results

ROOT = Path(__file__).parents[2]
IDEAS = ("narrow_tiles", "partial_tiles", "whole_tiles")


def documented(name: str) -> str:
    """The docstring of a pass, or of the file of an idea."""
    module = importlib.import_module(f"farrier.lower.{name.replace('-', '_')}")
    text = inspect.getdoc(module if name in IDEAS else getattr(module, name.replace("-", "_")))
    assert text is not None
    return text


@pytest.mark.parametrize("name", [*sorted(PASSES), *IDEAS])
def test_the_docstring_is_true(name):
    shown = re.search(r"before:\n(.*?)\nafter:\n(.*?)(?:\n\n\w|\Z)", documented(name), re.DOTALL)
    before, after = (textwrap.dedent(part).strip() + "\n" for part in shown.groups())
    function = parse_ir(before)
    assert isinstance(function, Function)
    verify_function(function)
    result = PASSES["partition-loops" if name in IDEAS else name](function)
    verify_function(result)
    assert print_ir(result) == after
    assert_equal_results(function, result)


def test_the_pages_list_the_passes_in_order():
    listed = re.search(r"(?:^    [a-z-]+  .*\n)+", inspect.getdoc(lowering), re.MULTILINE)[0]
    assert tuple(re.findall(r"^    ([a-z-]+)", listed, re.MULTILINE)) == lowering.ORDER
    # A CPU's threads do not meet, and it writes bytes.
    of_gpus = {"lower-threads", "write-whole-words", "write-whole-words-but-f16"}
    assert set(PASSES) - set(lowering.ORDER) == of_gpus
    assert listed in (ROOT / "docs/develop/architecture.md").read_text()
