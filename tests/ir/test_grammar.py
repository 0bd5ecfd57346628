"""The grammars at the heads of modules are those of the dataclasses below them."""

import ast
import dataclasses
import enum
import re
import typing
from pathlib import Path

import pytest

from farrier.ir import control, expr, graph, instr, loop, tensor
from farrier.ir import types as ir_types
from farrier.ir.dim import Dim
from farrier.partition import program
from farrier_device import program as device_program

MODULES = [expr, graph, tensor, loop, instr, program, device_program]
# The productions that enumerate a union or an enumeration, by module.
ALTERNATIVES = [
    (ir_types, "dtype", ir_types.DType),
    (expr, "unary", expr.UnaryOp),
    (expr, "binary", expr.BinaryOp),
    (expr, "reduce", expr.ReduceOp),
    (expr, "scope", expr.MemoryScope),
    (expr, "expr", expr.Expr),
    (loop, "kind", loop.LoopKind),
    (loop, "stmt", loop.Stmt),
    (instr, "operand", instr.Operand),
    (instr, "effect", instr.Effect),
    (graph, "attr", graph.Attribute),
    (program, "step", program.Step),
    (device_program, "step", device_program.Step),
]
RULES = [f"{module.__name__}:{rule}" for module, rule, _ in ALTERNATIVES]
# Symbols that are not the name of their class in small letters.
SYMBOLS = {"NamedSize": "size", "Attribute": "attr", "TensorType": "type", "Tile": "operand"}
IN_NOTATION = {  # Productions that are written as text, with the fields of their classes.
    (expr, "buffer"): (expr.Buffer, ["name", "dtype", "extent", "layout", "scope"]),
    (graph, "value"): (graph.Value, ["name", "type"]),
}


def productions(module):
    """Return the right sides of a module's grammar by their left sides, without the notes."""
    text = ast.get_docstring(ast.parse(Path(module.__file__).read_text()))
    block = re.search(r"(?:^    .*\n)+", text, re.MULTILINE)[0]
    rules = {}
    for line in block.splitlines():
        start = re.match(r"    (\w+) *= ", line)
        if start is not None:
            rule = rules[start[1]] = []
        rule.append(re.split(r"(?<=\S) {2,}", line[start.end() if start else 0 :].strip())[0])
    return {name: " ".join(lines) for name, lines in rules.items()}


def constructors(module):
    """Return the arguments of each constructor of a module's grammar by its name."""
    text = " ".join(productions(module).values())
    return {m[1]: m[2].split(", ") for m in re.finditer(r"([A-Z]\w+)\(([^()]*)\)", text)}


def declared(field):
    """Return the ways in which a grammar may write a field, its role aside."""
    inner, form = field.type, "{}"
    for pattern, notation in (
        (r"tuple\[tuple\[str, (\w+)\], \.\.\.\]|Mapping\[str, (\w+)\]", "{{{}}}"),
        (r"tuple\[(.+) \| None, \.\.\.\]", "[{}?]"),
        (r"tuple\[(.+), \.\.\.\]|Sequence\[(.+)\]", "[{}]"),
        (r"(.+) \| None", "{}?"),
    ):
        match = re.fullmatch(pattern, inner)
        if match is not None:
            inner, form = next(filter(None, match.groups())), notation
            break
    singular = {"axes": "axis"}.get(field.name, field.name.removesuffix("s"))
    words = {field.name} if form in ("{}", "{}?") else {singular}
    if inner not in ("str", "int", "bool", "bytes"):
        words.add(SYMBOLS.get(inner, inner.lower()))
    return {form.format(word) for word in words}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_grammar_has_every_class_with_its_fields_in_order(module):
    classes = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and dataclasses.is_dataclass(value)
        and value.__module__ == module.__name__
    }
    written = constructors(module)
    in_notation = {cls.__name__ for (owner, _), (cls, _) in IN_NOTATION.items() if owner is module}
    assert written.keys() | in_notation == classes.keys()
    for name, arguments in written.items():
        fields = dataclasses.fields(classes[name])
        assert len(arguments) == len(fields), name
        for argument, field in zip(arguments, fields, strict=True):
            symbol, _, role = argument.partition(" ")
            assert symbol in declared(field), f"{name}: {argument}"
            assert role in ("", field.name), f"{name}: {argument}"


@pytest.mark.parametrize(("module", "rule"), IN_NOTATION, ids=["buffer", "value"])
def test_a_rule_in_notation_names_every_field(module, rule):
    cls, words = IN_NOTATION[module, rule]
    names = ["extent" if field.name == "shape" else field.name for field in dataclasses.fields(cls)]
    assert [word for word in re.findall(r"\w+", productions(module)[rule]) if word != "in"] == words
    assert names == words


def spelled(alternative):
    """Return how a grammar writes one alternative of a union or an enumeration."""
    if isinstance(alternative, enum.Enum):
        return alternative.value
    if typing.get_origin(alternative) is tuple:
        return f"[{typing.get_args(alternative)[0].__name__}]"
    return "dim" if alternative is Dim else alternative.__name__


@pytest.mark.parametrize(("module", "rule", "of"), ALTERNATIVES, ids=RULES)
def test_a_rule_enumerates_its_alternatives(module, rule, of):
    text = re.sub(r"\([^()]*\)", "", productions(module)[rule])
    extent = productions(ir_types)["extent"]
    written = re.sub(r"\bextent\b", extent, text).split(" | ")
    alternatives = list(of) if isinstance(of, enum.EnumMeta) else typing.get_args(of)
    assert len(written) == len(set(written))
    assert set(written) == {spelled(alternative) for alternative in alternatives}


def test_control_flow_is_written_as_its_views_have_it():
    text = ast.get_docstring(ast.parse(Path(control.__file__).read_text()))
    for cls in control.If, control.Loop:
        (line,) = re.findall(rf"^    (\S.* = {cls.__name__}\[.*)$", text, re.MULTILINE)
        forms = {field.name: field.type for field in dataclasses.fields(cls)}
        written = [part for part in re.findall(r"(\w+)(…|\?|)", line) if part[0] in forms]
        assert len(written) >= 3
        for name, mark in written:
            expected = {"tuple[Value, ...]": "…", "Value | None": "?"}.get(forms[name], "")
            assert mark == expected, f"{cls.__name__}: {name}"
