"""The page on operators agrees with the operators."""

from __future__ import annotations

import re
from pathlib import Path

from farrier.frontends.onnx.importer.limits import NEWEST_OPSET, OLDEST_OPSET
from farrier.frontends.onnx.importer.upgrade import READABLE
from farrier.ops import lookup, names

PAGE = (Path(__file__).parents[2] / "docs/reference/operators.md").read_text()


def test_the_page_lists_every_operator_with_its_kind():
    rows = re.findall(r"^\| `(\w+)\.py` \| (\w+) \| (.+) \|$", PAGE, re.MULTILINE)
    listed = {name: kind for _, kind, names_ in rows for name in names_.split(", ")}
    assert listed == {name: lookup(name).kind.value for name in names()}


def test_the_page_names_what_only_the_importer_reads():
    assert f"also reads {', '.join(sorted(READABLE - names()))}," in " ".join(PAGE.split())
    assert f"opsets {OLDEST_OPSET} to {NEWEST_OPSET}" in PAGE
