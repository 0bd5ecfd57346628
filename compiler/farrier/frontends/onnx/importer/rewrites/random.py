"""Rewrite random operators to RandomUniformLike and RandomNormalLike, each with its own seed."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.frontends.onnx.importer.tensors import dtype_of
from farrier.ir.types import DType


def seed_of(node: RawNode) -> int:
    """Return a seed of 32 bits: the bits of the attribute `seed`, or else a hash of the node's
    name."""
    seed = node.attrs.pop("seed", None)
    if seed is None:
        return zlib.crc32(node.origin.encode())
    return int(struct.unpack("<I", struct.pack("<f", seed))[0])


def random_like(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite RandomUniformLike and RandomNormalLike: the element type defaults to the input's."""
    dtype = scope.dtype(node.inputs[0])
    if "dtype" in node.attrs:
        dtype = dtype_of(node.attrs["dtype"], f"the result of node {node.origin!r}")
    attrs = node.attrs | {"dtype": str(dtype), "seed": seed_of(node)}
    return [RawNode(node.op, node.inputs, node.outputs, attrs, node.origin)]


def random(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite RandomUniform and RandomNormal with a shape that is an attribute."""
    dtype = dtype_of(node.attrs.pop("dtype", 1), f"the result of node {node.origin!r}")
    shape = scope.constant(ints(node.attrs.pop("shape")))
    filled = scope.add("ConstantOfShape", shape, dtype=str(DType.BOOL), value=0)
    attrs = node.attrs | {"dtype": str(dtype), "seed": seed_of(node)}
    return [RawNode(f"{node.op}Like", [filled], node.outputs, attrs, node.origin)]


def multinomial(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Multinomial: sample classes, [batch, samples], from unnormalized log-probabilities,
    [batch, classes]. A sample is the number of classes whose cumulative probability is less than a
    uniform random number."""
    to = dtype_of(node.attrs.get("dtype", 6), f"the result of node {node.origin!r}")
    logits, seed = node.inputs[0], seed_of(node)
    rows, classes = scope.shape(logits)
    chances = scope.add("Softmax", logits, axis=-1)
    sums = scope.add("CumSum", chances, scope.constant(np.array(1, np.int64)))
    shape = scope.constant(ints([rows, int(node.attrs.get("sample_size", 1)), 1]))
    filled = scope.add("ConstantOfShape", shape, dtype=str(DType.BOOL), value=0)
    kind = str(scope.dtype(logits))
    drawn = scope.add("RandomUniformLike", filled, dtype=kind, seed=seed)
    beyond = scope.add("Less", scope.add("Unsqueeze", sums, [1]), drawn)
    counted = scope.add("Cast", beyond, to="i64")
    chosen = scope.add("ReduceSum", counted, [2], keepdims=0)
    bounded = scope.add("Min", chosen, classes - 1)
    return [RawNode("Cast", [bounded], node.outputs, {"to": str(to)}, node.origin)]


def bernoulli(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Bernoulli: 1 with the probability in the input, else 0. (ONNX's own function body is
    1 if a number exceeds the probability, which contradicts its specification.)"""
    chances = node.inputs[0]
    to = scope.dtype(chances)
    drawn = scope.add("RandomUniformLike", chances, dtype=str(to), seed=seed_of(node))
    if "dtype" in node.attrs:
        to = dtype_of(node.attrs["dtype"], f"the result of node {node.origin!r}")
    is_drawn = scope.add("Less", drawn, chances)
    return [RawNode("Cast", [is_drawn], node.outputs, {"to": str(to)}, node.origin)]
