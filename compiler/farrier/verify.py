"""Runs a compiled model on the device: outputs against a reference first, then the clock."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.artifact.manifest import TensorSpec
from farrier.assemble import ENTRY, LinkedModel
from farrier.errors import NoDeviceError, VerificationError
from farrier.importer import ImportedModel
from farrier.ir.dim import evaluate, typical, upper
from farrier.ir.graph import Value
from farrier.ir.special import convert
from farrier.ir.types import DType
from farrier.measure import Blobs, Runner, sizes_argument
from farrier.ops.run import run_graph
from farrier.precision import Precision, rounding
from farrier.strings import codes_of, fitted, random_strings, strings_of
from farrier_device.measurement import (
    Argument,
    Candidate,
    MeasureRequest,
    MeasureResult,
    Role,
    Status,
    TimingPolicy,
)

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
# Who computed the outputs, and these; None where it cannot.
Judge: TypeAlias = Callable[[ImportedModel, Arrays], tuple[str, list[Array]] | None]

_MIN_TIME_S = 0.3
_TIMEOUT_S = 120.0
_LAYERS = 4.0  # that rounding by itself adds up to, of many
_SEEDS = 16
_FAULTS = 3  # attempts at a device that drifts or is lost


@dataclasses.dataclass(frozen=True, slots=True)
class Verification:
    """How the whole model did on the device."""

    max_error: float  # max |out - reference| over max |reference|, the worst output
    reference: str  # who computed the reference
    samples_ms: tuple[float, ...]
    device: str
    sandbox: str

    @property
    def median_ms(self) -> float:
        return float(np.median(self.samples_ms))


class Verifier:
    """Holds one model's inputs and reference outputs, to verify any number of builds of it.

    The judge is ONNX Runtime where it is installed, because it shares no code with Farrier. Where a
    build differs from it by more than the tolerance, the operators in float64 decide which of the
    two is off: on some models ONNX Runtime's own rounding is a hundred times larger.
    """

    def __init__(
        self,
        model: bytes,
        imported: ImportedModel,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        blobs: Blobs,
        precision: Precision = Precision.F32,
    ) -> None:
        # Of a value that is rounded, others are computed.
        self._tolerance = max(precision.tolerance, _LAYERS * rounding(imported.graph))
        self._imported = imported
        self._outputs = outputs
        self._blobs = blobs
        self._expected: list[tuple[str, list[Array]]] = []
        for seed in range(_SEEDS):  # values may be no sizes
            self._arrays = {
                name: codes_of(array) if name in imported.strings else array
                for name, array in random_inputs(inputs, seed).items()
            }
            self._judges = [judge for judge in (_exact, _onnxruntime(model)) if judge is not None]
            try:
                self._judged(0)  # now, while there is memory for it
                break
            except (ArithmeticError, LookupError, ValueError) as error:
                reason = str(error)
        else:
            raise VerificationError(
                f"none of {_SEEDS} random inputs has a result: {reason}",
                hint="--no-verify skips this step",
            )
        self._inputs = [self._argument(Role.INPUT, array) for array in self._arrays.values()]

    def verify(self, linked: LinkedModel, runner: Runner, threads: int) -> Verification:
        """Raises VerificationError where the outputs differ or the code fails, NoDeviceError where
        no device could measure."""
        verdicts = []
        for judge in itertools.count():
            judged = self._judged(judge)
            if judged is None:
                break
            reference, expected = judged
            for room in (1, 16, 256, 4096):  # times what there is for sizes that values decide
                result = self._measure(linked, runner, threads, expected, room)
                (one,) = result.results
                if one.status is not Status.CRASHED or not linked.capacities:
                    break
            if one.status is not Status.WRONG:
                break
            verdicts.append(f"{one.max_error:.1e} from {reference}")
        if one.status is Status.WRONG:
            raise VerificationError(
                f"an output differs by {' and '.join(verdicts)}, in shares of its range; "
                f"allowed are {self._tolerance:.0e}",
                hint="this is a defect of Farrier: please report it with the model",
            )
        if one.status is not Status.OK:
            raise VerificationError(f"the compiled model {one.status.value}: {one.message}")
        samples = tuple(ns / 1e6 for ns in one.samples_ns)
        return Verification(one.max_error or 0.0, reference, samples, result.device, result.sandbox)

    def _judged(self, number: int) -> tuple[str, list[Array]] | None:
        """Who judges, and what the outputs should be; None where no judge is left. Each is asked
        once, the exact one last."""
        while len(self._expected) <= number and self._judges:
            judged = self._judges.pop()(self._imported, self._arrays)
            if judged is not None:
                self._expected.append(judged)
        return self._expected[number] if number < len(self._expected) else None

    def _measure(
        self,
        linked: LinkedModel,
        runner: Runner,
        threads: int,
        expected: Sequence[Array],
        room: int,
    ) -> MeasureResult:
        sizes = list(linked.sizes)
        first = len(linked.dims) - len(linked.capacities)
        sizes[first : len(linked.dims)] = [one.typical * room for one in linked.capacities]
        given = {symbol.name: size for symbol, size in zip(linked.dims, sizes, strict=False)}
        outputs = [
            self._argument(Role.OUTPUT, _filled(array, _room(value, given)))
            for array, value in zip(expected, self._imported.graph.outputs, strict=True)
        ]
        params = self._argument(Role.INPUT, linked.params)
        nbytes = max(evaluate(extent, given) for extent in linked.workspaces)
        rest = (params, Argument(Role.SCRATCH, nbytes), *sizes_argument(sizes, self._blobs))
        candidate = Candidate(ENTRY, (*self._inputs, *outputs, *rest))
        policy = TimingPolicy(
            threads=threads,
            warmup=3,
            min_repeats=10,
            max_repeats=2000,
            min_time_s=_MIN_TIME_S,
            timeout_s=_TIMEOUT_S,
            tolerance=self._tolerance,
        )
        request = MeasureRequest(self._blobs.put(linked.library), (candidate,), policy)
        for _ in range(_FAULTS):
            result = runner.measure(request, self._blobs)
            if result.fault is None:
                return result
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


def _room(value: Value, sizes: Mapping[str, int]) -> int:
    """The bytes of an output's memory for these values of symbols."""
    return evaluate(upper(value.type.nbytes, lambda symbol: symbol.name in sizes), sizes)


