"""The options of builtin operators: for each operator its options table in the schema, and the
table's fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from farrier.frontends.tflite.flatbuffer import Table

_TEXT, _VECTOR = "text", "ints"  # Kinds in addition to the letters of `struct`.
# Each field has a name, a number, a kind and a default value.
_Fields: TypeAlias = tuple[tuple[str, int, str, Any], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Options:
    """The options table of an operator in the schema: its number in the union BuiltinOptions, and
    its fields."""

    number: int
    fields: _Fields


_ACTIVATION = ("activation", 0, "b", 0)
_STRIDES: _Fields = (("padding", 0, "b", 0), ("stride_w", 1, "i", 0), ("stride_h", 2, "i", 0))
_POOL = _Options(
    5,
    (*_STRIDES, ("width", 3, "i", 0), ("height", 4, "i", 0), ("activation", 5, "b", 0)),
)
_REDUCER = _Options(27, (("keep_dims", 0, "?", False),))
_RESIZE: _Fields = (("align_corners", 2, "?", False), ("half_pixel", 3, "?", False))
_PADDED_CONV: _Fields = (*_STRIDES, ("activation", 3, "b", 0))
_LSTM: _Fields = (_ACTIVATION, ("cell_clip", 1, "f", 0.0), ("projection_clip", 2, "f", 0.0))

_OPTIONS: Mapping[str, _Options] = {
    "ADD": _Options(11, (_ACTIVATION, ("pot_scale", 1, "?", True))),
    "ARG_MAX": _Options(40, (("output_type", 0, "b", 0),)),
    "ARG_MIN": _Options(57, (("output_type", 0, "b", 0),)),
    "AVERAGE_POOL_2D": _POOL,
    "BATCH_MATMUL": _Options(101, (("adj_x", 0, "?", False), ("adj_y", 1, "?", False))),
    "CALL_ONCE": _Options(103, (("subgraph", 0, "i", 0),)),
    "CAST": _Options(37, (("from", 0, "b", 0), ("to", 1, "b", 0))),
    "CONCATENATION": _Options(10, (("axis", 0, "i", 0), ("activation", 1, "b", 0))),
    "CONV_2D": _Options(1, (*_PADDED_CONV, ("dilation_w", 4, "i", 1), ("dilation_h", 5, "i", 1))),
    "CONV_3D": _Options(
        106,
        (
            ("padding", 0, "b", 0),
            ("stride_d", 1, "i", 0),
            ("stride_w", 2, "i", 0),
            ("stride_h", 3, "i", 0),
            ("activation", 4, "b", 0),
            ("dilation_d", 5, "i", 1),
            ("dilation_w", 6, "i", 1),
            ("dilation_h", 7, "i", 1),
        ),
    ),
    "CUMSUM": _Options(102, (("exclusive", 0, "?", False), ("reverse", 1, "?", False))),
    "DEPTHWISE_CONV_2D": _Options(
        2,
        (
            *_STRIDES,
            ("multiplier", 3, "i", 0),
            ("activation", 4, "b", 0),
            ("dilation_w", 5, "i", 1),
            ("dilation_h", 6, "i", 1),
        ),
    ),
    "DEPTH_TO_SPACE": _Options(94, (("block_size", 0, "i", 0),)),
    "DIV": _Options(29, (_ACTIVATION,)),
    "FULLY_CONNECTED": _Options(
        8,
        (
            _ACTIVATION,
            ("format", 1, "b", 0),
            ("keep_dims", 2, "?", False),
            ("asymmetric", 3, "?", False),
        ),
    ),
    "GATHER": _Options(23, (("axis", 0, "i", 0), ("batch_dims", 1, "i", 0))),
    "GELU": _Options(116, (("approximate", 0, "?", False),)),
    "IF": _Options(92, (("then", 0, "i", 0), ("else", 1, "i", 0))),
    "L2_NORMALIZATION": _Options(12, (_ACTIVATION,)),
    "LEAKY_RELU": _Options(75, (("alpha", 0, "f", 0.0),)),
    "LOCAL_RESPONSE_NORMALIZATION": _Options(
        13,
        (
            ("radius", 0, "i", 0),
            ("bias", 1, "f", 0.0),
            ("alpha", 2, "f", 0.0),
            ("beta", 3, "f", 0.0),
        ),
    ),
    "MAX_POOL_2D": _POOL,
    "MEAN": _REDUCER,
    "MIRROR_PAD": _Options(77, (("mode", 0, "b", 0),)),
    "MUL": _Options(21, (_ACTIVATION,)),
    "ONE_HOT": _Options(61, (("axis", 0, "i", 0),)),
    "PACK": _Options(59, (("count", 0, "i", 0), ("axis", 1, "i", 0))),
    "REDUCE_ALL": _REDUCER,
    "REDUCE_ANY": _REDUCER,
    "REDUCE_MAX": _REDUCER,
    "REDUCE_MIN": _REDUCER,
    "REDUCE_PROD": _REDUCER,
    "RESHAPE": _Options(17, (("shape", 0, _VECTOR, ()),)),
    "RESIZE_BILINEAR": _Options(15, _RESIZE),
    "RESIZE_NEAREST_NEIGHBOR": _Options(
        74, (("align_corners", 0, "?", False), ("half_pixel", 1, "?", False))
    ),
    "SHAPE": _Options(55, (("output_type", 0, "b", 0),)),
    "SOFTMAX": _Options(9, (("beta", 0, "f", 0.0),)),
    "SPACE_TO_DEPTH": _Options(19, (("block_size", 0, "i", 0),)),
    "SPLIT": _Options(35, (("count", 0, "i", 0),)),
    "SPLIT_V": _Options(79, (("count", 0, "i", 0),)),
    "SQUEEZE": _Options(30, (("axes", 0, _VECTOR, ()),)),
    "STRIDED_SLICE": _Options(
        32,
        (
            ("begin_mask", 0, "i", 0),
            ("end_mask", 1, "i", 0),
            ("ellipsis_mask", 2, "i", 0),
            ("new_axis_mask", 3, "i", 0),
            ("shrink_axis_mask", 4, "i", 0),
            ("offset", 5, "?", False),
        ),
    ),
    "SUB": _Options(28, (_ACTIVATION, ("pot_scale", 1, "?", True))),
    "SUM": _REDUCER,
    "SVDF": _Options(6, (("rank", 0, "i", 0), ("activation", 1, "b", 0))),
    "TRANSPOSE_CONV": _Options(49, _PADDED_CONV),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _Options(71, (*_LSTM, ("time_major", 3, "?", False))),
    "UNPACK": _Options(64, (("count", 0, "i", 0), ("axis", 1, "i", 0))),
    "VAR_HANDLE": _Options(111, (("container", 0, _TEXT, ""), ("shared_name", 1, _TEXT, ""))),
    "WHILE": _Options(93, (("condition", 0, "i", 0), ("body", 1, "i", 0))),
}


def options_of(operator: str, number: int, table: Table | None) -> Mapping[str, Any]:
    """Return the options of an operator by name, from its options table. `number` is the table's
    type in the union BuiltinOptions. If the table is absent or has a type that does not belong to
    the operator, the options have their default values, as in TFLite's interpreter."""
    expected = _OPTIONS.get(operator)
    if expected is None:
        return MappingProxyType({})
    if table is None or number != expected.number:
        return MappingProxyType({name: default for name, _, _, default in expected.fields})
    return MappingProxyType(
        {name: _value(table, *field) for name, *field in expected.fields},
    )


def _value(table: Table, field: int, kind: str, default: Any) -> Any:
    if kind == _TEXT:
        return table.text(field)
    if kind == _VECTOR:
        return tuple(table.numbers(field, "i").tolist())
    return table.scalar(field, kind, default)
