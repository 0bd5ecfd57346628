"""`tests/golden/<pass>/<case>.ir`: a graph, `# after`, and what the pass makes of it.

`pytest --update-golden` writes the second part anew. Both parts are also run on random inputs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from graph_tools import TOLERANCES, assert_same_results, settings_of

from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ops.verify import verify
from farrier.passes import PASSES
from farrier.targets.bare import passes as bare_passes
from farrier.targets.cpu import passes as cpu_passes
from farrier.targets.gpu import passes as gpu_passes

_ALL = {**PASSES, **cpu_passes.PASSES, **gpu_passes.PASSES, **bare_passes.PASSES}
_GOLDEN = Path(__file__).parents[1] / "golden"
_CASES = sorted(_GOLDEN.glob("*/*.ir"))
_MARK = "# after\n"


@pytest.mark.parametrize("path", _CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden(path, update_golden):
    before, _, after = path.read_text().partition(_MARK)
    graph = parse_ir(before)
    verify(graph)
    result = _ALL[path.parent.name](graph, settings_of(path.parent.name))
    verify(result)
    tolerance = TOLERANCES.get(path.parent.name, 2e-5)
    assert_same_results(graph, result, tolerance=tolerance)
    if update_golden:
        path.write_text(f"{before}{_MARK}{print_ir(result)}")
    else:
        assert print_ir(result) == after


def test_every_pass_has_golden_cases():
    assert {path.parent.name for path in _CASES} == set(_ALL)