def _filled(array: Array, nbytes: int) -> Array:
    """The output as it lies in memory of `nbytes`, as far as it fits; the rest of it stays zero."""
    flat = np.ascontiguousarray(array).reshape(-1)[: nbytes // array.itemsize]
    return np.pad(flat, (0, nbytes // array.itemsize - flat.size))


def random_inputs(specs: Sequence[TensorSpec], seed: int = 0) -> Arrays:
    """One array an input, of the typical shape: floats from a normal distribution; integers are 0
    or 1, because they are token ids, masks and lengths, and any table has two rows; strings are
    words."""
    generator = np.random.default_rng(seed)
    arrays: Arrays = {}
    for spec in specs:
        dtype = spec.element
        if spec.is_strings:
            arrays[spec.name] = strings_of(random_strings(generator, spec.typical_shape))
        elif dtype.is_float:
            arrays[spec.name] = convert(generator.standard_normal(spec.typical_shape), dtype)
        else:
            arrays[spec.name] = convert(generator.integers(0, 2, spec.typical_shape), dtype)
    return arrays


def _onnxruntime(model: bytes) -> Judge | None:
    """ONNX Runtime as a judge; None where it is not installed.

    Its session, which holds the weights once more, lives for one call.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_prepacking", "1")  # a third copy

    def judge(imported: ImportedModel, inputs: Arrays) -> tuple[str, list[Array]] | None:
        try:
            session = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
            given = {
                name: strings_of(array) if name in imported.strings else array
                for name, array in inputs.items()
            }
            outputs = [
                fitted(codes_of(array), typical(value.type.shape[-1]))
                if name in imported.strings
                else np.asarray(array)
                for name, value, array in zip(
                    imported.output_names,
                    imported.graph.outputs,
                    session.run(list(imported.output_names), given),
                    strict=True,
                )
            ]
        except Exception:  # its errors have no common base, and none of them is about Farrier
            return None
        return f"ONNX Runtime {onnxruntime.__version__}", outputs

    return judge


def _exact(imported: ImportedModel, inputs: Arrays) -> tuple[str, list[Array]]:
    graph = imported.graph
    given = {v.name: a for v, a in zip(graph.inputs, inputs.values(), strict=True)}
    outputs = run_graph(graph, given, wide=True)
    wanted = (value.type.dtype.numpy for value in graph.outputs)
    return "float64", [a.astype(d) for a, d in zip(outputs.values(), wanted, strict=True)]
