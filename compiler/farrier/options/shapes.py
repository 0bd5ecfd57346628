"""Shapes of inputs as a user gives them: numbers, and names for what stays open.

    shape = NAME=dim,dim,...
    dim   = number | name [':' range] | '?' [':' range] | sum
    range = low '..' [high] [':' step]
    sum   = term '+' term ...           past+seq, 2*n+1
    term  = [number '*'] name | number
    hot   = name=number,name=number,... | 'none'

A name is one size wherever it stands, in other inputs too; each `?` is a size of its own. With a
step only its multiples are in the range. What a sum names stands alone somewhere.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from farrier.errors import UsageError
from farrier.ir.dim import Extent, dim
from farrier_device.codec import Natural

GivenShape: TypeAlias = tuple[int | str, ...]  # a number, or the text of an open dim
Hot: TypeAlias = Mapping[str, int]  # sizes of open dims, by name

MAX_EXTENT = (1 << 40) - 1
DEFAULT_HIGH = 1 << 16  # where no end of a range is given

_NAME = r"[A-Za-z_][\w./-]*"
_DIM = re.compile(
    rf"(?P<number>\d{{1,20}})|(?P<name>\?|{_NAME})(?::(?P<low>\d{{1,20}})\.\.(?P<high>\d{{0,20}})(?::(?P<step>\d{{1,20}}))?)?",
    re.ASCII,
)
_TERM = re.compile(
    rf"(?:(?P<factor>\d{{1,20}})\s*\*\s*)?(?P<name>{_NAME})|(?P<number>\d{{1,20}})", re.ASCII
)


@dataclasses.dataclass(frozen=True, slots=True)
class OpenDim:
    """A dim that is known when the model runs; `name` is "" for `?`, `range` (least, greatest,
    step) None where none is given."""

    name: str
    range: tuple[int, int, int] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DimSum:
    """A dim that others make: `constant` and, for each name, `factor` times that dim. Sorted by
    name, no name twice."""

    terms: tuple[tuple[str, int], ...]
    constant: int = 0

    @classmethod
    def of(cls, parts: Iterable[tuple[str, int]], constant: int) -> DimSum:
        """The sum of parts that may name a dim twice."""
        terms: collections.Counter[str] = collections.Counter()
        for name, factor in parts:
            terms[name] += factor
        return cls(tuple(sorted(terms.items())), constant)

    def __str__(self) -> str:
        texts = [name if factor == 1 else f"{factor}*{name}" for name, factor in self.terms]
        return "+".join([*texts, str(self.constant)] if self.constant else texts)


Size: TypeAlias = int | OpenDim | DimSum


@dataclasses.dataclass(frozen=True, slots=True)
class NamedDim:
    """An open dim of a model: its name, which is shown and never becomes code, and its symbol in
    the IR. The size is `step` times the symbol's value, which is in `low` to `high` and tuned for
    where it is `typical`."""

    name: str
    symbol: str
    low: Natural
    high: Natural
    typical: Natural
    step: Natural = 1

    @property
    def extent(self) -> Extent:
        """The symbol, as shapes contain it."""
        return dim(self.symbol, self.low, self.high, self.typical)

    @property
    def range(self) -> str:
        """`1 to 8`, `32 to 640 in steps of 32`."""
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{self.low * self.step} to {self.high * self.step}{steps}"

    def __str__(self) -> str:
        return f"{self.name} is {self.range}, typically {self.typical * self.step}"


@dataclasses.dataclass(frozen=True, slots=True)
class Precondition:
    """What a compiled model takes for granted of its open dims, because an operator asks it and the
    answer depends on them: the one for the typical sizes.

    `node` is the ONNX node that asks, `asked` its question and `answer` what it was told, in the
    user's names; `dims` are the names of those in the question, and `needs` says which sizes of
    theirs are left. `extent`, in symbols of dims, must not be negative: 0 where the ranges and
    steps of the dims say all that `needs` does.
    """

    node: str
    asked: str
    answer: bool
    dims: tuple[str, ...]
    needs: str
    extent: int | str = 0

    def __str__(self) -> str:
        told = "true" if self.answer else "false"
        return f"{self.needs}: {self.node} asks whether {self.asked}, and is told {told}"


def parse_dim(given: int | str, where: str = "") -> Size:
    """`3`, `"3"`, `"batch"`, `"batch:1..8"`, `"?"`, `"past+seq"`; raises UsageError."""
    found = _DIM.fullmatch(str(given))
    if found is None:
        made = parse_sum(str(given))
        if made is not None:
            return made
        raise UsageError(
            f"cannot read the dimension {given!r}{where}",
            hint="--shape NAME=1,3,224,224, or with dims open: --shape NAME=batch:1..8,3,height,?",
        )
    step = int(found["step"] or 1)
    if found["number"]:
        low = high = int(found["number"])
    else:
        low = int(found["low"] or 1)
        high = int(found["high"] or max(low, DEFAULT_HIGH))
    if not (low <= high <= MAX_EXTENT and step > 0 and -(-low // step) <= high // step):
        raise UsageError(
            f"the dimension {given!r}{where} is empty or ends beyond {MAX_EXTENT}",
            hint="--shape NAME=batch:1..8,3,224,224",
        )
    if found["number"]:
        return low
    return OpenDim(found["name"].replace("?", ""), (low, high, step) if found["low"] else None)


def parse_sum(text: str) -> DimSum | None:
    """`"past + 2*seq + 1"`; None for what is no sum of names and numbers, or a single one."""
    terms: list[tuple[str, int]] = []
    constant = 0
    for part in text.split("+"):
        found = _TERM.fullmatch(part.strip())
        if found is None:
            return None
        if found["number"]:
            constant += int(found["number"])
        else:
            terms.append((found["name"], int(found["factor"] or 1)))
    is_sum = "+" in text or "*" in text
    return DimSum.of(terms, constant) if is_sum and terms else None


def parse_shapes(texts: Sequence[str]) -> dict[str, GivenShape]:
    """`["x=batch:1..8,3,224,224"]` → `{"x": ("batch:1..8", 3, 224, 224)}`; raises UsageError with
    the text at fault."""
    shapes: dict[str, GivenShape] = {}
    for text in texts:
        name, equals, dims = text.rpartition("=")
        hint = "--shape NAME=1,3,224,224 or --shape NAME=batch:1..8,3,height,?"
        if not (name and equals):
            raise UsageError(f"cannot read the shape {text!r}", hint=hint)
        if name in shapes:
            raise UsageError(f"two shapes are given for {name!r}", hint="--shape names it once")
        given = [
            (dim, parse_dim(dim, f" of the shape {text!r}"))
            for dim in (dims.split(",") if dims else ())
        ]
        shapes[name] = tuple(size if isinstance(size, int) else dim for dim, size in given)
    return shapes


def parse_hot(texts: Sequence[str]) -> tuple[dict[str, int], ...]:
    """`["batch=1,h=640"]` → `({"batch": 1, "h": 640},)`, `["none"]` → `()`; raises UsageError."""
    return () if tuple(texts) == ("none",) else tuple(map(parse_sizes, texts))


def parse_sizes(text: str) -> dict[str, int]:
    """`"batch=1,h=640"` → `{"batch": 1, "h": 640}`; raises UsageError."""
    sizes: dict[str, int] = {}
    for item in text.split(","):
        name, _, number = item.rpartition("=")
        if not name or name in sizes or not re.fullmatch(r"[0-9]{1,20}", number):
            raise UsageError(
                f"cannot read the sizes {text!r}", hint="--hot batch=1,height=640,width=640"
            )
        sizes[name] = int(number)
    return sizes
