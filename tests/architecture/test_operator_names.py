"""Facts about an operator are declared with it: few tests of its name are left outside `ops/`.

A *test of a name* is a string that names an operator, where code decides by it: an operand of `==`,
`!=` or `in`, a case of a match, a key of a dictionary, or an element of a set, tuple or list, which
stands for such a table; also a comparison with a constant that holds a name, as `FAIL`. What
constructs a node (`Node("Mul", …)`, `scope.add("Mul", …)`) is not a test, nor is what stands in a
docstring, in `ops/`, which declares the operators, or in frontends, which translate models into
them (in the builder of frontends, `rewrites/` does).

A *pattern* is a test by the operator itself (`CONV.matches(node)`), which a rewrite of this
operator needs: the rules in `passes/rules/` are rewrites, and are not counted. Code that asks what
holds for an operator asks for a trait or a rule instead.
"""

import ast
import collections
from pathlib import Path

from farrier.ops import names

COMPILER = Path(__file__).parents[2] / "compiler/farrier"
_FRONTENDS = tuple(f"frontends/{name}/" for name in ("onnx", "stablehlo", "tflite", "torch"))
_APART = ("ops/", *_FRONTENDS, "frontends/builder/rewrites/")
_REWRITES = "passes/rules/"
# They may only fall: lower them with what you remove.
_MOST_NAMES = 13
_MOST_PATTERNS = 62


def _strings(node):
    """Yield the string literals of an expression, and those of a display of them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from _strings(element)
    elif isinstance(node, ast.Starred):
        yield from _strings(node.value)


def _operands(node, constants):
    """Yield what `node` compares with, and what it names in a table."""
    match node:
        case ast.Compare():
            for operand in (node.left, *node.comparators):
                yield from _strings(operand)
                if isinstance(operand, ast.Name) and operand.id in constants:
                    yield ast.copy_location(ast.Constant(constants[operand.id]), operand)
        case ast.MatchValue():
            yield from _strings(node.value)
        case ast.Dict():
            for key in node.keys:
                yield from _strings(key)
        case ast.Set() | ast.Tuple() | ast.List():
            yield from _strings(node)


def name_tests(source, operators, constants):
    """Return the operators that code tests for by name, each as (line, name)."""
    tested = {
        (string.lineno, string.col_offset): string.value
        for node in ast.walk(ast.parse(source))
        for string in _operands(node, constants)
        if string.value in operators
    }
    return [(line, name) for (line, _), name in sorted(tested.items())]


def patterns(source):
    """Return the lines in which code tests for an operator by the operator."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr == "matches"
        and isinstance(node.value, ast.Name)
        and node.value.id.isupper()
    ]


def _named_constants(sources, operators):
    """Return the constants of modules that hold the name of an operator."""
    return {
        statement.targets[0].id: statement.value.value
        for source in sources
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Constant)
        and statement.value.value in operators
    }


def _counted(counts):
    total = sum(counts.values())
    return total, "".join(f"\n{count:4} {path}" for path, count in counts.most_common() if count)


def test_few_tests_of_an_operators_name_are_left():
    sources = {
        path.relative_to(COMPILER).as_posix(): path.read_text()
        for path in sorted(COMPILER.rglob("*.py"))
        if not path.relative_to(COMPILER).as_posix().startswith(_APART)
    }
    operators = names()
    constants = _named_constants(sources.values(), operators)
    by_name = collections.Counter()
    by_operator = collections.Counter()
    for path, source in sources.items():
        by_name[path] = len(name_tests(source, operators, constants))
        if not path.startswith(_REWRITES):
            by_operator[path] = len(patterns(source))
    total, listed = _counted(by_name)
    assert total <= _MOST_NAMES, f"{total} tests of an operator's name:{listed}"
    total, listed = _counted(by_operator)
    assert total <= _MOST_PATTERNS, f"{total} patterns of an operator:{listed}"


def test_the_search_sees_each_kind_of_test():
    source = '''
"""Add, in a docstring."""
_TABLE = frozenset(("Add", *("Mul", "other")))
_COSTS = {"Exp": 15}
def f(node):
    if node.op == "Add" or node.op in ("Mul", "Sub") or FAIL != node.op:
        return Node("Add", ("x",), hint="Mul")
    match node.op:
        case "Exp" | "Neg": return MUL.matches(node)
    return "Add"
'''
    operators = {"Add", "Mul", "Sub", "Exp", "Neg", "Fail"}
    tested = name_tests(source, operators, {"FAIL": "Fail"})
    assert tested == [
        *((3, "Add"), (3, "Mul"), (4, "Exp")),
        *((6, "Add"), (6, "Mul"), (6, "Sub"), (6, "Fail")),
        *((9, "Exp"), (9, "Neg")),
    ]
    assert patterns(source) == [9]
