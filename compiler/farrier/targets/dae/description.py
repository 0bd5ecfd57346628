"""The description of a DAE accelerator, from which its compiler, its simulator and its RTL are
derived.

    [matrix]   batch × inner · inner × outer products in each cycle, and the factors' dtypes
    [memory]   bytes of the scratchpads for inputs, weights and sums
    [port]     bytes per cycle of the port to DRAM, and its latency in cycles
    [queues]   the capacities of the modules' command queues, and of the token queues between them
    [vector]   the lanes of the unit that processes sums
    [fields]   the widths of instruction fields in bits

A description is a TOML or JSON file with these tables, a name, and arch = "dae". Error messages
name the field and the remedy.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from farrier.errors import UsageError
from farrier.ir.types import DType
from farrier_device import codec
from farrier_device.codec import Range

ARCH = "dae"
_Unit = Annotated[int, Range(1, 256)]
_Bytes = Annotated[int, Range(1, 1 << 26)]
_Cycles = Annotated[int, Range(0, 1 << 16)]
_SUM_BYTES = 4  # A sum is an i32, or the bits of an f32.
_MOST_DIGITS = 18  # The largest number of digits of a figure, which fits in 64 bits.
_HINT = (
    "`farrier targets dae:vta` prints a description to start from; docs/accelerators.md explains"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """The matrix unit. In each cycle, it multiplies batch × inner inputs by inner × outer weights,
    and adds the products to batch × outer sums. A result is available after `latency` cycles."""

    batch: _Unit
    inner: _Unit
    outer: _Unit
    input: DType = DType.I8
    weight: DType = DType.I8
    latency: _Cycles = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """The size of each scratchpad in bytes."""

    input: _Bytes
    weight: _Bytes
    sum: _Bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Port:
    """The port to DRAM, which loads and stores share."""

    bytes: Annotated[int, Range(1, 1 << 12)]
    latency: _Cycles


@dataclasses.dataclass(frozen=True, slots=True)
class Queues:
    """The capacities of the queues: `commands` of each module's command queue, and `tokens` of each
    token queue between two modules."""

    commands: Annotated[int, Range(1, 1 << 16)] = 512
    tokens: Annotated[int, Range(1, 1 << 16)] = 512


@dataclasses.dataclass(frozen=True, slots=True)
class Vector:
    """The vector unit, which processes `lanes` sums in each cycle."""

    lanes: _Unit
    latency: _Cycles = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Fields:
    """The widths of instruction fields in bits: `index`, an element number in a scratchpad or a
    stride between elements; `count`, a loop count; `offset`, an offset in DRAM; `padding`, the
    padding rows or columns of a load; `argument`, the number of a kernel argument."""

    index: Annotated[int, Range(1, 32)]
    count: Annotated[int, Range(1, 32)]
    offset: Annotated[int, Range(8, 32)] = 32
    padding: Annotated[int, Range(1, 16)] = 4
    argument: Annotated[int, Range(1, 8)] = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Accelerator:
    """A decoupled access-execute accelerator, in which three modules load, compute and store
    concurrently."""

    name: str
    matrix: Matrix
    memory: Memory
    port: Port
    vector: Vector
    fields: Fields
    queues: Queues = Queues()
    mhz: Annotated[int, Range(1, 10_000)] = 100

    # -- elements of the scratchpads, each the operand of one step of the matrix unit

    @property
    def input_bytes(self) -> int:
        return self.matrix.batch * self.matrix.inner

    @property
    def weight_bytes(self) -> int:
        return self.matrix.outer * self.matrix.inner

    @property
    def sum_bytes(self) -> int:
        return self.matrix.batch * self.matrix.outer * _SUM_BYTES

    @property
    def inputs(self) -> int:
        """The capacity of the input scratchpad in elements."""
        return self.memory.input // self.input_bytes

    @property
    def weights(self) -> int:
        return self.memory.weight // self.weight_bytes

    @property
    def sums(self) -> int:
        return self.memory.sum // self.sum_bytes

    def checked(self) -> Accelerator:
        """Return the accelerator itself. Raises UsageError if no program can run on it."""
        for problem in self._problems():
            raise UsageError(f"the accelerator {self.name}: {problem}", hint=_HINT)
        return self

    def _problems(self) -> Iterator[str]:
        """Yield each inconsistency of the description as a clause, with a value that would be
        valid."""
        yield from self._of_matrix()
        elements = (
            ("input", self.memory.input, self.input_bytes),
            ("weight", self.memory.weight, self.weight_bytes),
            ("sum", self.memory.sum, self.sum_bytes),
        )
        for name, nbytes, element in elements:
            yield from self._of_scratchpad(name, nbytes, element)
        yield from self._of_units(max(element for _, _, element in elements))

    def _of_matrix(self) -> Iterator[str]:
        matrix = self.matrix
        for factor, dtype in (("input", matrix.input), ("weight", matrix.weight)):
            if dtype is not DType.I8:
                yield f"matrix.{factor} is {dtype.value}, and the unit multiplies i8 alone"
        if matrix.inner != matrix.outer:
            yield (
                f"matrix.inner is {matrix.inner} and matrix.outer {matrix.outer}: they must be "
                "equal, as the results of a layer are the inputs of the next one"
            )
        if matrix.batch != 1:
            yield f"matrix.batch is {matrix.batch}, and programs are made for 1 alone"

    def _of_scratchpad(self, name: str, nbytes: int, element: int) -> Iterator[str]:
        elements, bits = nbytes // element, self.fields.index
        if elements < 2:
            yield (
                f"memory.{name} of {nbytes} bytes is below two tiles of {element}: each of two "
                "virtual threads holds one"
            )
        elif nbytes % element:
            yield f"memory.{name} of {nbytes} bytes is not a multiple of a tile of {element}"
        elif elements > 1 << bits:
            yield (
                f"fields.index of {bits} bits is too narrow for the {elements} elements of "
                f"memory.{name}: {(elements - 1).bit_length()} are needed"
            )

    def _of_units(self, widest: int) -> Iterator[str]:
        matrix, port, lanes = self.matrix, self.port.bytes, self.vector.lanes
        least = (2 * max(matrix.inner, matrix.outer)).bit_length()
        if self.fields.count < least:
            yield f"fields.count of {self.fields.count} bits is too narrow: {least} are needed"
        if port > widest:
            yield f"port.bytes is {port}, and no tile fits: the largest has {widest} bytes"
        elif widest % port:
            yield f"port.bytes of {port} does not divide a tile of {widest} bytes"
        if lanes > matrix.batch * matrix.outer:
            sums = matrix.batch * matrix.outer
            yield f"vector.lanes is {lanes}, and a tile of sums has only {sums}"


def to_json(accelerator: Accelerator) -> dict[str, Any]:
    """Return the accelerator as a JSON object, which `from_json` reads."""
    fields: dict[str, Any] = codec.encode(accelerator)
    return fields


def from_json(raw: object) -> Accelerator:
    """Return the accelerator that a JSON object describes. Raises UsageError."""
    try:
        if isinstance(raw, Mapping):
            raw = {name: value for name, value in raw.items() if not name.startswith("#")}
        read = codec.decode(Accelerator, raw, unknown=codec.Unknown.REFUSED, name="accelerator")
    except ValueError as error:
        raise UsageError(f"cannot read the description: {error}", hint=_HINT) from None
    return read.checked()


def read(text: str) -> Accelerator:
    """Return the accelerator that the TOML or JSON text of a file describes. Raises UsageError."""
    try:
        raw = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"cannot read the description: {error}", hint=_HINT) from None
    if isinstance(raw, dict) and raw.pop("arch", ARCH) != ARCH:
        raise UsageError(f'the description of an accelerator has arch = "{ARCH}"', hint=_HINT)
    return from_json(raw)


def to_toml(accelerator: Accelerator) -> str:
    """Return the TOML text of an accelerator, which `read` parses."""
    tables = to_json(accelerator)
    plain = {name: value for name, value in tables.items() if not isinstance(value, dict)}
    plain = {"arch": ARCH, **plain}
    lines = [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
    for name, table in tables.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]"]
            lines += [f"{field} = {json.dumps(value)}" for field, value in table.items()]
    return "\n".join(lines) + "\n"


def to_features(accelerator: Accelerator) -> tuple[str, ...]:
    """Return the figures of an accelerator as sorted words such as `matrix.inner=16`, which are the
    features of its machine description."""
    words = []
    for name, value in to_json(accelerator).items():
        if isinstance(value, dict):
            words += [f"{name}.{field}={figure}" for field, figure in value.items()]
        elif name != "name":
            words.append(f"{name}={value}")
    return tuple(sorted(words))


def from_features(name: str, features: Sequence[str]) -> Accelerator:
    """Return the accelerator with a name and the features that `to_features` returns. Raises
    UsageError."""
    raw: dict[str, Any] = {"name": name}
    if not features:
        raise UsageError(
            f"the accelerator {name} has no figures, such as fields.count=11 among its features",
            hint=_HINT,
        )
    tables: dict[str, dict[str, Any]] = {}
    for word in features:
        path, _, text = word.partition("=")
        value = int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else text
        table, dot, field = path.partition(".")
        if dot:
            tables.setdefault(table, {})[field] = value
        else:
            raw[table] = value
    return from_json(raw | tables)
