"""The models of `make bench ARGS=--operators`: operators that the benchmark's complete models
hardly use.

Each represents a kind of kernel: products and sums with other dtypes or shapes than in image and
language models, sums along other axes, gathers and scatters, loops with dependent iterations.
Extents are those of common models, large enough that the kernel takes most of a call's time.
"""

from __future__ import annotations

from typing import Any

from bench.operators.model import Operand, OperatorModel


def _input(*shape: int, dtype: str = "f4") -> Operand:
    return Operand(shape, dtype)


def _weight(*shape: int, dtype: str = "f4", scale: float = 1.0) -> Operand:
    return Operand(shape, dtype, is_constant=True, scale=scale)


def _indices(extent: int, *shape: int) -> Operand:
    """Return an operand of random indices into an axis of `extent`."""
    return Operand(shape, "i8", is_constant=True, low=0, high=extent)


def _values(*values: float, dtype: str = "i8") -> Operand:
    return Operand((len(values),), dtype, is_constant=True, values=values)


def _scalar(value: float, dtype: str = "i8") -> Operand:
    return Operand((), dtype, is_constant=True, values=(value,))


def _model(name: str, op: str, *operands: Operand | None, **attributes: Any) -> OperatorModel:
    outputs, opset = attributes.pop("outputs", 1), attributes.pop("opset", 21)
    return OperatorModel(name, op, operands, attributes, outputs, opset)


# With recurrent weights of this scale, states neither vanish nor saturate.
_RECURRENT_SCALE = 0.05
# The scales of an image's height and width, its batch and channels first.
_DOUBLED = _values(1, 1, 2, 2, dtype="f4")

CONVOLUTIONS = (
    _model(
        "Conv 3x3x3, 16 to 32 channels",
        "Conv",
        _input(1, 16, 16, 28, 28),
        _weight(32, 16, 3, 3, 3),
        pads=[1] * 6,
    ),
    _model(
        "Conv 3x3 to 1 channel",
        "Conv",
        _input(1, 64, 112, 112),
        _weight(1, 64, 3, 3),
        pads=[1] * 4,
    ),
    _model(
        "Conv 3x3 to 3 channels",
        "Conv",
        _input(1, 64, 112, 112),
        _weight(3, 64, 3, 3),
        pads=[1] * 4,
    ),
    _model(
        "Conv 3x3 f64",
        "Conv",
        _input(1, 64, 28, 28, dtype="f8"),
        _weight(64, 64, 3, 3, dtype="f8"),
        pads=[1] * 4,
    ),
    _model(
        "Conv of a line, kernel 80, stride 4",
        "Conv",
        _input(1, 1, 16000),
        _weight(32, 1, 80),
        strides=[4],
    ),
    _model(
        "Conv 3x3, 4 groups of 3 channels",
        "Conv",
        _input(1, 12, 56, 56),
        _weight(12, 3, 3, 3),
        pads=[1] * 4,
        group=4,
    ),
    _model(
        "Conv 3x3, dilation 4",
        "Conv",
        _input(1, 64, 56, 56),
        _weight(64, 64, 3, 3),
        pads=[4] * 4,
        dilations=[4, 4],
    ),
    _model(
        "Conv 31x31 depthwise",
        "Conv",
        _input(1, 64, 28, 28),
        _weight(64, 1, 31, 31),
        pads=[15] * 4,
        group=64,
    ),
    _model(
        "Conv 3x3 depthwise f16",
        "Conv",
        _input(1, 64, 56, 56, dtype="f2"),
        _weight(64, 1, 3, 3, dtype="f2"),
        pads=[1] * 4,
        group=64,
    ),
    _model(
        "ConvTranspose 4x4, stride 2",
        "ConvTranspose",
        _input(1, 64, 28, 28),
        _weight(64, 32, 4, 4),
        strides=[2, 2],
        pads=[1] * 4,
    ),
    _model(
        "ConvTranspose 3x3, stride 2",
        "ConvTranspose",
        _input(1, 64, 28, 28),
        _weight(64, 64, 3, 3),
        strides=[2, 2],
        pads=[1] * 4,
        output_padding=[1, 1],
    ),
    _model(
        "ConvTranspose 4x4 depthwise, stride 2",
        "ConvTranspose",
        _input(1, 64, 28, 28),
        _weight(64, 1, 4, 4),
        strides=[2, 2],
        pads=[1] * 4,
        group=64,
    ),
    _model(
        "ConvTranspose 2x2x2, stride 2",
        "ConvTranspose",
        _input(1, 16, 8, 14, 14),
        _weight(16, 16, 2, 2, 2),
        strides=[2, 2, 2],
    ),
)

