"""Modules of StableHLO in MLIR's generic form, as texts."""

import re

_OPERATION = re.compile(r"(?:(\S+) = )?(\S+)(.*?)(<\{.*?\}>)?(?: \{\{(.*)\}\})? : (.*?) -> (.*)")
_NAMES = {"b": "i1", "i": "i32", "l": "i64", "f": "f32"}


def kind(shape):
    """Return a type: `f4x6` is tensor<4x6xf32>, and `i` is tensor<i32>."""
    sizes = f"{shape[1:]}x" if shape[1:] else ""
    return f"tensor<{sizes}{_NAMES.get(shape[0], shape[0])}>"


def operation(text):
    """Return an operation of the text `r = add x y : f4 f4 -> f4`, with attributes before the
    colon."""
    match = _OPERATION.fullmatch(text)
    assert match, text
    results, name, operands, attrs, regions, inputs, outputs = match.groups()
    count = len(outputs.split())
    head = f"%{results}{f':{count}' if count > 1 else ''} = " if results else ""
    name = name if "." in name else f"stablehlo.{name}"
    values = ", ".join(f"%{operand}" for operand in operands.split())
    body = f" ({', '.join(regions.split(' || '))})" if regions else ""
    kinds = [", ".join(map(kind, each.split())) for each in (inputs.strip("()"), outputs)]
    return f'{head}"{name}"({values}) {attrs or ""}{body} : ({kinds[0]}) -> ({kinds[1]})'


def region(arguments, *operations, returns):
    """Return a region: its arguments as `x:f y:f`, operations, and the type of each value returned
    as `z:f`."""
    pairs = [each.split(":") for each in arguments.split()]
    listed = ", ".join(f"%{name}: {kind(shape)}" for name, shape in pairs)
    head = f"^bb0({listed}): " if pairs else ""
    values = [each.split(":") for each in returns.split()]
    names, kinds = ", ".join(f"%{n}" for n, _ in values), ", ".join(kind(k) for _, k in values)
    body = " ".join(map(operation, operations))
    return f'{{ {head}{body} "stablehlo.return"({names}) : ({kinds}) -> () }}'


def function(name, arguments, operations, returns):
    """Return a function with its arguments and results as those of a region."""
    pairs = [each.split(":") for each in arguments.split()]
    values = [each.split(":") for each in returns.split()]
    types = ", ".join(kind(shape) for _, shape in pairs)
    results = ", ".join(kind(shape) for _, shape in values)
    inputs = ", ".join(f'%{each}: {kind(shape)} loc("{each}")' for each, shape in pairs)
    head = f'<{{function_type = ({types}) -> ({results}), sym_name = "{name}"}}>'
    body = "\n".join(map(operation, operations))
    end = f'"func.return"({", ".join(f"%{n}" for n, _ in values)}) : ({results}) -> ()'
    return f'"func.func"() {head} ({{\n^bb0({inputs}):\n{body}\n{end}\n}}) : () -> ()'


def module(arguments, *operations, returns, functions=()):
    """Return a module whose main function has these operations."""
    texts = [function("main", arguments, operations, returns), *functions]
    return '"builtin.module"() ({\n' + "\n".join(texts) + "\n}) : () -> ()\n"
