"""Models for tests and measurements: random weights from a seed, without a framework or a network.

    build("resnet18")                       the bytes of an ONNX model
    build("bert_base", layers=2, tokens=32) a smaller variant
    build("resnet18", batch="batch")        a variant whose batch is open
    trained("nudenet")                      the path of a trained model, out of a PyPI wheel
    light("squeezenet")                     a known topology, out of the onnx package
    dynamically(model)                      a quantized model, by ONNX Runtime's quantizer

The graphs consist of the operators that torch's exporter writes at opset 17. Batch normalizations
are separate nodes with random statistics, so that a wrong folding changes the results. Weights are
scaled such that activations stay near one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.models.bert import bert_base
from bench.models.light import light
from bench.models.mobilenet import mobilenet_v2
from bench.models.quantized import dynamically, statically
from bench.models.resnet import resnet18, resnet50, resnext50
from bench.models.vit import vit_b16
from bench.models.wheel import TRAINED, rapidocr, trained

__all__ = [
    "NAMES",
    "TRAINED",
    "build",
    "dynamically",
    "light",
    "rapidocr",
    "statically",
    "trained",
]

_BUILDERS: dict[str, Callable[..., bytes]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "resnext50": resnext50,
    "mobilenet_v2": mobilenet_v2,
    "bert_base": bert_base,
    "vit_b16": vit_b16,
}
NAMES = tuple(_BUILDERS)


def build(name: str, seed: int = 0, **overrides: Any) -> bytes:
    """Return the model `name` as ONNX bytes, the same for the same seed; `overrides` replace its
    default sizes.

    Raises KeyError for a name that is not in NAMES.
    """
    return _BUILDERS[name](seed=seed, **overrides)
