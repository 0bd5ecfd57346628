"""Runs a compiled model on the device: outputs against a reference first, then the clock."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.artifact.manifest import TensorSpec
from farrier.assemble import ENTRY, LinkedModel
from farrier.errors import NoDeviceError, VerificationError
from farrier.importer import ImportedModel
from farrier.ir.types import DType
from farrier.measure import Blobs, Runner
from farrier.ops.run import run_graph
from farrier_device.measurement import (
    Argument,
    Candidate,
    MeasureRequest,
    Role,
    Status,
    TimingPolicy,
)

Arrays = dict[str, npt.NDArray[Any]]

TOLERANCE = 1e-4  # of the output's range
_MIN_TIME_S = 0.3
_TIMEOUT_S = 120.0
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
    """Holds one model's inputs and reference outputs, to verify any number of builds of it."""

    def __init__(
        self,
        model: bytes,
        imported: ImportedModel,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        blobs: Blobs,
    ) -> None:
        self._outputs = outputs
        self._blobs = blobs
        arrays = random_inputs(inputs)
        expected, self.reference = reference_outputs(model, imported, arrays)
        self._inputs = [self._argument(Role.INPUT, array) for array in arrays.values()]
        self._expected = [
            self._argument(Role.OUTPUT, np.asarray(expected[spec.name])) for spec in outputs
        ]

    def verify(self, linked: LinkedModel, runner: Runner, threads: int) -> Verification:
        """Raises VerificationError where the outputs differ or the code fails, NoDeviceError where
        no device could measure."""
        params = self._argument(Role.INPUT, linked.params)
        scratch = Argument(Role.SCRATCH, linked.workspace_bytes)
        candidate = Candidate(ENTRY, (*self._inputs, *self._expected, params, scratch))
        policy = TimingPolicy(
            threads=threads,
            warmup=3,
            min_repeats=10,
            max_repeats=2000,
            min_time_s=_MIN_TIME_S,
            timeout_s=_TIMEOUT_S,
            tolerance=TOLERANCE,
        )
        request = MeasureRequest(self._blobs.put(linked.library), (candidate,), policy)
        for _ in range(_FAULTS):
            result = runner.measure(request, self._blobs)
            if result.fault is None:
                break
        else:
            raise NoDeviceError(
                f"no device could verify the model: {result.fault} ({result.message})",
                hint="`farrier devices` lists them; --no-verify skips this step",
            )
        (one,) = result.results
        if one.status is Status.WRONG:
            raise VerificationError(
                f"an output differs from {self.reference} by {one.max_error:.2e} of its range; "
                f"allowed are {TOLERANCE:.0e}",
                hint="this is a defect of Farrier: please report it with the model",
            )
        if one.status is not Status.OK:
            raise VerificationError(f"the compiled model {one.status.value}: {one.message}")
        samples = tuple(ns / 1e6 for ns in one.samples_ns)
        error = one.max_error if one.max_error is not None else 0.0
        return Verification(error, self.reference, samples, result.device, result.sandbox)

    def _argument(self, role: Role, array: npt.NDArray[Any]) -> Argument:
        data = np.ascontiguousarray(array).tobytes()
        digest = self._blobs.put(data)
        dtype = DType.from_numpy(array.dtype).value
        if role is Role.OUTPUT:
            return Argument(role, len(data), dtype, expected=digest)
        return Argument(role, len(data), dtype, blob=digest)


def random_inputs(specs: Sequence[TensorSpec], seed: int = 0) -> Arrays:
    """One array an input: floats from a normal distribution; integers are 0 or 1, because they are
    token ids, masks and lengths, and any table has two rows."""
    generator = np.random.default_rng(seed)
    arrays: Arrays = {}
    for spec in specs:
        dtype = DType(spec.dtype).numpy
        if dtype.kind == "f":
            arrays[spec.name] = generator.standard_normal(spec.shape).astype(dtype)
        else:
            arrays[spec.name] = generator.integers(0, 2, spec.shape).astype(dtype)
    return arrays


def reference_outputs(
    model: bytes, imported: ImportedModel, inputs: Mapping[str, npt.NDArray[Any]]
) -> tuple[Arrays, str]:
    """The model's outputs by name, and who computed them: ONNX Runtime where it is installed,
    because it shares no code with Farrier, else the operators' numpy reference."""
    names = imported.output_names
    if importlib.util.find_spec("onnxruntime") is None:
        given = zip(imported.graph.inputs, inputs.values(), strict=True)
        values = run_graph(imported.graph, {value.name: array for value, array in given})
        return dict(zip(names, values.values(), strict=True)), "the numpy reference"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    results = session.run(list(names), dict(inputs))
    return dict(zip(names, results, strict=True)), f"ONNX Runtime {onnxruntime.__version__}"
