"""Read graphs from a syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from farrier.ir.graph import Attribute, Constant, Graph, Node, Value
from farrier.ir.text.extents import Dims, read_extent
from farrier.ir.text.syntax import (
    Malformed,
    look_up,
    read_arguments,
    read_literal,
    read_names,
    read_returned,
)
from farrier.ir.text.types import read_type
from farrier.ir.types import TensorType

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class GraphReader:
    def __init__(self, constants: Mapping[str, npt.NDArray[Any]], dims: Dims) -> None:
        self._arrays = constants
        self._dims = dims

    def graph(self, definition: ast.FunctionDef, outer: Mapping[str, Value]) -> Graph:
        """Read a graph; `outer` holds the values of the enclosing graph, which a region may
        read."""
        inputs = tuple(
            Value(name, read_type(node, self._dims)) for name, node in read_arguments(definition)
        )
        scope = dict(outer) | {value.name: value for value in inputs}
        constants: list[Constant] = []
        nodes: list[Node] = []
        declared: list[Value] = []  # Outputs of the node that the next statement defines.
        regions: list[Graph] = []
        body, results = read_returned(definition)
        for statement in body:
            match statement:
                case ast.FunctionDef():
                    regions.append(self.graph(statement, scope))
                    continue
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=call):
                    declared.append(Value(name, read_type(annotation, self._dims)))
                    if call is None:
                        continue
                    if _is_constant(call):
                        constants.append(self._constant(declared.pop(), call))
                        scope[name] = constants[-1].value
                        continue
                case ast.Assign(targets=[targets], value=call):
                    if read_names(targets) != [value.name for value in declared]:
                        raise Malformed(targets, "the outputs are not those declared just before")
                case ast.Expr(value=call):
                    pass
                case _:
                    raise Malformed(statement, "expected `name: type = Operator(…)`")
            nodes.append(self._node(call, tuple(declared), tuple(regions), scope))
            scope |= {value.name: value for value in declared}
            declared, regions = [], []
        outputs = tuple(look_up(scope, result) for result in results)
        return Graph(definition.name, inputs, tuple(constants), tuple(nodes), outputs)

    def _constant(self, value: Value, call: ast.Call) -> Constant:
        if len(call.args) != 1 or call.keywords:
            raise Malformed(call, "constant takes its elements, or the sha256 of its content")
        if _names(call.args[0]) & self._dims.keys():
            return Constant(value, self._with_dims(value.type, call.args[0]))
        content = read_literal(call.args[0])
        if not isinstance(content, str):
            return Constant(value, _array(value.type, content, call))
        if content not in self._arrays:
            raise Malformed(
                call,
                f"no array with the sha256 {content} was given",
                hint="a dump leaves such arrays in a folder beside the text; --constants names it",
            )
        data = self._arrays[content]
        if data.dtype.kind == "V":  # A .npy file holds bf16 as raw bytes.
            data = data.view(value.type.dtype.numpy)
        if data.shape != value.type.shape or data.dtype != value.type.dtype.numpy:
            raise Malformed(
                call, f"the array is {data.dtype}{list(data.shape)}, not as {value.name} is typed"
            )
        return Constant.named(value, data, content)

    def _with_dims(self, type: TensorType, content: ast.expr) -> npt.NDArray[Any]:
        """Read the content of a constant that has dims among its elements; the other elements are
        numbers."""
        import numpy as np

        items = content.elts if isinstance(content, ast.List) else [content]
        array = np.empty(len(items), object)
        array[:] = list(map(self._item, items))
        if array.size != type.size:
            raise Malformed(content, f"{array.size} elements for the shape {type.shape}")
        array = array.reshape(type.static_shape)
        array.flags.writeable = False
        return array

    def _item(self, item: ast.expr) -> Any:
        """Read one element of a constant: a literal, or an extent over dims."""
        if _names(item) & self._dims.keys():
            return read_extent(item, self._dims)
        return read_literal(item)

    def _node(
        self,
        call: ast.expr,
        outputs: tuple[Value, ...],
        regions: tuple[Graph, ...],
        scope: Mapping[str, Value],
    ) -> Node:
        if not isinstance(call, ast.Call):
            raise Malformed(call, "expected Operator(…)")
        function: ast.expr = call.func
        names: list[str] = []
        if isinstance(function, ast.Subscript):
            names = read_names(function.slice)
            function = function.value
        if names != [region.name for region in regions]:
            raise Malformed(
                call,
                f"the regions defined just before are {[r.name for r in regions]}, not {names}",
            )
        inputs = tuple(
            None if isinstance(argument, ast.Constant) else look_up(scope, argument)
            for argument in call.args
        )
        attrs: dict[str, Attribute] = {k.arg: self._item(k.value) for k in call.keywords if k.arg}
        origin = str(attrs.pop("origin", ""))
        ordered = tuple(sorted(attrs.items()))
        return Node(ast.unparse(function), inputs, outputs, ordered, regions, origin)


def _names(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def _is_constant(call: ast.expr) -> TypeGuard[ast.Call]:
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "constant"
    )


def _array(type: TensorType, content: Any, place: ast.AST) -> npt.NDArray[Any]:
    import numpy as np

    try:
        array: npt.NDArray[np.generic] = np.array(content, type.dtype.numpy).reshape(
            type.static_shape
        )
    except (ValueError, OverflowError, TypeError) as error:
        raise Malformed(place, str(error)) from error
    array.flags.writeable = False
    return array
