"""Run a compiled model on the device: compare its outputs with a reference, then time it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.artifact.declaration import DeclaredValue
from farrier.artifact.manifest import TensorSpec
from farrier.errors import (
    NoDeviceError,
    TimeLimitError,
    UnverifiableError,
    VerificationError,
)
from farrier.frontends.builder import ImportedModel
from farrier.frontends.onnx.model.file import Model
from farrier.ir.control import failures
from farrier.ir.dim import evaluate, typical, upper
from farrier.ir.graph import Value
from farrier.ir.strings import codes_of, fitted, strings_of
from farrier.ir.types import DType
from farrier.measure import Blobs, Runner, sizes_argument
from farrier.ops.run import run_graph
from farrier.ops.time_limit import OutOfTimeError
from farrier.options.precision import Precision, rounding
from farrier.packaging.draws import Draw, draws, numbers_of
from farrier.packaging.limits import REFERENCE_S
from farrier.packaging.parting import Parting, error_of, parting
from farrier.packaging.reference_engine import ReferenceEngine
from farrier.packaging.reference_time import ReferenceTime
from farrier.targets.linked import Check, LinkedModel
from farrier_device.measurement import (
    Argument,
    Blame,
    Candidate,
    CandidateResult,
    CodeObject,
    Launch,
    MeasureRequest,
    MeasureResult,
    Role,
    Status,
    TimingPolicy,
)

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
# Computes reference outputs: returns the name of the judge and the outputs, or None if it cannot.
Judge: TypeAlias = Callable[[ImportedModel, Arrays], tuple[str, list[Array]] | None]

_MIN_TIME_S = 0.3
_TIMEOUT_S = 120.0
_LAYERS = 4.0  # The factor for rounding errors of many layers.
_ORDERS = 16.0  # The factor by which two orders of a sum may differ in rounding.
# The bound of integers of inputs for which smaller ones make a model amplify rounding.
_WIDEST = 512
_NO_RESULT = (ArithmeticError, LookupError, ValueError)
_FAULTS = 3  # The attempts at a device that drifts or is lost.
# The number of draws that a build may refuse: a size that it needs is among this many small ones.
_REFUSALS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """The measurement that verified a build: the batch, and its arrays by their names in the model
    file."""

    request: MeasureRequest
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]  # The reference outputs.
    strings: bool  # Set if some of them are code points of strings.
    sequences: bool  # Set if some outputs are items of sequences.


@dataclasses.dataclass(frozen=True, slots=True)
class Verification:
    """The result of running the complete model on the device."""

    # The largest max |out - reference| over max |reference|. With a `parting` the error is that of
    # Farrier's reference, with which the build agrees, against ONNX Runtime.
    max_error: float
    reference: str  # The name of the judge that computed the reference.
    samples_ms: tuple[float, ...]
    device: str
    sandbox: str
    measured: Measured
    parting: Parting | None = None  # A difference from ONNX Runtime that is more than rounding.
    alone: str = ""  # The reason for a missing second opinion if one was requested.
    confirmed_by: str = ""  # Another device of a farm, which returned the same.
    untrusted: bool = False  # The farm trusts neither the device, nor did another one confirm it.

    @property
    def median_ms(self) -> float:
        return float(np.median(self.samples_ms))


class _Case:
    """Random inputs of a model, and the expected outputs according to several references (judges).

    The first judge is the reference engine for the model's format, if it is installed, since it
    shares no code with Farrier. If a build differs from it, the second judge decides: Farrier's
    operators in float64. The last judge are these operators in the types of the model. They round
    as a build does; at a discontinuity (a cast to integers, a comparison), they therefore fall on
    the same side as the build, where float64 may fall on the other.
    """

    def __init__(
        self,
        engine: ReferenceEngine | None,
        imported: ImportedModel,
        arrays: Arrays,
        time: ReferenceTime,
        *,
        is_whole: bool,
    ) -> None:
        """Store the inputs; `is_whole` means that they were drawn from the full range of their
        types."""
        self.arrays = arrays
        self._imported = imported
        self._judges: list[Judge] = [
            functools.partial(_evaluated, time, is_whole, wide) for wide in (False, True)
        ]
        if engine is not None:
            self._judges.append(functools.partial(_answer, engine))
        self._expected: list[tuple[str, list[Array]]] = []

    def judged(self, number: int) -> tuple[str, list[Array]] | None:
        """Return the name of judge `number` (a reference that computes expected outputs), and its
        outputs; None if all judges have been heard. Each judge runs once. Raises one of
        `_NO_RESULT` if the model has no result for these inputs."""
        while len(self._expected) <= number and self._judges:
            judged = self._judges.pop()(self._imported, self.arrays)
            if judged is not None:
                self._expected.append(judged)
        return self._expected[number] if number < len(self._expected) else None

    def disagreement(self) -> float:
        """Return the difference between the outputs of two references, as a fraction of an output's
        range: the effect of rounding alone."""
        answers = [judged[1] for judged in map(self.judged, range(2)) if judged is not None]
        if len(answers) < 2:
            return 0.0
        return max(itertools.starmap(error_of, zip(*answers, strict=True)), default=0.0)


class Verifier:
    """The inputs and expected outputs of one model, with which any number of its builds are
    verified.

    If a build differs from ONNX Runtime by more than the tolerance, float64 decides whether the
    build is wrong, because on some models the rounding error of ONNX Runtime itself is a hundred
    times larger. But float64 evaluates the graph that the importer built. If the difference between
    ONNX Runtime and float64 cannot be explained by rounding, it is a `parting`, and the user is
    warned. If the build differs from both, the model may amplify rounding errors on these inputs
    (as in a variance of nearly equal values). Other inputs are then drawn, with integers from wider
    ranges.

    Integers that are data rather than ids, masks or sizes are drawn from the full range of their
    type if the model has a result for them (`packaging/draws.py`).
    """

    def __init__(
        self,
        engine: ReferenceEngine | None,
        model: Model | None,
        imported: ImportedModel,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        blobs: Blobs,
        precision: Precision = Precision.F32,
        reference_s: float = REFERENCE_S,
    ) -> None:
        """Draw inputs and compute their expected outputs.

        `engine` runs the ONNX `model`; if it is None, float64 alone decides, within a time limit
        that `reference_s` sets (`ReferenceTime`). Raises UnverifiableError if none of the drawn
        inputs have a result, and TimeLimitError if none had one in time.
        """
        # Values are computed from rounded ones, so their errors add up.
        self._tolerance = max(precision.tolerance, _LAYERS * rounding(imported.graph))
        self._engine = engine
        self._model = model
        self._imported = imported
        self._specs = inputs
        self._outputs = outputs
        self._blobs = blobs
        self._below = 2  # Integers that may be ids are drawn from 0 and 1: tables have two rows.
        self._time = ReferenceTime(imported.graph, reference_s)
        self._floor_ns = 0
        self._takes_whole = True  # Integers that are data are drawn from their whole type.
        self._refused: set[tuple[bytes, ...]] = set()  # The integers of inputs that builds refuse.
        self._refusal = ""  # Why the last of them was refused.
        values = (value.name for value in imported.graph.inputs)
        names = dict(zip(values, imported.input_names, strict=True))
        self._numbers = numbers_of(imported.graph, names)
        self._draw()

    def _draw(self) -> None:
        """Draw inputs that have a result: not all values are valid sizes or rows of a table.

        Inputs from the full range of types for which floats become infinite are used only if no
        others have a result. Raises UnverifiableError if none has, and TimeLimitError if the
        references ran out of time.
        """
        infinite: Draw | None = None
        why: Exception = UnverifiableError(self._refusal)
        tries = 0
        for draw in draws(self._specs, self._numbers, self._below):
            if draw.is_whole and not self._takes_whole:
                continue
            if _integers(draw.arrays) in self._refused:
                continue
            tries += 1
            case = self._case_of(draw)
            try:
                judged = case.judged(0)  # It is computed here, where a lack of memory is caught.
                if failures(self._imported.graph):  # ONNX Runtime may take a branch that fails here
                    case.judged(1)
            except _NO_RESULT as error:
                why = error
                continue
            except MemoryError as error:  # Some of the inputs regarded as data are sizes after all.
                if not draw.is_whole:
                    raise
                why = error
                continue
            if judged is None:
                if draw.is_whole:
                    why = TimeLimitError(self._time.complaint)
                    continue
                raise TimeLimitError(self._time.complaint, hint=self._time.hint)
            if not draw.is_whole or all(map(_is_finite, judged[1])):
                break
            infinite = infinite or draw
        else:
            if infinite is None:
                raise UnverifiableError(
                    f"none of {tries} random inputs has a result: {why}",
                    hint="--no-verify skips this step",
                )
            draw, case = infinite, self._case_of(infinite)
        self._case, self._is_whole = case, draw.is_whole
        first = {state.input: state.axis for state in self._imported.states if state.in_place}
        self._inputs = [
            self._argument(Role.INPUT, _with_first(array, first.get(name)))
            for name, array in case.arrays.items()
        ]

    def _case_of(self, draw: Draw) -> _Case:
        self._time.is_over = False
        arrays = {
            name: codes_of(array) if name in self._imported.strings else array
            for name, array in draw.arrays.items()
        }
        return _Case(self._engine, self._imported, arrays, self._time, is_whole=draw.is_whole)

    def verify(
        self, linked: LinkedModel, runner: Runner, threads: int, floor_ns: int = 0
    ) -> Verification:
        """Run a build on the device and return the result of its verification. No valid run of the
        model takes less than `floor_ns` nanoseconds.

        Raises VerificationError if the outputs differ or the code fails, UnverifiableError if the
        code rejects all inputs that are drawn, NoDeviceError if no device could measure.
        """
        self._floor_ns = floor_ns
        while True:
            verdicts, reference, measured, result = self._judge(linked, runner, threads)
            worst = _worst(result)
            if (check := _refusing(linked, worst)) is not None:
                self._draw_others(check)
                continue
            is_wrong = worst.status is Status.WRONG
            if not (verdicts and self._draw_narrower()) and not (is_wrong and self._draw_wider()):
                break
        if worst.status is Status.WRONG:
            raise VerificationError(
                f"an output differs by {' and '.join(verdicts)}, in shares of its range; "
                f"allowed are {self._tolerance:.0e}",
                hint=self._hint(),
            )
        if worst.status is not Status.OK:
            raise VerificationError(f"the compiled model {worst.status.value}: {worst.message}")
        samples = tuple(ns / 1e6 for ns in result.results[0].samples_ns)
        error = worst.max_error or 0.0
        parting = self._parting() if verdicts else None
        if parting is not None:
            error, reference = max(error, parting.max_error), parting.engine
        return Verification(
            error,
            reference,
            samples,
            result.device,
            result.sandbox,
            measured,
            parting,
            self._alone(reference, verdicts),
            result.confirmed_by,
            result.untrusted,
        )

    def _alone(self, reference: str, verdicts: Sequence[str]) -> str:
        """Return, as text, why fewer references than intended have confirmed the result; "" if all
        of them did."""
        if not self._time.is_over:
            return ""
        if verdicts:
            what = (
                f"compared with {reference}, and differs by {' and '.join(verdicts)}; why is open"
            )
        else:
            what = f"compared with {reference} alone"
        return f"{what}: {self._time.complaint}"

    def _hint(self) -> str:
        """Return the hint for the user in the error about a wrong build."""
        if self._time.is_over:
            return f"{self._time.complaint}, which would decide who is right: {self._time.hint}"
        return "this is a defect of Farrier: please report it with the model"

    def _parting(self) -> Parting | None:
        """Return how ONNX Runtime differs, by more than rounding, from the reference with which a
        build agrees; None if it does not."""
        if self._engine is None or self._imported.strings:
            return None
        arrays = self._case.arrays
        plain = _answer(self._engine, self._imported, arrays, is_plain=True)
        if plain is None:
            return None
        try:
            with self._time.spent():
                return parting(
                    self._engine, self._model, self._imported, arrays, plain[1], self._tolerance
                )
        except OutOfTimeError:
            return None

    def _draw_narrower(self) -> bool:
        """Draw small integers instead of the full range if the reference is infinite with the
        latter. (ONNX Runtime computes f16 in f32 and may be finite.) Return whether new inputs were
        drawn."""
        judged = self._case.judged(1) or self._case.judged(0)
        if not self._is_whole or judged is None or all(map(_is_finite, judged[1])):
            return False
        self._takes_whole = False
        return self._is_drawn()

    def _draw_wider(self) -> bool:
        """Draw integers from a wider range if rounding errors alone are close to the tolerance.
        Return whether new inputs were drawn."""
        if all(array.dtype.kind not in "iu" for array in self._case.arrays.values()):
            return False
        if self._case.disagreement() < self._tolerance / _ORDERS or self._below >= _WIDEST:
            return False
        self._below *= 4
        return self._is_drawn()

    def _draw_others(self, check: Check) -> None:
        """Draw other integers than the ones rejected by a check of the build. Raises
        UnverifiableError if there are none, or many were rejected already."""
        self._refusal = _refusal(check)
        self._refused.add(_integers(self._case.arrays))
        while len(self._refused) <= _REFUSALS:
            if self._is_drawn():
                return
            if self._below >= _WIDEST:
                break
            self._below *= 4
        raise UnverifiableError(
            f"the compiled model refuses the random inputs: {self._refusal}",
            hint="--no-verify skips this step",
        )

    def _is_drawn(self) -> bool:
        """Draw new inputs, and return whether any were available."""
        try:
            self._draw()
        except (UnverifiableError, TimeLimitError):
            return False
        return True

    def _judge(
        self, linked: LinkedModel, runner: Runner, threads: int
    ) -> tuple[list[str], str, Measured, MeasureResult]:
        """Compare the outputs of the build with one reference after the other, until they agree
        with one. Return four values: the differences from the references before that one, as text;
        the name of that reference; the arrays of the measurement; and its result."""
        verdicts: list[str] = []
        allowed = self._tolerance
        for number in itertools.count():
            judged = self._case.judged(number)
            if judged is None:
                break
            reference, expected = judged
            # The tolerance is not better than ONNX Runtime's own error, unless that has a defect.
            if number:
                allowed = max(allowed, min(self._case.disagreement(), _ORDERS * allowed))
            for room in (1, 16, 256, 4096):  # Factors for the room for sizes that values decide.
                request = self._request(linked, threads, expected, room, allowed)
                result = self._measure(request, runner)
                worst_result = _worst(result)
                if worst_result.status is not Status.CRASHED or not linked.capacities:
                    break
                if (check := _refusing(linked, worst_result)) is not None and check.is_final:
                    break
            if worst_result.status is not Status.WRONG:
                break
            verdicts.append(f"{worst_result.max_error:.1e} from {reference}")
        outputs = dict(zip(self._imported.output_names, expected, strict=True))
        strings = bool(self._imported.strings)
        sequences = any(value.is_sequence for value in _declared(self._imported))
        measured = Measured(request, self._case.arrays, outputs, strings, sequences)
        return verdicts, reference, measured, result

    def _request(
        self,
        linked: LinkedModel,
        threads: int,
        expected: Sequence[Array],
        room: int,
        tolerance: float,
    ) -> MeasureRequest:
        sizes = list(linked.sizes)
        first = len(linked.dims) - len(linked.capacities)
        sizes[first : len(linked.dims)] = [
            capacity.typical * room for capacity in linked.capacities
        ]
        symbol_values = {
            symbol.name: size for symbol, size in zip(linked.dims, sizes, strict=False)
        }
        leading = {state.output: state.axis for state in self._imported.states if state.in_place}
        outputs = [
            self._argument(
                Role.OUTPUT,
                _filled(_with_first(array, leading.get(name)), _room(value, symbol_values)),
            )
            for name, array, value in zip(
                self._imported.output_names, expected, self._imported.graph.outputs, strict=True
            )
        ]
        packed = linked.params
        self._blobs.lend(packed.digest, packed.memory.path)
        params = Argument(Role.INPUT, packed.nbytes, blob=packed.digest)
        nbytes = max(memory.workspace_at(symbol_values) for memory in linked.memories)
        rest = (params, Argument(Role.SCRATCH, nbytes), *sizes_argument(sizes, self._blobs))
        arguments = (*self._inputs, *outputs, *rest)
        candidates = tuple(Candidate((Launch(entry),), arguments) for entry in linked.entries)
        policy = TimingPolicy(
            threads=threads,
            warmup=1,
            min_repeats=3,
            max_repeats=2000,
            min_time_s=_MIN_TIME_S / len(candidates),
            timeout_s=_TIMEOUT_S,
            tolerance=tolerance,
        )
        return MeasureRequest(
            tuple(CodeObject(self._blobs.put(code.content), code.kind) for code in linked.measured),
            candidates,
            policy,
            floors_ns=((self._floor_ns,),) * len(candidates),
            verifies=True,
        )

    def _measure(self, request: MeasureRequest, runner: Runner) -> MeasureResult:
        for _ in range(_FAULTS):
            result = runner.measure(request, self._blobs)
            if result.fault is None:
                return result
            if result.blame is Blame.LIBRARY:
                break  # Another attempt would fail in the same way.
        raise NoDeviceError(
            f"no device could verify the model: {result.fault} ({result.message})",
            hint="`farrier devices` lists them; --no-verify skips this step",
        )

    def _argument(self, role: Role, array: Array) -> Argument:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        digest = self._blobs.put(data)
        dtype = DType.from_numpy(array.dtype).value
        if role is Role.OUTPUT:
            return Argument(role, len(data), dtype, expected=digest)
        return Argument(role, len(data), dtype, blob=digest)


def _worst(result: MeasureResult) -> CandidateResult:
    """Return the result of the entry (the code for all sizes, or for a hot size) with the largest
    error."""
    failed = (result for result in result.results if result.status is not Status.OK)
    return next(failed, max(result.results, key=lambda result: result.max_error or 0.0))


def _refusing(linked: LinkedModel, result: CandidateResult) -> Check | None:
    """Return the check because of which the model rejected the inputs. Return None if the result
    has another cause."""
    number = -1 - result.code
    return linked.checks[number] if 0 <= number < len(linked.checks) else None


def _refusal(check: Check) -> str:
    """Return a text that describes what a check rejects."""
    node = f"node {check.origin!r}"
    if check.reason:
        return f"they lead {node} to a branch that is not compiled: {check.reason}"
    if check.needs:
        return f"{node} gets a size from their values; {check.needs}"
    most = check.most if check.is_exact else f"0 to {check.most}"
    return f"{node} gets a size from their values, and it must be {most}"


def _integers(arrays: Mapping[str, Array]) -> tuple[bytes, ...]:
    """Return the bytes of the inputs that can be sizes or determine sizes; of all inputs if none
    can."""
    integers = [array for array in arrays.values() if array.dtype.kind in "iub"]
    return tuple(array.tobytes() for array in integers or arrays.values())


def _is_finite(array: Array) -> bool:
    return array.dtype.kind in "biuOUS" or bool(np.isfinite(array.astype(np.float64)).all())


def _room(value: Value, sizes: Mapping[str, int]) -> int:
    """Return the size in bytes of an output's memory for these values of symbols."""
    return evaluate(upper(value.type.nbytes, lambda symbol: symbol.name in sizes), sizes)


