"""Check the invariants of each grammar of the IR; a violation is a defect of the compiler.

An error names the object and the two facts that contradict each other, and shows the IR around it.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from farrier.errors import CompilerError
from farrier.ir.control import is_control
from farrier.ir.dim import Dim
from farrier.ir.graph import Constant, ConstantData, Derived, Graph, Node, Value
from farrier.ir.loop import Function
from farrier.ir.printer import print_ir, print_type
from farrier.ir.tensor import TensorProgram
from farrier.ir.types import Layout, TensorType
from farrier.ir.verify_kernel import verify_function, verify_program

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ATTRIBUTES = (int, float, str, bool, Dim)


def verify(node: Graph | TensorProgram | Function, before: Graph | None = None) -> None:
    """Raise CompilerError if `node` violates a rule of its grammar. Nodes and constants that also
    occur in `before`, a graph that was already verified, are not checked again."""
    match node:
        case Graph():
            _verify_graph(node, frozenset() if before is None else frozenset(_parts(before)))
        case TensorProgram():
            verify_program(node)
        case Function():
            verify_function(node)
        case _:
            assert_never(node)


def _parts(graph: Graph) -> Iterator[int]:
    """Yield the object identities of a graph's nodes and constants, including those in regions."""
    yield from map(id, graph.constants)
    for node in graph.nodes:
        yield id(node)
        for region in node.regions:
            yield from _parts(region)


def _verify_graph(graph: Graph, right: frozenset[int]) -> None:
    """Check a graph. `right` are the object identities of already verified nodes and constants."""
    if not _is_name(graph.name):
        raise _misnamed(graph.name, "graph")
    defined: dict[str, Value] = {}

    def define(values: Iterable[Value], by: str | Node) -> None:
        for value in values:
            if not _is_name(value.name):
                raise _misnamed(value.name, _described(by))
            if value.name in defined:
                raise CompilerError(
                    f"graph {graph.name}: {value.name} is defined again by {_described(by)}"
                )
            _check_layout(value)
            defined[value.name] = value

    define(graph.inputs, f"the inputs of {graph.name}")
    for constant in graph.constants:
        define([constant.value], f"the constants of {graph.name}")
        _check_constant(constant)
    constants = {constant.value.name: constant for constant in graph.constants}
    for node in graph.nodes:
        _check_node(node, defined, constants, right)
        define(node.outputs, node)
    for value in graph.outputs:
        if defined.get(value.name) != value:
            raise CompilerError(
                f"graph {graph.name}: returns {_show(value)}, but {_found(defined, value)}"
            )


def _is_name(name: str) -> bool:
    return _IDENTIFIER.fullmatch(name) is not None and not keyword.iskeyword(name)


def _misnamed(name: str, what: str) -> CompilerError:
    return CompilerError(f"{name!r} cannot name a part of {what}: it is no identifier")


def _described(what: str | Node) -> str:
    return f"{what.op}\n{print_ir(what)}" if isinstance(what, Node) else what


def _check_layout(value: Value) -> None:
    layout = value.type.layout
    if layout is None:
        return
    rank = value.type.rank
    if layout.swizzle is not None:
        raise CompilerError(f"{_show(value)}: only workgroup buffers of kernels have a swizzle")
    if layout.halo and len(layout.halo) != rank:
        raise CompilerError(f"{_show(value)}: {len(layout.halo)} halos for {rank} axes")
    axes = {dim.axis for dim in layout.dims}
    if axes != set(range(rank)):
        raise CompilerError(f"{_show(value)}: the layout places axes {sorted(axes)} of {rank}")
    for axis in range(rank):
        _check_blocks(value, layout, axis)


def _check_blocks(value: Value, layout: Layout, axis: int) -> None:
    """Check that the layout's blocks of an axis nest: the size of each divides that of the next,
    and an axis that is split into blocks has no halo."""
    parts = sorted((dim for dim in layout.dims if dim.axis == axis), key=lambda dim: dim.div)
    reach = 1
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if part.div != reach or (part.mod == 0) != last:
            raise CompilerError(f"{_show(value)}: the parts of axis {axis} leave gaps or overlap")
        reach *= part.mod
    if len(parts) > 1 and any(layout.halo_of(axis)):
        raise CompilerError(f"{_show(value)}: axis {axis} is split and has a halo")


