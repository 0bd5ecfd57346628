"""No match on the nodes of a grammar ends in an arm that is silent about a class that joins."""

import ast
import typing
from pathlib import Path

import pytest

from farrier.ir.expr import Expr
from farrier.ir.loop import Stmt
from farrier.partition.program import Step

COMPILER = Path(__file__).parents[2] / "compiler/farrier"
GRAMMARS = [{cls.__name__ for cls in typing.get_args(union)} for union in (Expr, Stmt, Step)]


def _classes(match):
    """Return the classes that the arms of a match name at their root."""
    patterns = [case.pattern for case in match.cases]
    names = set()
    while patterns:
        pattern = patterns.pop()
        if isinstance(pattern, ast.MatchOr):
            patterns += pattern.patterns
        elif isinstance(pattern, ast.MatchAs) and pattern.pattern is not None:
            patterns.append(pattern.pattern)
        elif isinstance(pattern, ast.MatchClass):
            names.add(ast.unparse(pattern.cls).rpartition(".")[2])
    return names


def _is_silent(case):
    """Check whether an arm takes everything, and neither raises nor reports a failure."""
    pattern = case.pattern
    takes_all = isinstance(pattern, ast.MatchAs) and pattern.pattern is None and not case.guard
    text = ast.unparse(case.body[0])
    return takes_all and not text.startswith(("raise ", "assert_never(", "self._nest.fail("))


def silent_arms(source):
    """Return the lines of silent last arms of matches on two classes of a grammar or more."""
    matches = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Match))
    return [
        match.cases[-1].pattern.lineno
        for match in matches
        if any(len(_classes(match) & grammar) >= 2 for grammar in GRAMMARS)
        and _is_silent(match.cases[-1])
    ]


def test_no_match_on_nodes_is_silent_about_the_others():
    for path in sorted(COMPILER.rglob("*.py")):
        assert not silent_arms(path.read_text()), path


@pytest.mark.parametrize(
    ("last", "lines"),
    [("return 0", [5]), ("raise ValueError(node)", []), ("assert_never(node)", [])],
)
def test_the_search_sees_a_silent_arm(last, lines):
    source = f"""match node:
    case For() | While():
        return 1
    case Store(): return 2
    case _: {last}
"""
    assert silent_arms("def f(node):\n" + "".join(f" {x}\n" for x in source.splitlines())) == [
        line + 1 for line in lines
    ]
