"""Sizes and inputs to call models with: three calls of each.

A call is a text, one word for each input that is not left to chance:

    NAME=1,3,48,192           its shape, random floats, or integers below 100 and every size
    NAME=2,16@0..40           random integers in a range, of whatever element type
    NAME=2@16000, NAME=@1     that number everywhere

Models that are not listed get sizes by the names and places of their dims.
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

_INTEGERS = 100  # random integers are below this
_SIZES = {  # of dims whose names contain a word, at the three calls
    "batch": (1, 2, 3),
    "height": (224, 160, 256),
    "width": (224, 192, 320),
}
_OTHERS = (128, 17, 50)
_VALUES = {"mask": (1, 1), "token_type": (0, 1)}  # least and greatest, by a word of the name
_COUNT = 3
_WORD = re.compile(r"(?P<name>.+)=(?P<shape>[\d,]*)(?:@(?P<low>\d+)(?:\.\.(?P<high>\d+))?)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """One input: its shape, and the range of its integers where it has one."""

    shape: tuple[int, ...]
    low: int | None = None
    high: int | None = None

    def array(self, dtype: npt.DTypeLike, limit: int, rng: np.random.Generator) -> Any:
        """Random floats are normal, random integers below `limit`."""
        if self.low is not None:
            high = self.low if self.high is None else self.high
            return rng.integers(self.low, high, self.shape, endpoint=True).astype(dtype)
        if np.issubdtype(dtype, np.floating):
            return rng.standard_normal(self.shape).astype(dtype)
        return rng.integers(0, limit, self.shape).astype(dtype)


Call = Mapping[str, Given]


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """An input as the model declares it; a dim is a number, a name or None."""

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
    """The calls of a model with these inputs; one where no dim is open."""
    if model in KNOWN:
        return [parse_call(text) for text in KNOWN[model]]
    is_fixed = all(isinstance(dim, int) for one in inputs for dim in one.dims)
    return [_guessed(inputs, number) for number in range(1 if is_fixed else _COUNT)]


def parse_call(text: str) -> Call:
    """Raises UsageError with the word at fault."""
    call: dict[str, Given] = {}
    for word in text.split():
        found = _WORD.fullmatch(word)
        if found is None:
            raise UsageError(f"cannot read {word!r} of a call", hint="NAME=1,3,48,192")
        shape = tuple(map(int, filter(None, found["shape"].split(","))))
        low, high = (None if found[part] is None else int(found[part]) for part in ("low", "high"))
        call[found["name"]] = Given(shape, low, high)
    return call


def arrays(call: Call, inputs: Sequence[Input], rng: np.random.Generator) -> Arrays:
    """What the call gives for each input; a model's own fixed shape where it says nothing."""
    givens = {one.name: call[one.name] if one.name in call else _fixed(one) for one in inputs}
    sizes = (size for given in givens.values() for size in given.shape if size > 1)
    limit = min((_INTEGERS, *sizes))
    return {one.name: givens[one.name].array(one.dtype, limit, rng) for one in inputs}


def typical_values(name: str, shape: tuple[int, ...]) -> Given:
    """An input of which nothing is said but what its name does: a mask is of ones."""
    values = [found for word, found in _VALUES.items() if word in name]
    return Given(shape, *(values[0] if values else ()))


def show(call: Call) -> str:
    """`1×3×48×192`: the shapes that matter, the first input's and what differs from it."""
    shapes = dict.fromkeys("×".join(map(str, one.shape)) for one in call.values() if one.shape)
    return " ".join(shapes)


def _fixed(one: Input) -> Given:
    return Given(tuple(dim for dim in one.dims if isinstance(dim, int)))


def _guessed(inputs: Sequence[Input], number: int) -> Call:
    return {one.name: _guess(one, number) for one in inputs}


def _guess(one: Input, number: int) -> Given:
    is_image = len(one.dims) == 4 and isinstance(one.dims[1], int)
    places = ("batch", "", "height", "width") if is_image else ("batch",)
    shape = [
        dim if isinstance(dim, int) and dim >= 0 else _size(dim, places[axis : axis + 1], number)
        for axis, dim in enumerate(one.dims)
    ]
    return typical_values(one.name, tuple(shape))


def _size(dim: int | str | None, place: Iterable[str], number: int) -> int:
    """Of an open dim: what its name says, or its place where it has none."""
    name = dim if isinstance(dim, str) else ""
    total = parse_sum(name)
    if total is not None:
        parts = (factor * _size(part, (), number) for part, factor in total.terms)
        return sum(parts) + total.constant
    is_said = [word for word in _SIZES if word in name.lower()]
    known = is_said or [word for word in place if word in _SIZES and not name]
    return (_SIZES[known[0]] if known else _OTHERS)[number]
