"""Upgrade nodes from before opset 7, in which broadcasting was explicit.

Such models come from the first exporters; each rule returns the form of opset 7.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ops import Mismatch, NotSupported

_BROADCASTING = frozenset(
    ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", "Gemm")
)
_CAST_NAMES = {"FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7}
_CAST_NAMES |= {"BOOL": 9, "FLOAT16": 10, "DOUBLE": 11, "UINT32": 12, "UINT64": 13}


def upgrade(node: RawNode, opset: int, scope: ImportScope) -> None:
    """Change `node` into the form of opset 7."""
    attrs = node.attrs
    if node.op in _BROADCASTING:
        _align(node, scope)
    match node.op:
        case "PRelu":  # One slope for each channel, as a vector.
            x, slope = node.inputs
            if len(scope.shape(slope)) == 1 and len(scope.shape(x)) > 2:
                node.inputs[1] = _unsqueezed(slope, range(1, len(scope.shape(x)) - 1), scope)
        case "BatchNormalization" | "Dropout":
            if not attrs.pop("is_test", 0) and any(map(scope.is_read, node.outputs[1:])):
                raise NotSupported("training mode before opset 7")
        case "Reshape" if "shape" in attrs:
            node.inputs.append(scope.constant(ints(attrs.pop("shape"))))
        case "Cast" if isinstance(attrs["to"], str):
            attrs["to"] = _CAST_NAMES[attrs["to"].upper()]
        case "Pad" if "paddings" in attrs:
            attrs["pads"] = attrs.pop("paddings")
        case "Concat":
            attrs.setdefault("axis", 1)
        case "Upsample" if "width_scale" in attrs:
            attrs["scales"] = (1.0, 1.0, attrs.pop("height_scale"), attrs.pop("width_scale"))
        case "Tile" if opset < 6:
            _tile(node, scope)
        case _:
            pass


def _align(node: RawNode, scope: ImportScope) -> None:
    """Reshape the second operand so that its axes correspond to axes `axis`, … of the first
    operand; without the attribute `axis`, to its last axes."""
    broadcast, axis = node.attrs.pop("broadcast", 0), node.attrs.pop("axis", None)
    if not broadcast or axis is None:
        return
    x, y = (len(scope.shape(name)) for name in node.inputs[:2])
    after = x - y - (axis if axis >= 0 else axis + x)
    if after < 0:
        raise Mismatch(f"an operand of rank {y} at axis {axis} of one of rank {x}")
    if after:
        node.inputs[1] = _unsqueezed(node.inputs[1], range(y, y + after), scope)


def _tile(node: RawNode, scope: ImportScope) -> None:
    """Repeat the tensor `tiles` times along `axis`."""
    x, tiles, axis = node.inputs
    count, position = (scope.data(name) for name in (tiles, axis))
    if count is None or position is None:
        raise NotSupported("a number of tiles that is computed at run time, before opset 6")
    repeats = np.ones(len(scope.shape(x)), np.int64)
    repeats[int(position.item())] = count.item()
    node.inputs[1:] = [scope.constant(repeats)]


def _unsqueezed(name: str, axes: Any, scope: ImportScope) -> str:
    return scope.add("Unsqueeze", name, list(axes))
