"""Models to measure: seeded generators of well-known networks, and trained ones from packages.

The generators give the operator patterns of torch's exporter at opset 17, with random weights scaled
so that activations keep their magnitude, and random batch-norm statistics, so that folding proves
something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.models import bert, mobilenet, resnet, vit
from bench.models.wheel import rapidocr

__all__ = ["NAMES", "build", "rapidocr"]

_BUILDERS: dict[str, Callable[..., bytes]] = {
    "resnet18": resnet.resnet18,
    "resnet50": resnet.resnet50,
    "mobilenet_v2": mobilenet.mobilenet_v2,
    "bert_base": bert.bert,
    "vit_b16": vit.vit,
}
NAMES = tuple(_BUILDERS)


def build(name: str, seed: int = 0, **overrides: Any) -> bytes:
    """The ONNX bytes of a model of `NAMES`; `overrides` are its generator's parameters."""
    return _BUILDERS[name](seed=seed, **overrides)
