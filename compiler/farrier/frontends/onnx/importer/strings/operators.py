"""Rewrite operators that compute from strings: Shape, Equal, StringNormalizer."""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.frontends.onnx.importer.strings.automaton import automaton
from farrier.frontends.onnx.importer.strings.cases import change_case
from farrier.frontends.onnx.importer.strings.codes import (
    bind_strings,
    codes,
    is_strings,
    of_one_width,
    words,
)
from farrier.frontends.onnx.importer.strings.tables import find
from farrier.ir.dim import product
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported
from farrier.ops.statics import shape_bounds

_OWN_CASES = ("az", "lt", "tr")  # Languages with their own rules of casing.


def shape(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Shape: the shape of strings does not include the width."""
    if not is_strings(scope, node.inputs[0]):
        return [node]
    extents = scope.shape(codes(scope, node.inputs[0]))[:-1]
    selected = extents[shape_bounds(node.attrs, len(extents))]
    return [RawNode("Identity", [scope.constant(ints(selected))], node.outputs, {}, node.origin)]


def size(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    if not is_strings(scope, node.inputs[0]):
        return [node]
    count = product(scope.shape(codes(scope, node.inputs[0]))[:-1])
    return [RawNode("Identity", [scope.constant(ints(count))], node.outputs, {}, node.origin)]


def equal(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Equal: strings are equal if all of their code points are."""
    if not any(is_strings(scope, name) for name in node.inputs):
        return [node]
    sides = of_one_width(scope, [codes(scope, name) for name in node.inputs])
    same = scope.add("Cast", scope.add("Equal", *sides), to=str(DType.U8))
    all_same = scope.add("ReduceMin", same, [-1], keepdims=0)
    attrs = {"to": str(DType.BOOL)}
    return [RawNode("Cast", [all_same], node.outputs, attrs, node.origin)]


def full_match(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    tables = map(scope.constant, automaton(node.attrs["pattern"]))
    operands = [codes(scope, node.inputs[0]), *tables]
    return [RawNode("MatchAutomaton", operands, node.outputs, {}, node.origin)]


def normalize(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite StringNormalizer: convert the case, and drop strings that are stop words. If none
    remains, the result is a single empty string."""
    attrs, x = node.attrs, codes(scope, node.inputs[0])
    *extents, width = scope.shape(x)
    if len(extents) not in (1, 2) or extents[:-1] not in ([], [1]):
        raise Mismatch(f"strings of the shape {extents}, which must be [C] or [1, C]")
    action = attrs.get("case_change_action", "NONE")
    if action not in ("LOWER", "UPPER", "NONE"):
        raise Mismatch(f"the case_change_action {action!r}")
    if str(attrs.get("locale", ""))[:2] in _OWN_CASES:
        raise NotSupported(f"the locale {attrs['locale']!r}")
    strings = scope.add("Reshape", x, [extents[-1], width])
    changed = strings if action == "NONE" else change_case(scope, strings, action.lower())
    stops = words(attrs.get("stopwords", ()))
    compared = strings
    if not attrs.get("is_case_sensitive", 0):
        # As ONNX Runtime does it, which the specification leaves open.
        stops = np.char.upper(stops) if action == "UPPER" else np.char.lower(stops)
        compared = change_case(scope, strings, "lower") if action == "NONE" else changed
    kept = _kept(scope, changed, compared, stops)
    if len(extents) == 2:
        kept = scope.add("Unsqueeze", kept, [0])
    bind_strings(scope, node.outputs[0], kept)
    return []


def _kept(scope: ImportScope, strings: str, compared: str, stops: np.ndarray) -> str:
    """Return the strings of [C, width] whose counterpart in `compared` is not a stop word."""
    empty = scope.constant(np.zeros((1, 1), np.uint32))
    if scope.shape(strings)[0] == 0:
        return empty
    if not stops.size:
        return strings
    place, _ = find(scope, compared, stops)
    count = scope.constant(ints(len(np.unique(stops))))
    stays = scope.add("Equal", place, count)
    some = scope.add("ReduceMax", scope.add("Cast", stays, to="u8"), keepdims=1)
    none_stays = scope.add("Not", scope.add("Cast", some, to="bool"))
    together = scope.add("Concat", *of_one_width(scope, [strings, empty]), axis=0)
    return scope.add("Compress", together, scope.add("Concat", stays, none_stays, axis=0), axis=0)
