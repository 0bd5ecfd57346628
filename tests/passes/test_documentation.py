"""Every pass does to the `before:` of its docstring what its `after:` shows; `…` marks
omissions."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap

import pytest
from graph_tools import TOLERANCES, assert_same_results, settings_of

from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ops.verify import verify
from farrier.passes import PASSES
from farrier.targets.cpu import passes as cpu_passes
from farrier.targets.gpu import passes as gpu_passes

_ALL = {**PASSES, **cpu_passes.PASSES, **gpu_passes.PASSES}


@pytest.mark.parametrize("name", sorted(_ALL))
def test_the_docstring_is_true(name):
    rooms = {"farrier.passes": PASSES, "farrier.targets.cpu.passes": cpu_passes.PASSES}
    room = next((r for r, held in rooms.items() if name in held), "farrier.targets.gpu.passes")
    module = importlib.import_module(f"{room}.{name.replace('-', '_')}")
    documented = getattr(module, name.replace("-", "_"))
    actual = re.search(r"before:\n(.*?)\nafter:\n(.*)", inspect.getdoc(documented), re.DOTALL)
    before, after = (textwrap.dedent(part).strip() + "\n" for part in actual.groups())
    graph = parse_ir(before)
    verify(graph)
    result = _ALL[name](graph, settings_of(name))
    verify(result)
    shown = ".*".join(map(re.escape, after.split("…")))
    assert re.fullmatch(shown, print_ir(result)), print_ir(result)
    assert_same_results(graph, result, tolerance=TOLERANCES.get(name, 2e-5))


def test_the_order_holds_every_pass():
    assert set(cpu_passes.ORDER) == set(_ALL) - set(gpu_passes.PASSES)
