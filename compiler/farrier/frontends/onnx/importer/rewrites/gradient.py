"""Rewrite Gradient of ai.onnx.preview.training: derivatives of a value that the graph computes."""

from __future__ import annotations

from farrier.frontends.builder.gradients import gradients
from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.graph import Value
from farrier.ops import Mismatch, NotSupported


def gradient(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Gradient to the nodes of the derivatives. Raises NotSupported for an operator without
    a derivative rule, and if the operands are not the tensors that the attributes name."""
    xs, zs = node.attrs["xs"], node.attrs.get("zs", ())
    if [scope.entry(n) for n in (*xs, *zs)] != [scope.entry(n) for n in node.inputs]:
        raise NotSupported("a gradient at other values than those of the tensors it names")
    sources, target = [_value(scope, name) for name in xs], _value(scope, node.attrs["y"])
    for name, value in zip(xs, sources, strict=True):
        if scope.known(value) is not None:
            raise NotSupported(f"a gradient by {name!r}, which is a constant and no input,")
    for name, result in zip(node.outputs, gradients(scope, target, sources), strict=False):
        if name:
            scope.bind(name, scope.entry(result))
    return []


def _value(scope: ImportScope, name: str) -> Value:
    entry = scope.entry(name)
    if not isinstance(entry, Value) or not entry.type.dtype.is_float:
        raise Mismatch(f"{name!r} is no tensor of floats")
    return entry
