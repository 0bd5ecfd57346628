"""Models quantized by ONNX Runtime's quantizer, cached in the user's cache folder.

Weights are i8, with a scale per channel in static models; activations are u8. Statically quantized
models have a QuantizeLinear and a DequantizeLinear at every tensor; dynamically quantized models
multiply by MatMulInteger and compute the scales of activations at run time.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx
import onnx.version_converter

from bench.models.cached import folder, keep
from farrier.errors import UsageError

Inputs = Mapping[str, npt.NDArray[Any]]

_OPSET_OF_AXES = 13
_HINT = "pip install onnxruntime"


def statically(model: bytes, samples: Sequence[Inputs]) -> bytes:
    """Return `model` quantized statically: its scales cover the tensors' values on `samples`.
    Raises UsageError if ONNX Runtime is not installed."""

    def quantize(source: Path, target: Path) -> None:
        from onnxruntime import quantization

        quantization.quantize_static(
            source,
            target,
            _Samples(samples),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )

    return _made("static", model, quantize)


def dynamically(model: bytes) -> bytes:
    """Return `model` quantized dynamically: activations are quantized at run time, and matrix
    products are integer products. Raises UsageError if ONNX Runtime is not installed."""

    def quantize(source: Path, target: Path) -> None:
        from onnxruntime import quantization

        quantization.quantize_dynamic(source, target, weight_type=quantization.QuantType.QInt8)

    return _made("dynamic", model, quantize)


def _made(form: str, model: bytes, quantize: Callable[[Path, Path], None]) -> bytes:
    """Return the file that `quantize` writes for the model, from the cache if present. The model's
    constants are folded and its opset is raised first."""
    try:
        import onnxruntime
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except ImportError as error:
        raise UsageError(f"a quantizer is not installed: {error}", hint=_HINT) from None
    key = hashlib.sha256(f"{form} {onnxruntime.__version__} ".encode() + model).hexdigest()
    place = folder("quantized") / f"{key}.onnx"
    if place.is_file():
        return place.read_bytes()
    with tempfile.TemporaryDirectory(prefix="farrier-quantized-") as name, _silence():
        source, folded, quantized = (
            Path(name) / f"{part}.onnx" for part in ("model", "folded", "made")
        )
        source.write_bytes(_with_axes(model))
        quant_pre_process(source, folded, skip_symbolic_shape=True)
        quantize(folded, quantized)
        keep(quantized.read_bytes(), place)
    return place.read_bytes()


def _with_axes(model: bytes) -> bytes:
    """Return the model converted to an opset in which DequantizeLinear supports a scale per
    channel."""
    proto = onnx.load_model_from_string(model)
    version = next(opset.version for opset in proto.opset_import if not opset.domain)
    if version >= _OPSET_OF_AXES:
        return model
    converted = onnx.version_converter.convert_version(proto, _OPSET_OF_AXES)
    return bytes(converted.SerializeToString())


class _Samples:
    """A reader of calibration samples for ONNX Runtime's quantizer, which yields one after
    another."""

    def __init__(self, samples: Sequence[Inputs]) -> None:
        self._left = iter(samples)

    def get_next(self) -> Inputs | None:
        return next(self._left, None)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """A context that suppresses the quantizer's advice to fold constants, which has been done."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