PRODUCTS = (
    _model("MatMul 256 f64", "MatMul", _input(256, 256, dtype="f8"), _weight(256, 256, dtype="f8")),
    _model("MatMul 256 i32", "MatMul", _input(256, 256, dtype="i4"), _weight(256, 256, dtype="i4")),
    _model("MatMul 256 i64", "MatMul", _input(256, 256, dtype="i8"), _weight(256, 256, dtype="i8")),
    _model("MatMul to 4 columns", "MatMul", _input(4096, 512), _weight(512, 4)),
    _model("MatMul to 1 column", "MatMul", _input(4096, 512), _weight(512, 1)),
    _model("MatMul of a row by an input", "MatMul", _input(1, 2048), _input(2048, 2048)),
    _model(
        "Einsum bij,bjk->bik",
        "Einsum",
        _input(8, 128, 64),
        _input(8, 64, 128),
        equation="bij,bjk->bik",
    ),
    _model(
        "Einsum ijk,ilk->jl",
        "Einsum",
        _input(16, 64, 64),
        _input(16, 64, 64),
        equation="ijk,ilk->jl",
    ),
    _model("Einsum i,j->ij", "Einsum", _input(512), _input(512), equation="i,j->ij"),
    _model(
        "Einsum bi,kij,bj->bk",
        "Einsum",
        _input(32, 64),
        _input(16, 64, 64),
        _input(32, 64),
        equation="bi,kij,bj->bk",
    ),
)

REDUCTIONS = (
    _model("Softmax f64", "Softmax", _input(512, 512, dtype="f8"), axis=-1),
    _model("Softmax f16", "Softmax", _input(512, 512, dtype="f2"), axis=-1),
    _model("Softmax along axis 0", "Softmax", _input(512, 512), axis=0),
    _model("ReduceSum of rows, i64", "ReduceSum", _input(512, 512, dtype="i8"), _values(1)),
    _model(
        "ReduceMax of rows, f64",
        "ReduceMax",
        _input(512, 512, dtype="f8"),
        _values(1),
        opset=20,
    ),
    _model("ReduceProd of all", "ReduceProd", _input(1024, 1024)),
    _model("ReduceSum of all", "ReduceSum", _input(1024, 1024)),
    _model("ReduceSum of columns", "ReduceSum", _input(4096, 256), _values(0)),
    _model("ReduceSum over axes 0 and 2", "ReduceSum", _input(64, 64, 256), _values(0, 2)),
    _model("ReduceLogSumExp of rows", "ReduceLogSumExp", _input(512, 1024), _values(1)),
    _model("ArgMax of rows", "ArgMax", _input(512, 1024), axis=1),
    _model("ArgMax of columns", "ArgMax", _input(1024, 512), axis=0),
    _model(
        "AveragePool 2x2x2",
        "AveragePool",
        _input(1, 16, 16, 32, 32),
        kernel_shape=[2, 2, 2],
        strides=[2, 2, 2],
    ),
    _model("LpPool 3x3", "LpPool", _input(1, 64, 56, 56), kernel_shape=[3, 3]),
    _model(
        "MaxPool 3x3 with indices",
        "MaxPool",
        _input(1, 64, 56, 56),
        kernel_shape=[3, 3],
        strides=[2, 2],
        outputs=2,
    ),
    _model("LRN of 5 channels", "LRN", _input(1, 64, 56, 56), size=5),
    _model(
        "InstanceNormalization",
        "InstanceNormalization",
        _input(1, 64, 56, 56),
        _weight(64),
        _weight(64),
    ),
    _model(
        "GroupNormalization, 8 groups",
        "GroupNormalization",
        _input(1, 64, 56, 56),
        _weight(64),
        _weight(64),
        num_groups=8,
    ),
    _model(
        "LayerNormalization f16",
        "LayerNormalization",
        _input(512, 768, dtype="f2"),
        _weight(768, dtype="f2"),
        axis=-1,
    ),
)

