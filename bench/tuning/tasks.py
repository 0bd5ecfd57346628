"""The tasks of the tuning benchmark; each is a layer, compiled as a separate model.

Half of them are held out: no model is trained on them, and no constant is chosen by them. `OTHERS`
are not part of the benchmark: they are layers of common models, and random layers, for training.
Shapes are static, because the hot sizes of a model with open dims are tuned as static sizes.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from bench.models.writer import Writer
from farrier.compile_pool.choose import ScheduledTask
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import model_of
from farrier.model_tuning.variant import make_variant
from farrier.passes import Settings, prepare
from farrier.targets import Target


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """A layer. `write` adds it to a model; its task is the one with the most arithmetic among the
    tasks of that model."""

    name: str
    write: Callable[[Writer], None]
    held_out: bool = False

    def model(self) -> bytes:
        """Return a model that consists of this layer, as ONNX bytes."""
        writer = Writer(self.name, seed=0)
        self.write(writer)
        return writer.finish()

    def task(self, target: Target, threads: int) -> ScheduledTask:
        """Return the layer's task for a target. Raises FarrierError if the target does not generate
        code for it."""
        settings = Settings(target, threads)
        imported = import_model(model_of(self.model()), {})
        choices = make_variant(prepare(imported.graph, settings), settings).choices
        largest = max(choices.values(), key=lambda choice: choice.operations)
        # Corpora are of one rule each: what a search makes of sketches is measured elsewhere.
        return dataclasses.replace(largest, space=largest.space.built_in)


def _conv(
    channels: int, outputs: int, size: int, kernel: int, stride: int = 1, group: int = 1
) -> Callable[[Writer], None]:
    """Return a function that writes a convolution of one image, followed by ReLU."""

    def write(w: Writer) -> None:
        x = w.input("x", (1, channels, size, size))
        y = w.conv(x, channels, outputs, kernel, stride=stride, group=group)
        side = -(-size // stride)
        w.output(w.op("Relu", y), "y", (1, outputs, side, side))

    return write


def _depthwise(
    channels: int, size: int, kernel: int = 3, stride: int = 1
) -> Callable[[Writer], None]:
    return _conv(channels, channels, size, kernel, stride, channels)


def _inverted_residual(channels: int, inner: int, size: int) -> Callable[[Writer], None]:
    """Return a function that writes an inverted residual block: expand the channels, convolve each,
    project, add the input."""

    def write(w: Writer) -> None:
        x = w.input("x", (1, channels, size, size))
        y = w.op("Clip", w.conv(x, channels, inner, 1), w.constant(0.0), w.constant(6.0))
        y = w.conv(y, inner, inner, 3, group=inner)
        y = w.op("Clip", y, w.constant(0.0), w.constant(6.0))
        y = w.op("Add", x, w.conv(y, inner, channels, 1))
        w.output(y, "y", (1, channels, size, size))

    return write


def _linear(rows: int, inputs: int, outputs: int) -> Callable[[Writer], None]:
    """Return a function that writes a product with weights, plus a bias."""

    def write(w: Writer) -> None:
        x = w.input("x", (rows, inputs))
        w.output(w.linear(x, inputs, outputs), "y", (rows, outputs))

    return write


def _attention(heads: int, tokens: int, width: int) -> Callable[[Writer], None]:
    """Return a function that writes softmax(q·k) · v for heads of `width`."""

    def write(w: Writer) -> None:
        query, key, value = (w.input(name, (1, heads, tokens, width)) for name in "qkv")
        scores = w.op("MatMul", query, w.op("Transpose", key, perm=[0, 1, 3, 2]))
        weights = w.op("Softmax", w.op("Mul", scores, w.constant(width**-0.5)), axis=-1)
        w.output(w.op("MatMul", weights, value), "y", (1, heads, tokens, width))

    return write


def _layer_norm(rows: int, width: int) -> Callable[[Writer], None]:
    def write(w: Writer) -> None:
        x = w.input("x", (1, rows, width))
        w.output(w.layer_norm(x, width, 1e-5), "y", (1, rows, width))

    return write


def _softmax(rows: int, width: int) -> Callable[[Writer], None]:
    def write(w: Writer) -> None:
        w.output(w.op("Softmax", w.input("x", (rows, width)), axis=-1), "y", (rows, width))

    return write


def _scatter(rows: int, width: int, updates: int) -> Callable[[Writer], None]:
    """Return a function that writes a replacement of rows of a table."""

    def write(w: Writer) -> None:
        x, new = w.input("x", (rows, width)), w.input("new", (updates, width))
        places = np.arange(updates, dtype=np.int64)[:, None] * math.floor(rows / updates)
        at = w.constant(places, np.int64)
        w.output(w.op("ScatterND", x, at, new), "y", (rows, width))

    return write


LAYERS = (
    Layer("conv1x1 64→256, 56²", _conv(64, 256, 56, 1)),
    Layer("conv3x3 64→64, 56²", _conv(64, 64, 56, 3)),
    Layer("conv3x3 128→128, 28²", _conv(128, 128, 28, 3)),
    Layer("conv3x3 64→128, 56², stride 2", _conv(64, 128, 56, 3, 2)),
    Layer("conv7x7 3→64, 224², stride 2", _conv(3, 64, 224, 7, 2)),
    Layer("depthwise3x3 96, 112², stride 2", _depthwise(96, 112, 3, 2)),
    Layer("depthwise3x3 384, 14²", _depthwise(384, 14)),
    Layer("inverted residual 24·144, 56²", _inverted_residual(24, 144, 56)),
    Layer("linear 128×768×3072", _linear(128, 768, 3072)),
    Layer("linear 1×2048×1000", _linear(1, 2048, 1000)),
    Layer("attention 12·128·64", _attention(12, 128, 64)),
    Layer("layer norm 128×768", _layer_norm(128, 768)),
    Layer("conv1x1 37→83, 29²", _conv(37, 83, 29, 1), held_out=True),
    Layer("conv3x3 48→100, 35²", _conv(48, 100, 35, 3), held_out=True),
    Layer("conv3x3 256→256, 14²", _conv(256, 256, 14, 3), held_out=True),
    Layer("conv3x3 128→128, 28², 32 groups", _conv(128, 128, 28, 3, 1, 32), held_out=True),
    Layer("depthwise3x3 960, 7²", _depthwise(960, 7), held_out=True),
    Layer("depthwise5x5 72, 28², stride 2", _depthwise(72, 28, 5, 2), held_out=True),
    Layer("inverted residual 40·240, 14²", _inverted_residual(40, 240, 14), held_out=True),
    Layer("linear 127×509×131", _linear(127, 509, 131), held_out=True),
    Layer("linear 64×8192×64", _linear(64, 8192, 64), held_out=True),
    Layer("attention 4·197·48", _attention(4, 197, 48), held_out=True),
    Layer("softmax 197×771", _softmax(197, 771), held_out=True),
    Layer("scatter 256 of 1024×96", _scatter(1024, 96, 256), held_out=True),
)

_CONVOLUTIONS = (  # Each entry has channels, outputs, size, kernel, stride and groups.
    (64, 64, 56, 1, 1, 1),
    (256, 64, 56, 1, 1, 1),
    (128, 512, 28, 1, 1, 1),
    (512, 256, 28, 1, 2, 1),
    (1024, 256, 14, 1, 1, 1),
    (512, 2048, 7, 1, 1, 1),
    (96, 24, 56, 1, 1, 1),
    (58, 58, 28, 1, 1, 1),
    (32, 16, 112, 1, 1, 1),
    (320, 1280, 7, 1, 1, 1),
    (3, 32, 224, 3, 2, 1),
    (16, 16, 112, 3, 1, 1),
    (32, 64, 112, 3, 2, 1),
    (96, 96, 28, 3, 1, 1),
    (192, 192, 17, 3, 1, 1),
    (512, 512, 7, 3, 1, 1),
    (24, 40, 61, 3, 1, 1),
    (128, 256, 28, 3, 2, 1),
    (64, 64, 80, 3, 1, 1),
    (16, 32, 28, 5, 1, 1),
    (3, 96, 224, 4, 4, 1),
    (128, 128, 56, 3, 1, 32),
    (256, 256, 14, 3, 1, 32),
    (240, 240, 14, 3, 1, 10),
)
_DEPTHWISE = (  # Each entry has channels, size, kernel and stride.
    (32, 112, 3, 1),
    (96, 56, 3, 1),
    (144, 56, 3, 2),
    (192, 28, 3, 1),
    (576, 14, 3, 1),
    (116, 14, 3, 2),
    (240, 28, 5, 1),
    (480, 14, 5, 1),
    (672, 14, 5, 2),
    (1152, 7, 5, 1),
    (640, 7, 3, 1),
    (96, 56, 7, 1),
    (384, 14, 7, 1),
    (33, 30, 3, 1),
)
_INVERTED = (
    (32, 192, 28),
    (64, 384, 14),
    (96, 576, 14),
    (160, 960, 7),
    (24, 72, 56),
    (48, 288, 20),
)
_LINEAR = (  # rows, inputs, outputs
    (128, 768, 768),
    (128, 3072, 768),
    (197, 768, 2304),
    (1, 512, 1000),
    (1, 1280, 1000),
    (64, 256, 256),
    (32, 1024, 4096),
    (16, 300, 77),
    (500, 64, 128),
    (49, 384, 1152),
    (8, 4096, 96),
)
_ATTENTION = ((8, 64, 32), (12, 197, 64), (4, 256, 64), (16, 49, 32), (6, 100, 64))


def _many(
    kind: str, make: Callable[..., Callable[[Writer], None]], sizes: Iterable[tuple[int, ...]]
) -> list[Layer]:
    """Return a layer for each tuple in `sizes`, which are the arguments of `make`."""
    return [Layer(f"{kind} {'·'.join(map(str, size))}", make(*size)) for size in sizes]


_MOST_OPERATIONS = 300_000_000  # The most operations of a random layer.


class _Drawn:
    """A generator of random layers that belong to no model: half of the numbers of channels are
    multiples of 8, and line lengths are odd or even with equal probability."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def layers(self, count: int) -> Iterator[Layer]:
        """Yield `count` different layers."""
        kinds = (
            ("conv", _conv, self._conv),
            ("depthwise", _depthwise, self._depthwise),
            ("inverted", _inverted_residual, self._inverted),
            ("linear", _linear, self._linear),
            ("attention", _attention, self._attention),
        )
        seen = set[str]()
        while len(seen) < count:
            [(name, make, draw)] = self._random.choices(kinds, (6, 5, 3, 4, 2))
            [layer] = _many(f"drawn {name}", make, [draw()])
            if layer.name not in seen:
                seen.add(layer.name)
                yield layer

    def _size(self, least: int, most: int) -> int:
        size: int = round(least * (most / least) ** self._random.random())
        return size if self._random.random() < 0.5 else max(least, size // 8 * 8)

    def _conv(self) -> tuple[int, ...]:
        kernel = self._random.choice((1, 1, 3, 3, 5))
        group = self._random.choice((1, 1, 1, 4, 16)) if kernel > 1 else 1
        inputs, outputs = (-(-self._size(8, 384) // group) * group for _ in range(2))
        points = _MOST_OPERATIONS / (2 * inputs * outputs // group * kernel**2)
        line = self._random.randint(7, max(7, min(80, math.isqrt(int(points)))))
        return inputs, outputs, line, kernel, self._random.choice((1, 1, 2)), group

    def _depthwise(self) -> tuple[int, ...]:
        kernel, stride = self._random.choice((3, 3, 5, 7)), self._random.choice((1, 1, 2))
        return self._size(16, 1024), self._random.randint(7, 56), kernel, stride

    def _inverted(self) -> tuple[int, ...]:
        channels = self._size(16, 128)
        return channels, channels * self._random.choice((3, 4, 6)), self._random.randint(7, 40)

    def _linear(self) -> tuple[int, ...]:
        inputs, outputs = self._size(32, 4096), self._size(16, 2048)
        rows = min(512, _MOST_OPERATIONS // (2 * inputs * outputs))
        return self._size(1, max(1, rows)), inputs, outputs

    def _attention(self) -> tuple[int, ...]:
        return self._random.randint(1, 16), self._random.randint(10, 256), self._size(16, 96)


OTHERS = (
    *_many("conv", _conv, _CONVOLUTIONS),
    *_many("depthwise", _depthwise, _DEPTHWISE),
    *_many("inverted", _inverted_residual, _INVERTED),
    *_many("linear", _linear, _LINEAR),
    *_many("attention", _attention, _ATTENTION),
    *_many("layer norm", _layer_norm, [(197, 384)]),
    *_many("softmax", _softmax, [(1536, 128)]),
    *_Drawn(seed=0).layers(128),
)
