"""The models that `python -m bench` measures, by name, each with its input shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from bench import models
from farrier.errors import UsageError
from farrier.frontends.onnx.importer import import_model
from farrier.options.shapes import GivenShape, Hot, parse_hot, parse_shapes
from farrier.packaging.draws import random_inputs
from farrier.packaging.package import specs

Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """A model to measure. `build` returns the ONNX file's bytes; `shapes` fix the dims that the
    model leaves open, and `open_shapes` set their ranges and steps, with `hot` sizes
    (`farrier.options.shapes`). `opened` is the same model as exporters write it, with batch and
    sizes open. `float_form` is the model from which a quantized model was made."""

    name: str
    build: Callable[[], bytes]
    opened: Callable[[], bytes] | None = None
    shapes: Shapes = dataclasses.field(default_factory=dict)
    open_shapes: Mapping[str, GivenShape] = dataclasses.field(default_factory=dict)
    hot: tuple[Hot, ...] = ()
    float_form: Callable[[], bytes] | None = None


def workload(name: str) -> Workload:
    """Return the model `name`. Raises UsageError for a name that is not in NAMES and QUANTIZED."""
    if name not in _WORKLOADS:
        names = ", ".join((*NAMES, *QUANTIZED))
        raise UsageError(f"unknown model {name!r}", hint=f"models: {names}")
    return _WORKLOADS[name]


def _generated(name: str) -> Workload:
    opened = _OPENED.get(name, {"size": _IMAGE[2:]})
    return Workload(
        name, lambda: models.build(name), lambda: models.build(name, batch="batch", **opened)
    )


def _light(name: str) -> Workload:
    return Workload(name, lambda: models.light(name), lambda: models.light(name, shape=_IMAGE))


def _trained(part: str, shape: tuple[int, ...], opened: str, hot: str) -> Workload:
    def build() -> bytes:  # All its dims are open already.
        return models.rapidocr(part).read_bytes()

    return Workload(
        f"rapidocr_{part}",
        build,
        build,
        {"x": shape},
        parse_shapes([f"x={opened}"]),
        parse_hot([hot]),
    )


def _static(of: Workload) -> Workload:
    def build() -> bytes:
        model = of.build()
        inputs, _ = specs(import_model(model, of.shapes))
        samples = [random_inputs(inputs, seed) for seed in range(_SAMPLES)]
        return models.statically(model, samples)

    return Workload(f"{of.name}_int8", build, shapes=of.shapes, float_form=of.build)


def _dynamic(of: Workload) -> Workload:
    def build() -> bytes:
        return models.dynamically(of.build())

    return Workload(f"{of.name}_dynamic", build, shapes=of.shapes, float_form=of.build)


_SAMPLES = 4  # The samples for static scales.
_IMAGE = ("batch", 3, "height", "width")
# The open dims in addition to the batch, unless they are height and width: ViT's positions fix its
# size.
_OPENED: Mapping[str, Mapping[str, Any]] = {"bert_base": {"tokens": "tokens"}, "vit_b16": {}}

_FLOATS = {
    source.name: source
    for source in (
        *map(_generated, models.NAMES),
        _trained("cls", (1, 3, 48, 192), "n:1..8,3,48,192", "n=1"),
        _trained("det", (1, 3, 320, 320), "1,3,h:32..960:32,w:32..960:32", "h=320,w=320"),
        _trained("rec", (1, 3, 48, 320), "n:1..8,3,48,w:32..960:8", "n=1,w=320"),
        _light("squeezenet"),
        _light("densenet121"),
    )
}
_QUANTIZED = {
    source.name: source
    for source in (
        *(_static(_FLOATS[name]) for name in models.NAMES),
        _dynamic(_FLOATS["bert_base"]),
        *(_static(_FLOATS[f"rapidocr_{part}"]) for part in ("cls", "det", "rec")),
    )
}
_WORKLOADS = _FLOATS | _QUANTIZED
NAMES = tuple(_FLOATS)
QUANTIZED = tuple(_QUANTIZED)
QUICK = ("resnet18", "mobilenet_v2", "rapidocr_cls")
