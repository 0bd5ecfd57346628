"""`tests/golden/loops/<rule>.txt`: what each space rule makes of a small kernel.

`pytest --update-golden` writes schedule and loops anew. The loops are also run, and compute what
the region's operators do.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.verify_kernel import verify_function
from farrier.ops.verify import verify
from farrier.records import RuleId
from farrier.targets.cpu import rules
from tests.intrinsics.written_out import written_out
from tests.targets.cpu.rules.golden_kernels import PATHS, GoldenKernel

# Rewrites of a program come before any derivation: one kernel of each will do.
REWRITTEN = {
    "sketch_split_threads_split_lanes",
    "sketch_phases_tile_registers",
    "sketch_stage_operands_tile_registers",
}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_golden(path, update_golden):
    kernel = GoldenKernel.of(path)
    verify(kernel.graph)
    assert _file_of(kernel.space.rule_of(kernel.decisions)) == kernel.name
    verify_function(kernel.function)
    _assert_right(kernel)
    schedule, loops = kernel.space.trace(kernel.decisions), print_ir(kernel.function)
    if update_golden:
        path.write_text(f"{kernel.header}# schedule\n{schedule}# loops\n{loops}")
    else:
        assert (schedule, loops) == (kernel.schedule, kernel.loops)


def _assert_right(kernel: GoldenKernel) -> None:
    inputs = kernel.inputs()
    shapes = {param.name: param.type.static_shape for param in kernel.function.params}
    arrays = {name: array.reshape(shapes[name]) for name, array in inputs.items()}
    results = run_loops(written_out(kernel.function), arrays).values()
    for got, wanted in zip(results, kernel.reference(inputs), strict=True):
        np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-4, atol=kernel.within)


def _file_of(rule: RuleId) -> str:
    return re.sub(r"\W", "_", rule.name)


def test_every_rule_has_a_golden_kernel():
    rules_by_file = {_file_of(rule) for rule in rules.IDS if "+" not in rule.name}
    assert {path.stem for path in PATHS} == rules_by_file | REWRITTEN
