"""Upgrade nodes of older opsets to the form of the newest opset, so that operators have a single
form.

Each upgrade is a small function of one node. It may read the shapes and constants known so far,
define constants, and replace the node by several nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites import recurrence
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.rewrites import (
    before_seven,
    branches,
    classical,
    columns,
    einsum,
    experimental,
    forest_classifier,
    gradient,
    loops,
    microsoft,
    ngrams,
    optimizers,
    quantized,
    random,
    resize,
    sequences,
    spectral,
    support_vectors,
    training,
    trees,
)
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.frontends.onnx.importer.strings import operators as strings
from farrier.frontends.onnx.importer.strings.codes import is_strings, words
from farrier.frontends.onnx.importer.strings.decimals import from_strings, to_strings
from farrier.frontends.onnx.importer.strings.tables import category_mapper, label_encoder
from farrier.frontends.onnx.importer.tensors import dtype_of
from farrier.ir.dim import product
from farrier.ir.types import DType
from farrier.ops import NotSupported
from farrier.ops.conversion import saturates
from farrier.ops.operator import Mismatch, extents_array, normal_axis


def upgrade(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Return the node, or the nodes that replace it, in the newest opset's form. Raises Mismatch or
    NotSupported."""
    for name in _IRRELEVANT:
        node.attrs.pop(name, None)
    if opset < 7:
        before_seven.upgrade(node, opset, scope)
    rule = _UPGRADES.get(node.op)
    return rule(node, opset, scope) if rule else [node]


# Attributes without effect on inference.
_IRRELEVANT = ("stash_type", "consumed_inputs")


def _attribute_to_input(node: RawNode, scope: ImportScope, name: str, position: int) -> None:
    """Move an attribute that is a list of integers to an input, as in newer opsets."""
    if name in node.attrs:
        node.inputs += [""] * (position + 1 - len(node.inputs))
        node.inputs[position] = scope.constant(ints(node.attrs.pop(name)))