def _check_constant(constant: Constant) -> None:
    type, data = constant.value.type, constant.content
    if isinstance(data, Derived):
        if (data.type.dtype, data.type.shape) != (type.dtype, type.shape):
            derived = print_type(data.type)
            raise CompilerError(
                f"constant {_show(constant.value)}: its data is derived as {derived}"
            )
    elif data.shape != type.shape or data.dtype not in (type.dtype.numpy, object):
        raise CompilerError(
            f"constant {_show(constant.value)}: its data is {data.dtype}{list(data.shape)}"
        )


def _check_node(
    node: Node,
    defined: Mapping[str, Value],
    constants: Mapping[str, Constant],
    right: frozenset[int],
) -> None:
    read = [value for value in node.inputs if value is not None]
    for value in read:
        if defined.get(value.name) != value:
            raise _error(node, f"reads {_show(value)}, but {_found(defined, value)}")
    operands = [constants[value.name] for value in read if value.name in constants]
    if id(node) in right and all(id(constant) in right for constant in operands):
        return
    _check_attributes(node)
    if node.op == "Fused":
        _check_fused(node, right)
        return
    if is_control(node):
        _check_control(node, right)
        return
    inferred = _infer(node, constants)
    declared = [(value.type.dtype, value.type.shape) for value in node.outputs]
    if declared != [(type.dtype, type.shape) for type in inferred]:
        listed = ", ".join(map(print_type, inferred))
        raise _error(node, f"its operands give it the outputs ({listed})")


def _infer(node: Node, constants: Mapping[str, Constant]) -> tuple[TensorType, ...]:
    from farrier.ops import Mismatch, NotStatic, NotSupported, lookup

    operands = {
        position: constants[value.name]
        for position, value in enumerate(node.inputs)
        if value is not None and value.name in constants
    }
    types = [value.type if value is not None else None for value in node.inputs]
    try:
        return lookup(node.op).infer(types, ConstantData(operands), dict(node.attrs))
    except KeyError:
        raise _error(node, "no operator has this name") from None
    except NotStatic:  # Constants are not folded yet; the importer stated the types.
        return tuple(value.type for value in node.outputs)
    except (Mismatch, NotSupported) as error:
        raise _error(node, str(error)) from error


def _check_control(node: Node, right: frozenset[int]) -> None:
    from farrier.ops import Mismatch
    from farrier.ops.control import check_control

    for region in node.regions:
        _verify_graph(region, right)
    try:
        check_control(node)
    except Mismatch as error:
        raise _error(node, str(error)) from error


def _check_fused(node: Node, right: frozenset[int]) -> None:
    """Check a fused kernel: the region must read only its own inputs, and these must have the types
    of the node's inputs. `right` are the identities of nodes and constants that are already
    verified."""
    if len(node.regions) != 1:
        raise _error(node, f"has {len(node.regions)} regions, not one")
    region = node.regions[0]
    operand_types = [value.type if value is not None else None for value in node.inputs]
    for what, outside, inside in (
        ("inputs", operand_types, region.inputs),
        ("outputs", [value.type for value in node.outputs], region.outputs),
    ):
        if outside != [value.type for value in inside]:
            types = ", ".join(map(_show, inside))
            raise _error(node, f"its region's {what} are typed otherwise: {types}")
    _verify_graph(region, right)


def _check_attributes(node: Node) -> None:
    names = [name for name, _ in node.attrs]
    if names != sorted(set(names)) or "origin" in names:
        raise _error(node, f"its attributes are not in canonical order: {names}")
    for name, value in node.attrs:
        items = value if isinstance(value, tuple) else (value,)
        if not all(type(item) in _ATTRIBUTES for item in items):
            raise _error(node, f"attribute {name} is {value!r}, no number, extent or string")


def _show(value: Value) -> str:
    return f"{value.name}: {print_type(value.type)}"


def _found(defined: Mapping[str, Value], value: Value) -> str:
    other = defined.get(value.name)
    return f"{_show(other)} is what is defined" if other else "nothing before defines it"


def _error(node: Node, message: str) -> CompilerError:
    origin = f" (from {node.origin})" if node.origin else ""
    return CompilerError(f"{node.op}{origin}: {message}\n{print_ir(node)}")
