"""`tests/golden/lower/<pass>/<case>.ir`: a loop function, `# after`, and the result of the pass.

`pytest --update-golden` writes the second part anew. Both parts are also run, at the least, the
typical and the greatest of open sizes, and the memory around the elements is compared, too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from farrier.ir.loop import Barrier
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.run_threads import run_threads
from farrier.ir.statements import walk_stmts
from farrier.ir.verify_kernel import verify_function
from farrier.lower.passes import PASSES
from tests.ir.bind import bind

_GOLDEN = Path(__file__).parents[1] / "golden" / "lower"
_CASES = sorted(_GOLDEN.glob("*/*.ir"))
_MARK = "# after\n"


@pytest.mark.parametrize("path", _CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden(path, update_golden):
    before, _, after = path.read_text().partition(_MARK)
    function = parse_ir(before)
    verify_function(function)
    result = PASSES[path.parent.name](function)
    verify_function(result)
    for sizes in zip(*((d.low, d.typical, d.high) for d in function.dims), strict=True):
        assert_same_memory(function, result, dict(zip(function.dims, sizes, strict=True)))
    if not function.dims:
        assert_same_memory(function, result, {})
    if update_golden:
        path.write_text(f"{before}{_MARK}{print_ir(result)}")
    else:
        assert print_ir(result) == after


def assert_same_memory(before, after, sizes):
    """Both leave the same in every parameter's memory, halos included."""
    before, after = bind(before, sizes), bind(after, sizes)
    rng = np.random.default_rng(0)
    initial = {b.name: rng.integers(-4, 5, b.shape).astype(b.dtype.numpy) for b in before.params}
    expected = run_loops(before, {}, initial=initial, packed=True)
    has_barriers = any(isinstance(stmt, Barrier) for stmt in walk_stmts(after.body))
    run = run_threads if has_barriers else run_loops
    for name, memory in run(after, {}, initial=initial, packed=True).items():
        np.testing.assert_array_equal(memory, expected[name], err_msg=name)


def test_every_pass_has_golden_cases():
    assert {path.parent.name for path in _CASES} == set(PASSES)
