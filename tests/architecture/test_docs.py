import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", ["types", "expr", "graph", "tensor", "loop"])
def test_the_page_on_the_grammars_shows_each_grammar_as_its_module_does(module):
    source = (ROOT / "compiler/farrier/ir" / f"{module}.py").read_text()
    docstring = ast.get_docstring(ast.parse(source))
    grammar = re.search(r"(?:^    .*\n)+", docstring, re.MULTILINE)[0].strip("\n")
    assert grammar in (ROOT / "docs/ir.md").read_text()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_every_path_that_a_page_names_exists(page):
    roots = [ROOT, ROOT / "compiler/farrier", ROOT / "compiler", ROOT / "docs"]
    for name in re.findall(r"`((?:[\w.]+/)+[\w.]*)`", page.read_text()):
        assert any((root / name).exists() for root in roots), name
