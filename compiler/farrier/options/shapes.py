"""The shapes of inputs in the syntax for users: numbers, and names for open dims.

    shape = NAME=dim,dim,...
    dim   = number | name [':' range] | '?' [':' range] | sum
    range = low '..' [high] [':' step]
    sum   = term '+' term ...           past+seq, 2*n+1
    term  = [number '*'] name | number
    hot   = name=number,name=number,... | 'none'

A name has one size wherever it occurs, in other inputs too; each `?` has a size of its own. With a
step only its multiples are in the range. Each name in a sum must also be a dim by itself somewhere.
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

GivenShape: TypeAlias = tuple[int | str, ...]  # Numbers, or the texts of open dims.
Hot: TypeAlias = Mapping[str, int]  # Sizes of open dims, by name.

MAX_EXTENT = (1 << 40) - 1
DEFAULT_HIGH = 1 << 16  # The end of a range that does not state one.

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
    """A dim whose size is known when the model runs; `name` is "" for `?`, and `range` is (least,
    greatest, step), or None if the text has no range."""

    name: str
    range: tuple[int, int, int] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DimSum:
    """A dim that is a sum of other dims: `constant` and, for each name, `factor` times that dim,
    sorted by name without duplicates."""

    terms: tuple[tuple[str, int], ...]
    constant: int = 0

    @classmethod
    def of(cls, parts: Iterable[tuple[str, int]], constant: int) -> DimSum:
        """Return the sum of these parts, in which a dim may occur more than once."""
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
    """An open dim of a model: its name, which is only for display, and its symbol in the IR.

    The size of the dim is `step` times the symbol's value, which is in `low` to `high`; the model
    is tuned for the value `typical`.
    """

    name: str
    symbol: str
    low: Natural
    high: Natural
    typical: Natural
    step: Natural = 1

    @property
    def extent(self) -> Extent:
        """The symbol of the dim, as an extent in shapes."""
        return dim(self.symbol, self.low, self.high, self.typical)

    @property
    def range(self) -> str:
        """The range of sizes as text, such as `1 to 8`, `32 to 640 in steps of 32`."""
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{self.low * self.step} to {self.high * self.step}{steps}"

    def __str__(self) -> str:
        return f"{self.name} is {self.range}, typically {self.typical * self.step}"


@dataclasses.dataclass(frozen=True, slots=True)
class Precondition:
    """An assumption of a compiled model about its open dims: the shape rule of an operator depends
    on a comparison of sizes, and the result for the typical sizes is assumed.

    `node` is the ONNX node, `asked` is the comparison, and `answer` is the assumed result. `dims`
    are the names of the dims in the comparison, and `needs` describes the sizes for which the
    assumption holds. `extent`, an expression over symbols of dims, must not be negative; it is 0 if
    the ranges and steps of the dims already express `needs`.
    """

    node: str
    asked: str
    answer: bool
    dims: tuple[str, ...]
    needs: str
    extent: int | str = 0

    def __str__(self) -> str:
        answer = "true" if self.answer else "false"
        return f"{self.needs}: {self.node} asks whether {self.asked}, and is told {answer}"


def parse_dim(text: int | str, where: str = "") -> Size:
    """Parse a dimension: `3`, `"3"`, `"batch"`, `"batch:1..8"`, `"?"`, `"past+seq"`. Error messages
    end with `where`. Raises UsageError."""
    match = _DIM.fullmatch(str(text))
    if match is None:
        total = parse_sum(str(text))
        if total is not None:
            return total
        raise UsageError(
            f"cannot read the dimension {text!r}{where}",
            hint="--shape NAME=1,3,224,224, or with dims open: --shape NAME=batch:1..8,3,height,?",
        )
    step = int(match["step"] or 1)
    if match["number"]:
        low = high = int(match["number"])
    else:
        low = int(match["low"] or 1)
        high = int(match["high"] or max(low, DEFAULT_HIGH))
    if not (low <= high <= MAX_EXTENT and step > 0 and -(-low // step) <= high // step):
        raise UsageError(
            f"the dimension {text!r}{where} is empty or ends beyond {MAX_EXTENT}",
            hint="--shape NAME=batch:1..8,3,224,224",
        )
    if match["number"]:
        return low
    return OpenDim(match["name"].replace("?", ""), (low, high, step) if match["low"] else None)


def parse_sum(text: str) -> DimSum | None:
    """Parse a sum such as `"past + 2*seq + 1"`; return None for text that is not a sum of names and
    numbers, or consists of a single one."""
    terms: list[tuple[str, int]] = []
    constant = 0
    for part in text.split("+"):
        term = _TERM.fullmatch(part.strip())
        if term is None:
            return None
        if term["number"]:
            constant += int(term["number"])
        else:
            terms.append((term["name"], int(term["factor"] or 1)))
    is_sum = "+" in text or "*" in text
    return DimSum.of(terms, constant) if is_sum and terms else None


def parse_shapes(texts: Sequence[str]) -> dict[str, GivenShape]:
    """Parse `["x=batch:1..8,3,224,224"]` to `{"x": ("batch:1..8", 3, 224, 224)}`. Raises UsageError
    that quotes the invalid text."""
    shapes: dict[str, GivenShape] = {}
    for text in texts:
        name, equals, dims = text.rpartition("=")
        hint = "--shape NAME=1,3,224,224 or --shape NAME=batch:1..8,3,height,?"
        if not (name and equals):
            raise UsageError(f"cannot read the shape {text!r}", hint=hint)
        if name in shapes:
            raise UsageError(f"two shapes are given for {name!r}", hint="--shape names it once")
        parsed = [
            (dim, parse_dim(dim, f" of the shape {text!r}"))
            for dim in (dims.split(",") if dims else ())
        ]
        shapes[name] = tuple(size if isinstance(size, int) else dim for dim, size in parsed)
    return shapes


def parse_hot(texts: Sequence[str]) -> tuple[dict[str, int], ...]:
    """Parse `["batch=1,h=640"]` to `({"batch": 1, "h": 640},)`, `["none"]` to `()`. Raises
    UsageError."""
    return () if tuple(texts) == ("none",) else tuple(map(parse_sizes, texts))


def parse_sizes(text: str) -> dict[str, int]:
    """Parse `"batch=1,h=640"` to `{"batch": 1, "h": 640}`. Raises UsageError."""
    sizes: dict[str, int] = {}
    for item in text.split(","):
        name, _, number = item.rpartition("=")
        if not name or name in sizes or not re.fullmatch(r"[0-9]{1,20}", number):
            raise UsageError(
                f"cannot read the sizes {text!r}", hint="--hot batch=1,height=640,width=640"
            )
        sizes[name] = int(number)
    return sizes
