"""The manifest of an artifact: its inputs, its outputs, and how it was compiled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from farrier.artifact import format_1
from farrier.artifact.code import CodeFile
from farrier.artifact.declaration import Declaration
from farrier.errors import ArtifactError
from farrier.ir.dim import Extent, dim, typical
from farrier.ir.text.extents import parse_extent
from farrier.ir.types import DType
from farrier.options.shapes import MAX_EXTENT, NamedDim, Precondition
from farrier.options.states import HeldState
from farrier_device import codec
from farrier_device.codec import Natural

# The number rises if a reader of this version would run a new artifact wrongly, because of another
# entry point or another meaning of a field. An added field has an empty default, the meaning of
# artifacts without it: older artifacts load, and older readers refuse unknown fields.
FORMAT = 2
STRING = "string"  # The element type of strings.


@dataclasses.dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of the model, under its name in the ONNX file.

    Strings are stored as u32 code points; the last extent of the shape is their width. The model
    compares the value with each of the integers `distinguished_values`, and branches on the result.
    """

    name: str
    dtype: str  # A name of `farrier.ir.types.DType`, or STRING.
    shape: tuple[Natural | str, ...]  # Numbers, and extents in the manifest's dims.
    typical: tuple[Natural, ...] = ()  # The shape at the typical sizes if it is not constant.
    axes: tuple[
        str, ...
    ] = ()  # For inputs: the model's name of each axis, "" for an axis without a name.
    distinguished_values: tuple[int, ...] = dataclasses.field(default=(), metadata={"name": "told"})

    @property
    def is_strings(self) -> bool:
        return self.dtype == STRING

    @property
    def element(self) -> DType:
        """The dtype of the elements in memory; for strings that of their code points."""
        return DType.U32 if self.is_strings else DType(self.dtype)

    @property
    def typical_shape(self) -> tuple[int, ...]:
        return self.typical or tuple(extent for extent in self.shape if isinstance(extent, int))


