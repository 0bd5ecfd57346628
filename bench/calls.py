"""Sizes and inputs for calls of models; each model gets up to three calls.

A call is written as a text with one word for each input that is not random:

    NAME=1,3,48,192           its shape, random floats, or integers below 100 and every size
    NAME=2,16@0..40           random integers in a range, of whatever element type
    NAME=2@16000, NAME=@1     that number everywhere

Models that are not listed here get sizes derived from the names and positions of their dims.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.errors import UsageError
from farrier.options.shapes import parse_sum

Arrays = dict[str, npt.NDArray[Any]]

_INTEGERS = 100  # Random integers are below this.
_SIZES = {  # The sizes, in the three calls, of dims whose names contain a word.
    "batch": (1, 2, 3),
    "height": (224, 160, 256),
    "width": (224, 192, 320),
}
_OTHERS = (128, 17, 50)
# The least and greatest value of an input whose name contains a word.
_VALUES = {"mask": (1, 1), "token_type": (0, 1)}
_COUNT = 3
_WORD = re.compile(r"(?P<name>.+)=(?P<shape>[\d,]*)(?:@(?P<low>\d+)(?:\.\.(?P<high>\d+))?)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """The specification of an input's array: its shape, and optionally the range of its
    integers."""

    shape: tuple[int, ...]
    low: int | None = None
    high: int | None = None

    def array(self, dtype: npt.DTypeLike, limit: int, rng: np.random.Generator) -> Any:
        """Return a random array: floats are normally distributed, integers are below `limit` or in
        the range."""
        if self.low is not None:
            high = self.low if self.high is None else self.high
            return rng.integers(self.low, high, self.shape, endpoint=True).astype(dtype)
        if np.issubdtype(dtype, np.floating):
            return rng.standard_normal(self.shape).astype(dtype)
        return rng.integers(0, limit, self.shape).astype(dtype)


Call = Mapping[str, Given]


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """An input as the model declares it. A dim is a number, a name or None."""

    name: str
    dtype: npt.DTypeLike
    dims: tuple[int | str | None, ...]


_AUDIO = tuple(
    f"waveforms={rows},{size} waveforms_lens={rows}@{size}"
    for rows, size in ((1, 16000), (2, 8000), (3, 20480))
)
KNOWN: Mapping[str, tuple[str, ...]] = {
    "rapidocr_cls": ("x=1,3,48,192", "x=6,3,48,192", "x=2,3,48,160"),
    "rapidocr_det": ("x=1,3,224,224", "x=1,3,640,480", "x=2,3,320,320"),
    "rapidocr_rec": ("x=1,3,48,320", "x=6,3,48,320", "x=1,3,48,200"),
    "silero_vad": (
        "input=1,576 state=2,1,128 sr=@16000",
        "input=4,576 state=2,4,128 sr=@16000",
        "input=1,288 state=2,1,128 sr=@8000",
    ),
    "silero_vad_16k_op15": (
        "input=1,576 state=2,1,128 sr=@16000",
        "input=4,576 state=2,4,128 sr=@16000",
        "input=9,576 state=2,9,128 sr=@16000",
    ),
    "silero_vad_half": (
        "input=1,576 state=2,1,128", "input=4,576 state=2,4,128", "input=9,576 state=2,9,128"
    ),
    "silero_vad_op18_ifless": (
        "input=1,576 state=2,1,128 sr=@16000",
        "input=4,576 state=2,4,128 sr=@16000",
        "input=1,288 state=2,1,128 sr=@8000",
    ),
    "silero_vad_16k_sequence": ("input=31,576", "input=1,576", "input=100,576"),
    "ddddocr": ("input1=1,1,64,160", "input1=1,1,64,224", "input1=1,1,64,97"),
    "ddddocr_old": ("input1=1,1,64,160", "input1=1,1,64,224", "input1=1,1,64,97"),
    "nudenet": ("images=1,3,320,320", "images=1,3,224,224", "images=2,3,320,640"),
    "basic_pitch": tuple(f"serving_default_input_2:0={rows},43844,1" for rows in (1, 2, 5)),
    "dnsmos": ("input_1=1,144160", "input_1=2,144160", "input_1=5,144160"),
    "dnsmos_p808": ("input_1=1,900,120", "input_1=2,900,120", "input_1=5,900,120"),
    "magika": ("bytes=1,2048@0..256", "bytes=4,2048@0..256", "bytes=17,2048@0..256"),
    "tashkeel": tuple(
        f"char_inputs={rows},{size}@1..30 diac_inputs={rows},{size}@0..10 "
        f"input_lengths={rows}@{size}"
        for rows, size in ((1, 128), (1, 40), (3, 61))
    ),
    "nakdimon": ("input_1=1,128@1..40", "input_1=1,80@1..40", "input_1=4,50@1..40"),
    "aecmos": ("input=1,3,224,160", "input=1,3,100,160", "input=1,3,500,160"),
    "plcmos": (
        "degraded_audio=1,1,224,257 rater_embed=1,64",
        "degraded_audio=1,1,100,257 rater_embed=1,64",
        "degraded_audio=1,1,500,257 rater_embed=1,64",
    ),
    "asr_whisper80": _AUDIO,
    "asr_nemo80": _AUDIO,
    "asr_kaldi": _AUDIO,
    "asr_wespeaker": _AUDIO,
    "asr_gigaam_v3_conv": _AUDIO,
    "asr_resample_44_16": _AUDIO,
}  # fmt: skip


def calls(model: str, inputs: Sequence[Input]) -> list[Call]:
    """Return the calls of a model with these inputs; a single one if no dim is open."""
    if model in KNOWN:
        return [parse_call(text) for text in KNOWN[model]]
    is_fixed = all(isinstance(dim, int) for source in inputs for dim in source.dims)
    return [_guessed(inputs, number) for number in range(1 if is_fixed else _COUNT)]


def parse_call(text: str) -> Call:
    """Parse the text of a call. Raises UsageError, which names the malformed word."""
    call: dict[str, Given] = {}
    for word in text.split():
        match = _WORD.fullmatch(word)
        if match is None:
            raise UsageError(f"cannot read {word!r} of a call", hint="NAME=1,3,48,192")
        shape = tuple(map(int, filter(None, match["shape"].split(","))))
        low, high = (None if match[part] is None else int(match[part]) for part in ("low", "high"))
        call[match["name"]] = Given(shape, low, high)
    return call


def arrays(call: Call, inputs: Sequence[Input], rng: np.random.Generator) -> Arrays:
    """Return the arrays of a call. An input that the call does not name has the shape that the
    model declares."""
    givens = {
        source.name: call[source.name] if source.name in call else _fixed(source)
        for source in inputs
    }
    sizes = (size for spec in givens.values() for size in spec.shape if size > 1)
    limit = min((_INTEGERS, *sizes))
    return {source.name: givens[source.name].array(source.dtype, limit, rng) for source in inputs}


def typical_values(name: str, shape: tuple[int, ...]) -> Given:
    """Return the specification of an input from its name; for example, a mask consists of ones."""
    values = [bounds for word, bounds in _VALUES.items() if word in name]
    return Given(shape, *(values[0] if values else ()))


def show(call: Call) -> str:
    """Return the shapes of a call as text, such as `1×3×48×192`: the first input's shape, and
    others that differ from it."""
    shapes = dict.fromkeys("×".join(map(str, spec.shape)) for spec in call.values() if spec.shape)
    return " ".join(shapes)


def _fixed(source: Input) -> Given:
    return Given(tuple(dim for dim in source.dims if isinstance(dim, int)))


def _guessed(inputs: Sequence[Input], number: int) -> Call:
    return {source.name: _guess(source, number) for source in inputs}


def _guess(source: Input, number: int) -> Given:
    is_image = len(source.dims) == 4 and isinstance(source.dims[1], int)
    places = ("batch", "", "height", "width") if is_image else ("batch",)
    shape = [
        dim if isinstance(dim, int) and dim >= 0 else _size(dim, places[axis : axis + 1], number)
        for axis, dim in enumerate(source.dims)
    ]
    return typical_values(source.name, tuple(shape))


def _size(dim: int | str | None, place: Iterable[str], number: int) -> int:
    """Return the size of an open dim in call `number`, derived from its name, or else from its
    position `place`."""
    name = dim if isinstance(dim, str) else ""
    total = parse_sum(name)
    if total is not None:
        parts = (factor * _size(part, (), number) for part, factor in total.terms)
        return sum(parts) + total.constant
    is_said = [word for word in _SIZES if word in name.lower()]
    words = is_said or [word for word in place if word in _SIZES and not name]
    return (_SIZES[words[0]] if words else _OTHERS)[number]