def _with_first(array: Array, axis: int | None) -> Array:
    """Return the array with `axis` as the first axis, which is the order in which the memory of a
    state stores it. If `axis` is None, return the array unchanged."""
    return np.moveaxis(array, axis, 0) if axis else array


def _filled(array: Array, nbytes: int) -> Array:
    """Return the output padded with zeros, or cut, to a memory of `nbytes` bytes."""
    flat = np.ascontiguousarray(array).reshape(-1)[: nbytes // array.itemsize]
    return np.pad(flat, (0, nbytes // array.itemsize - flat.size))


def _columns(array: Array, keys: Sequence[int | str]) -> Array:
    """Return a tensor unchanged, or the columns of maps in the declared order of their keys."""
    if not keys:
        return array
    ascending = sorted(keys, key=lambda key: (isinstance(key, str), key))
    return array.reshape(-1, len(keys))[:, [ascending.index(key) for key in keys]]


def _answer(
    engine: ReferenceEngine, imported: ImportedModel, inputs: Arrays, *, is_plain: bool = False
) -> tuple[str, list[Array]] | None:
    """Compute the outputs with ONNX Runtime. Return its name and the outputs; None if it has no
    result. `is_plain` is as in `ReferenceEngine.run`."""
    feeds = {
        name: strings_of(array) if name in imported.strings else array
        for name, array in inputs.items()
    }
    declared = _held(imported)
    answer = engine.run(feeds, [value.name for value in declared], is_plain=is_plain)
    if answer is None:
        return None
    try:
        arrays = itertools.chain.from_iterable(map(_members, declared, answer))
        return engine.name, [
            fitted(codes_of(array), typical(value.type.shape[-1]))
            if name in imported.strings
            else array
            for name, value, array in zip(
                imported.output_names, imported.graph.outputs, arrays, strict=True
            )
        ]
    except ValueError:  # A string or a sequence is longer than the output's type allows.
        return None


def _declared(imported: ImportedModel) -> tuple[DeclaredValue, ...]:
    """Return the outputs that the model file declares, () without a file."""
    return () if imported.declaration is None else imported.declaration.outputs


def _held(imported: ImportedModel) -> list[DeclaredValue]:
    """Return the outputs that the model file declares, except absent optional ones, each with the
    tensors of the graph that hold it."""
    names = imported.output_names
    pairs = ((value, value.members_in(names)) for value in _declared(imported))
    return [dataclasses.replace(value, members=members) for value, members in pairs if members]


def _members(declared: DeclaredValue, output: Any) -> list[Array]:
    """Return the tensors of the graph that represent an output of ONNX Runtime. Raises ValueError
    if they cannot."""
    if declared.is_sequence:
        return declared.parted(output)
    return [_columns(np.asarray(output), declared.keys)]


def _evaluated(
    time: ReferenceTime, is_whole: bool, wide: bool, imported: ImportedModel, inputs: Arrays
) -> tuple[str, list[Array]] | None:
    """Compute the outputs with Farrier's own operators, in float64 if `wide`, otherwise in the
    types of the model. Return a name for this reference and the outputs; None if the time is
    over."""
    graph = imported.graph
    arrays = {v.name: a for v, a in zip(graph.inputs, inputs.values(), strict=True)}
    try:
        with time.spent(is_whole=is_whole):
            outputs = run_graph(graph, arrays, wide=wide)
    except OutOfTimeError:
        return None
    name = "float64" if wide else "the operators in the model's types"
    return name, [outputs[v.name].astype(v.type.dtype.numpy) for v in graph.outputs]