@dataclasses.dataclass(frozen=True, slots=True)
class CountedDim:
    """An extent of outputs that the data decides: a size from 0 to `most`, which is an extent in
    terms of the dims."""

    symbol: str
    most: int | str


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity for an extent that the data decides and that has no bound: a size that the
    caller passes, initially `first`, and increases if a check reports that it was too small."""

    symbol: str
    first: Natural

    @property
    def extent(self) -> Extent:
        return dim(self.symbol, 0, MAX_EXTENT, self.first)


@dataclasses.dataclass(frozen=True, slots=True)
class SizeCheck:
    """A check of a size that the entry computes, for the ONNX node `node`.

    The size must lie between 0 and `most`, an extent in terms of the dims and capacities, or equal
    `most` if `is_exact`. With a `reason`, the check reports that the run has reached a branch of
    that node which cannot be compiled, and is aborted. `needs` describes any other requirement of a
    node.
    """

    node: str
    most: int | str
    is_exact: bool = False
    reason: str = ""
    needs: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class KernelReport:
    """A kernel, and where its schedule comes from.

    `source` is `tuned` (measured for this task and target), `transferred` (taken from the records
    of an earlier run) or `default` (ranked first by the analytic model).
    """

    unknown_fields: ClassVar[codec.Unknown] = codec.Unknown.IGNORED  # Nothing depends on reports.

    name: str
    task: str  # The structural hash of the task.
    calls: int
    rule: str
    source: str
    predicted_us: float
    measured_us: float | None = None
    operations: int = 0  # The arithmetic of one call; a multiply-add counts two.
    multiply_adds: int = 0  # The products among these that sums add up.
    factors: str = ""  # The dtypes of these and of the sums: "u8 i8 i32"; "" if there are none.
    # The space in which it runs, and the reason for running on the host of a device. Empty for a
    # machine that has only the host.
    space: str = dataclasses.field(default="", metadata=codec.OMIT_EMPTY)
    reason: str = dataclasses.field(default="", metadata=codec.OMIT_EMPTY)


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """The content of `manifest.json`. Sizes are in bytes; `hashes` are the sha256 of the parameters
    and of the program.

    `architecture` names the backend that loads the code; `backend` is read by that backend alone.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    architecture: str  # The name that `uname -m` prints.
    machine: str  # The name of the kind of machine, within its architecture.
    features: tuple[str, ...]  # The extensions that code uses beyond those of all such machines.
    code: tuple[CodeFile, ...]
    backend: dict[str, Any]
    params_bytes: Natural
    hashes: dict[str, str]
    tools: dict[str, str]
    kernels: tuple[KernelReport, ...]
    precision: str = "f32"  # The dtype that contractions multiply in.
    dims: tuple[NamedDim, ...] = ()  # In the order in which the entry takes their values.
    capacities: tuple[Capacity, ...] = ()  # The entry takes their values after those of `dims`.
    preconditions: tuple[Precondition, ...] = ()  # The assumptions about the dims.
    counted: tuple[CountedDim, ...] = ()  # In the order in which the entry returns their values.
    checks: tuple[SizeCheck, ...] = ()  # The check numbered n fails with the code -1 - n.
    # Typical values of the dims, capacities and counted ones, a place for the size that fails a
    # check, then the sizes that single calls take.
    sizes: tuple[Natural, ...] = ()
    declaration: Declaration | None = None  # The ONNX file's declaration; older artifacts lack it.
    state: tuple[HeldState, ...] = ()  # The order is that of `inputs`.
    format: int = FORMAT  # The format of the file that it was read from.

    def to_json(self) -> str:
        return json.dumps(codec.encode(self) | {"format": FORMAT}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Parse a manifest. Raises ArtifactError if the text is not a manifest of this format, or
        has fields that this version does not know."""
        try:
            raw: dict[str, Any] = codec.loads(dict[str, Any], text, name="it")
            written_in = raw.get("format")
            if written_in == format_1.FORMAT:
                raw = format_1.upgraded(raw)
            elif written_in != FORMAT:
                reads = f"reads {format_1.FORMAT} and {FORMAT}"
                raise _of_another_version(raw, f"has format {written_in}", reads)
            manifest = codec.decode(
                cls, raw, unknown=codec.Unknown.REFUSED_UNLESS_EMPTY, name="manifest"
            )
            manifest._check()
            return manifest
        except codec.UnknownFieldError as error:
            has, knows = f"says {error.field!r} in its manifest", f"does not know {error.field!r}"
            raise _of_another_version(raw, has, knows) from None
        except ValueError as error:
            raise damaged(error) from error

    def _check(self) -> None:
        """Raise ValueError for a field that would make the code fail. The check is against damaged
        files, not against attackers: whoever can change the hash of the code can change all of it.
        """
        for spec in (*self.inputs, *self.outputs):
            if spec.is_strings and not spec.shape:
                raise ValueError("strings without a width")
            _ = spec.element
            self.extents(spec)
        self._check_state()
        self._check_code()
        self.limits()
        for precondition in self.preconditions:
            self.not_negative(precondition)

    def _check_state(self) -> None:
        """Raise ValueError unless each state names an input and an output."""
        inputs = {spec.name: spec for spec in self.inputs}
        outputs = {spec.name: spec for spec in self.outputs}
        for state in self.state:
            past, present = inputs.get(state.input), outputs.get(state.output)
            if past is None or present is None or len(past.shape) != len(present.shape):
                raise ValueError(f"a state {state.input!r} that is not an input and an output")
            if state.axis is not None and not 0 <= state.axis < len(past.shape):
                raise ValueError(f"a state {state.input!r} with no axis {state.axis}")

    def _check_code(self) -> None:
        """Raise ValueError for code objects in the wrong place, or two with one path."""
        if not self.code:
            raise ValueError("a model without code")
        for position, file in enumerate(self.code):
            file.check()
            if file.path in (other.path for other in self.code[:position]):
                raise ValueError(f"two code objects {file.path}")

    def has_interface_of(self, other: Manifest) -> bool:
        """Check whether both models are called in the same way, with sizes in the same ranges."""
        sides = [(each.inputs, each.outputs, each.dims, each.state) for each in (self, other)]
        return sides[0] == sides[1]

    def extents(self, spec: TensorSpec) -> tuple[Extent, ...]:
        """Return the shape of an input or output in terms of the manifest's symbols."""
        extents = self._given()
        for counted in self.counted:
            most = parse_extent(str(counted.most), extents)
            extents[counted.symbol] = dim(counted.symbol, 0, most, typical(most))
        return tuple(
            parse_extent(extent, extents) if isinstance(extent, str) else extent
            for extent in spec.shape
        )

    @property
    def asked(self) -> tuple[TensorSpec, ...]:
        """The inputs that a call must pass: all except the states, which the session keeps."""
        held = {state.input for state in self.state}
        return tuple(spec for spec in self.inputs if spec.name not in held)

    @property
    def given(self) -> tuple[NamedDim | Capacity, ...]:
        """The sizes that the caller passes, in the order of the entry's argument."""
        return (*self.dims, *self.capacities)

    def limits(self) -> tuple[Extent | None, ...]:
        """Return the maximum that each check allows, in terms of dims and capacities; None for a
        check of equality."""
        return tuple(None if check.is_exact else self.extent(check.most) for check in self.checks)

    def not_negative(self, precondition: Precondition) -> Extent:
        """Return the extent that a precondition requires to be nonnegative, in terms of dims."""
        return self.extent(precondition.extent)

    def extent(self, text: int | str) -> Extent:
        """Return the extent that a text represents, in terms of dims and capacities. Raises
        ValueError."""
        return parse_extent(str(text), self._given())

    def _given(self) -> dict[str, Extent]:
        """Return the extents that the caller passes, by the names of their symbols."""
        return {size.symbol: size.extent for size in self.given}


def damaged(error: ValueError) -> ArtifactError:
    """Return the error for an artifact whose manifest has an impossible value."""
    return ArtifactError(
        f"the artifact's manifest is damaged: {error}",
        hint="fetch it again, or compile the model again",
    )


def _of_another_version(raw: Mapping[str, Any], has: str, reads: str) -> ArtifactError:
    """Return the error for an artifact of another version of Farrier. `has` describes what the
    artifact contains that this version would execute wrongly, and `reads` what this version can
    read."""
    import farrier

    tools = raw.get("tools")
    maker = tools.get("farrier", "") if isinstance(tools, dict) else ""
    by = f"Farrier {maker}" if maker else "the Farrier that made it"
    whose = f" of {by}" if maker else ""
    return ArtifactError(
        f"the artifact{whose} {has}; this Farrier, {farrier.__version__}, {reads}",
        hint=f"compile the model again with this one, or run the artifact with {by}",
    )