def _recurrence(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    return recurrence.expand(node, scope)


def _axes_to_input(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade Squeeze, Unsqueeze, ReduceSum (before opset 13) and the other reductions (before
    opset 18): axes become an input."""
    _attribute_to_input(node, scope, "axes", 1)
    return [node]


def _softmax(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade Softmax: before opset 13, the axes from `axis` (default 1) on were flattened, and
    normalized together."""
    if opset >= 13:
        return [node]
    shape = scope.shape(node.inputs[0])
    axis = normal_axis(node.attrs.pop("axis", 1), len(shape))
    long = [a for a in range(axis, len(shape)) if shape[a] not in (0, 1)]
    if len(long) <= 1:
        node.attrs["axis"] = long[0] if long else len(shape) - 1
        return [node]
    flat, result = scope.fresh(), scope.fresh()
    matrix = scope.constant(ints([product(shape[:axis]), product(shape[axis:])]))
    back = scope.constant(ints(shape))
    return [
        RawNode("Reshape", [node.inputs[0], matrix], [flat], {}, node.origin),
        RawNode(node.op, [flat], [result], {"axis": 1}, node.origin),
        RawNode("Reshape", [result, back], node.outputs, {}, node.origin),
    ]


def _clip(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade Clip: before opset 11, minimum and maximum were attributes."""
    if opset < 11:
        for position, name in enumerate(("min", "max"), 1):
            bound = node.attrs.pop(name, None)
            operand = "" if bound is None else scope.constant(np.array(bound, np.float32))
            node.inputs.insert(position, operand)
    return [node]


def _pad(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade Pad: before opset 11, pads and value were attributes."""
    if opset < 11:
        _attribute_to_input(node, scope, "pads", 1)
        node.inputs.append(scope.constant(np.array(node.attrs.pop("value", 0.0), np.float32)))
    return [node]


def _slice(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade Slice: before opset 10, starts, ends and axes were attributes."""
    for position, name in enumerate(("starts", "ends", "axes"), 1):
        _attribute_to_input(node, scope, name, position)
    return [node]


def _split(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade Split: before opset 13, lengths were an attribute; before opset 18, the number of
    equal parts was not declared."""
    _attribute_to_input(node, scope, "split", 1)
    if not node.input(1):
        node.attrs["num_outputs"] = len(node.outputs)
    return [node]


def _roi_align(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade RoiAlign: before opset 16, coordinates were not shifted by half an element."""
    if opset < 16:
        node.attrs["coordinate_transformation_mode"] = "output_half_pixel"
    return [node]


def _layer_normalization(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade LayerNormalization: if the mean or the deviation is read, expand the node to its
    definition."""
    if not any(name and scope.is_read(name) for name in node.outputs[1:]):
        return [node]
    scope.expand(node, opset)
    return []


def _group_normalization(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade GroupNormalization: before opset 21, scale and bias had one element for each group
    instead of each channel."""
    if opset < 21:
        channels, groups = scope.shape(node.inputs[0])[1], node.attrs["num_groups"]
        for position in (1, 2):
            name = node.inputs[position]
            if scope.shape(name) != (groups,) or channels % groups:
                shape = scope.shape(name)
                raise Mismatch(f"parameters {shape} for {groups} groups, {channels} channels")
            column = scope.add("Unsqueeze", name, [1])
            table = scope.constant(extents_array([groups, channels // groups]))
            repeated = scope.add("Expand", column, table)
            flat = scope.constant(extents_array([channels]))
            node.inputs[position] = scope.add("Reshape", repeated, flat)
    return [node]


def _cast(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade Cast: the element type is a number in ONNX and a name in Farrier."""
    if node.attrs["to"] == onnx.TensorProto.STRING:
        if is_strings(scope, node.inputs[0]):
            return [RawNode("Identity", node.inputs, node.outputs, {}, node.origin)]
        return to_strings(node, scope)
    to = dtype_of(node.attrs["to"], f"the result of node {node.origin!r}")
    if is_strings(scope, node.inputs[0]):
        return from_strings(node, to, scope)
    return [_conversion(node, to)]


def _named(attribute: str) -> Upgrade:
    """Return an upgrade that replaces ONNX's element type code in an attribute by Farrier's dtype
    name."""

    def rule(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
        if attribute in node.attrs:
            what = f"the result of node {node.origin!r}"
            node.attrs[attribute] = str(dtype_of(node.attrs[attribute], what))
        return [node]

    return rule


def _cast_like(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    return [_conversion(node, scope.dtype(node.inputs[1]))]


def _conversion(node: RawNode, to: DType) -> RawNode:
    """Return a Cast node with all attributes that apply to `to` written out."""
    attrs: dict[str, Any] = {"to": str(to)}
    if saturates(to):
        attrs["saturate"] = node.attrs.get("saturate", 1)
    if to is DType.F8E8M0:
        attrs["round_mode"] = node.attrs.get("round_mode", "up")
    return RawNode("Cast", node.inputs[:1], node.outputs, attrs, node.origin)


def _constant_of_shape(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade ConstantOfShape: the value is a tensor in ONNX; Farrier's attributes hold an element
    and its type."""
    value = node.attrs.pop("value", np.zeros(1, np.float32))
    if value.size != 1:
        raise Mismatch(f"the value to fill with has shape {value.shape}, and must be one element")
    node.attrs["dtype"] = str(DType.from_numpy(value.dtype))
    node.attrs["value"] = value.reshape(-1)[0].item()
    return [node]


def _constant(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade Constant: define a constant of the graph, and return no node."""
    forms: dict[str, Any] = {"value": np.asarray, "value_string": words, "value_strings": words}
    forms |= dict.fromkeys(("value_float", "value_floats"), np.float32)
    forms["sparse_value"] = np.asarray  # The array is dense already.
    forms |= dict.fromkeys(("value_int", "value_ints"), np.int64)
    for name, value in node.attrs.items():
        if name in forms:
            alias = [scope.constant(np.asarray(forms[name](value)))]
            return [RawNode("Identity", alias, node.outputs, {}, node.origin)]
    raise NotSupported(f"a constant given as {', '.join(node.attrs) or 'nothing'}")


def _scatter(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade Scatter, the former name of ScatterElements (before opset 11)."""
    return [RawNode("ScatterElements", node.inputs, node.outputs, node.attrs, node.origin)]


def _max_pool(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade MaxPool: if its second output, Indices, is read, a node MaxPoolIndices computes it
    and keeps `storage_order`, an attribute that MaxPool loses."""
    attrs, (values, *indices) = dict(node.attrs), node.outputs
    node.attrs.pop("storage_order", None)
    nodes = [RawNode(node.op, node.inputs, [values], node.attrs, node.origin)]
    if indices and scope.is_read(indices[0]):
        nodes.append(RawNode("MaxPoolIndices", node.inputs, indices, attrs, node.origin))
    return nodes


def _top_k(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Upgrade TopK: before opset 10, k was an attribute."""
    _attribute_to_input(node, scope, "k", 1)
    return [node]


_REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
]
_UPGRADES: dict[str, Upgrade] = {
    "If": branches.rewrite_if,
    "Loop": loops.rewrite_loop,
    "Scan": loops.rewrite_scan,
    "SequenceEmpty": sequences.empty,
    "SequenceConstruct": sequences.construct,
    "SequenceAt": sequences.at,
    "SequenceInsert": sequences.insert,
    "SequenceErase": sequences.erase,
    "SequenceLength": sequences.length,
    "SequenceMap": sequences.map_body,
    "SplitToSequence": sequences.split,
    "ConcatFromSequence": sequences.concatenate,
    "Optional": sequences.optional,
    "OptionalGetElement": sequences.get_element,
    "OptionalHasElement": sequences.has_element,
    **dict.fromkeys(("Squeeze", "Unsqueeze", *_REDUCTIONS), _axes_to_input),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrence),
    "Clip": _clip,
    "Pad": _pad,
    "Slice": _slice,
    "Split": _split,
    "Upsample": resize.upsample,
    "Resize": resize.resize,
    "Dropout": training.dropout,
    "BatchNormalization": training.batch_normalization,
    "LayerNormalization": _layer_normalization,
    "RoiAlign": _roi_align,
    "Einsum": einsum.einsum,
    "GroupNormalization": _group_normalization,
    "Cast": _cast,
    "CastLike": _cast_like,
    "BitCast": _named("to"),
    "EyeLike": _named("dtype"),
    "ConstantOfShape": _constant_of_shape,
    "Constant": _constant,
    "RandomUniform": random.random,
    "RandomNormal": random.random,
    "RandomUniformLike": random.random_like,
    "RandomNormalLike": random.random_like,
    "Multinomial": random.multinomial,
    "Bernoulli": random.bernoulli,
    "DFT": spectral.dft,
    "STFT": spectral.stft,
    "MelWeightMatrix": spectral.mel_weight_matrix,
    "Col2Im": columns.col2im,
    "DeformConv": columns.deform_conv,
    "TfIdfVectorizer": ngrams.tf_idf_vectorizer,
    "ai.onnx.preview.training:Adagrad": optimizers.adagrad,
    "ai.onnx.preview.training:Adam": optimizers.adam,
    "ai.onnx.preview.training:Momentum": optimizers.momentum,
    "ai.onnx.preview.training:Gradient": gradient.gradient,
    "Shape": strings.shape,
    "Size": strings.size,
    "Equal": strings.equal,
    "RegexFullMatch": strings.full_match,
    "StringNormalizer": strings.normalize,
    "ai.onnx.ml:LabelEncoder": label_encoder,
    "ai.onnx.ml:ArrayFeatureExtractor": classical.array_feature_extractor,
    "ai.onnx.ml:Binarizer": classical.binarizer,
    "ai.onnx.ml:Scaler": classical.scaler,
    "ai.onnx.ml:LinearRegressor": classical.linear_regressor,
    "ai.onnx.ml:LinearClassifier": classical.linear_classifier,
    "ai.onnx.ml:Normalizer": classical.normalizer,
    "ai.onnx.ml:Imputer": classical.imputer,
    "ai.onnx.ml:FeatureVectorizer": classical.feature_vectorizer,
    "ai.onnx.ml:OneHotEncoder": classical.one_hot_encoder,
    "ai.onnx.ml:CategoryMapper": category_mapper,
    "ai.onnx.ml:ZipMap": classical.zip_map,
    "ai.onnx.ml:SVMClassifier": support_vectors.svm_classifier,
    "ai.onnx.ml:SVMRegressor": support_vectors.svm_regressor,
    "ai.onnx.ml:TreeEnsemble": trees.tree_ensemble,
    "ai.onnx.ml:TreeEnsembleClassifier": forest_classifier.tree_ensemble_classifier,
    "ai.onnx.ml:TreeEnsembleRegressor": trees.tree_ensemble_regressor,
    "MaxPool": _max_pool,
    "Scatter": _scatter,
    "TopK": _top_k,
    "MeanVarianceNormalization": experimental.mean_variance_normalization,
    **experimental.RULES,
    **quantized.RULES,
    **microsoft.RULES,
}
READABLE = frozenset(_UPGRADES)  # An operator with an upgrade may be known only here.