STEPS = (
    _model("CumSum along rows", "CumSum", _input(512, 1024), _scalar(1)),
    _model("CumSum along columns", "CumSum", _input(1024, 512), _scalar(0)),
    _model("TopK 10 of 10,000", "TopK", _input(16, 10000), _values(10), outputs=2),
    _model("TopK 1,000 of 1,000", "TopK", _input(64, 1000), _values(1000), outputs=2),
    _model("NonZero", "NonZero", _input(512, 1024, dtype="?")),
    _model("Unique", "Unique", _input(4096)),
    _model("Det 16x16", "Det", _input(64, 16, 16)),
    _model(
        "LSTM, 256 units",
        "LSTM",
        _input(64, 1, 128),
        _weight(1, 1024, 128, scale=_RECURRENT_SCALE),
        _weight(1, 1024, 256, scale=_RECURRENT_SCALE),
        hidden_size=256,
    ),
    _model(
        "GRU, 256 units",
        "GRU",
        _input(64, 1, 128),
        _weight(1, 768, 128, scale=_RECURRENT_SCALE),
        _weight(1, 768, 256, scale=_RECURRENT_SCALE),
        hidden_size=256,
    ),
)

MOVES = (
    _model("Gather of rows", "Gather", _input(30000, 256), _indices(30000, 512), axis=0),
    _model(
        "GatherElements along axis 0",
        "GatherElements",
        _input(512, 1024),
        _indices(512, 512, 1024),
        axis=0,
    ),
    _model(
        "ScatterElements, added",
        "ScatterElements",
        _input(512, 1024),
        _indices(512, 512, 1024),
        _weight(512, 1024),
        axis=0,
        reduction="add",
    ),
    _model(
        "ScatterND of rows",
        "ScatterND",
        _input(1000, 256),
        _indices(1000, 512, 1),
        _weight(512, 256),
    ),
    _model("Resize cubic, doubled", "Resize", _input(1, 16, 64, 64), None, _DOUBLED, mode="cubic"),
    _model(
        "Resize linear, doubled", "Resize", _input(1, 64, 64, 64), None, _DOUBLED, mode="linear"
    ),
    _model(
        "GridSample linear",
        "GridSample",
        _input(1, 32, 64, 64),
        _input(1, 64, 64, 2),
        mode="linear",
    ),
    _model("Transpose 0231", "Transpose", _input(1, 64, 112, 112), perm=[0, 2, 3, 1]),
    _model("Transpose 021, i8", "Transpose", _input(8, 512, 512, dtype="i1"), perm=[0, 2, 1]),
)

ELEMENTS = (
    _model("Pad of an image", "Pad", _input(1, 64, 56, 56), _values(0, 0, 1, 1, 0, 0, 1, 1)),
    _model("Expand of a column", "Expand", _input(1024, 1), _values(1024, 1024)),
    _model(
        "OneHot of 1,000",
        "OneHot",
        Operand((512,), "i8", low=0, high=1000),
        _scalar(1000),
        _values(0, 1, dtype="f4"),
    ),
    _model(
        "Where, one value broadcast",
        "Where",
        _input(512, 1024, dtype="?"),
        _input(512, 1024),
        _input(1),
    ),
    _model("Erf", "Erf", _input(1024, 1024)),
    _model("Pow", "Pow", _input(1024, 1024), _input(1024, 1024)),
    _model("Mod of floats", "Mod", _input(1024, 1024), _input(1024, 1024), fmod=1),
    _model("Sin f64", "Sin", _input(512, 1024, dtype="f8")),
)

MODELS = (*CONVOLUTIONS, *PRODUCTS, *REDUCTIONS, *STEPS, *MOVES, *ELEMENTS)
