"""Build a batch from decisions: every candidate is scheduled and compiled, and all are linked into
one library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from farrier.compile_pool import BuildInput, Compiled, CompilePool
from farrier.errors import CompilerError
from farrier.ir.dim import number as static
from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.loop import Function
from farrier.ir.types import DType, Layout
from farrier.lower.region import lower_region
from farrier.measure.drift import drift_candidate, drift_object
from farrier.measure.packing import as_argument, packing_function, packing_objects
from farrier.measure.runner import Blobs
from farrier.measure.sizes import sizes_argument
from farrier.measure.task_data import TaskData, make_task_data
from farrier.options.precision import rounding
from farrier.partition.plan_memory import GAP_BYTES
from farrier.partition.task import Task
from farrier.records.record import pairs
from farrier.space import Decisions, Space
from farrier.targets import Target
from farrier.targets.interface import Interface
from farrier_device.measurement import (
    Argument,
    Candidate,
    CandidateResult,
    CodeObject,
    Launch,
    MeasureRequest,
    Role,
    Status,
    TimingPolicy,
)
from farrier_device.program import HOST


@dataclasses.dataclass(frozen=True)
class Batch:
    """A request to measure candidates, and the candidates that could not be built.

    `places[i]` is the index of the result of candidate `i` among the results of the request; it is
    None if the candidate could not be built, and then `failures[i]` is its result.
    """

    request: MeasureRequest | None  # None if no candidate could be built.
    places: tuple[int | None, ...]
    failures: Mapping[int, CandidateResult]

    def results(self, measured: Sequence[CandidateResult]) -> list[CandidateResult]:
        """Return one result for each candidate, in order, given the results of the request."""
        return [
            self.failures[number] if place is None else measured[place]
            for number, place in enumerate(self.places)
        ]


class BatchBuilder:
    """A builder of batches of one task. Inputs and expected outputs are computed and stored
    once."""

    def __init__(
        self,
        task: Task,
        target: Target,
        blobs: Blobs,
        policy: TimingPolicy = TimingPolicy(),
        helpers: CompilePool | None = None,
        runs_in: str = HOST,
    ) -> None:
        """Create a builder for a task whose kernels run in the space `runs_in` of the target."""
        self._task = task
        self._target = target
        self._runs_in = runs_in
        self._machine = target.part(runs_in)
        self._blobs = blobs
        self._helpers = helpers or CompilePool(0, target, policy.threads)
        tolerance = max(policy.tolerance, rounding(task.region))
        self._policy = dataclasses.replace(policy, tolerance=tolerance)
        self._arguments: tuple[list[Argument], list[Argument]] | None = None
        self._packed: dict[tuple[str, Layout], Argument] = {}
        self._floor_ns: int | None = None

    def build(self, space: Space, candidates: Sequence[Decisions]) -> Batch:
        """Return a batch of `candidates`; a candidate that occurs twice is built once and measured
        twice."""
        packers: dict[tuple[Buffer, ...], Function] = {}
        distinct = dict.fromkeys(pairs(decisions) for decisions in candidates)
        build_inputs = {
            f"candidate{number}": BuildInput(
                space, dict(decisions), f"candidate{number}", runs_in=self._runs_in
            )
            for number, decisions in enumerate(distinct)
        }
        compiled = self._helpers.build(build_inputs, meanwhile=self._data)
        built = {
            decisions: self._candidate(compiled_one, packers)
            for decisions, compiled_one in zip(distinct, compiled.values(), strict=True)
        }
        objects = [
            compiled_one.content
            for compiled_one in compiled.values()
            if isinstance(compiled_one, Compiled)
        ]
        requested: list[Candidate] = []
        places: list[int | None] = []
        failures: dict[int, CandidateResult] = {}
        for number, decisions in enumerate(candidates):
            candidate = built[pairs(decisions)]
            if isinstance(candidate, CandidateResult):
                failures[number] = candidate
                places.append(None)
            else:
                places.append(len(requested))
                requested.append(candidate)
        if not requested:
            return Batch(None, tuple(places), failures)
        own = packing_objects(list(packers.values()), self._machine)
        is_steady = self._machine.backend.has_steady_clock
        if not is_steady:
            own.append(drift_object(self._machine))
        objects += [self._target.backend.enclosed(each, self._runs_in) for each in own]
        code = tuple(
            CodeObject(self._blobs.put(content), kind)
            for kind, content in self._target.backend.kernel_code(objects, self._target)
        )
        reference = None if is_steady else drift_candidate(self._machine, self._blobs)
        floors = ((self._floor(),),) * len(requested)
        request = MeasureRequest(code, tuple(requested), self._policy, reference, floors_ns=floors)
        return Batch(request, tuple(places), failures)

    def _candidate(
        self, compiled: Compiled | CompilerError, packers: dict[tuple[Buffer, ...], Function]
    ) -> Candidate | CandidateResult:
        """Return a compiled kernel with its arguments. If the compilation failed, return the result
        that reports this."""
        if isinstance(compiled, CompilerError):
            return CandidateResult(Status.REJECTED, message=str(compiled).partition("\n")[0])
        kernel = compiled.interface
        inputs, outputs = self._data()
        arguments: list[Argument] = []
        plain: list[tuple[Buffer, Argument]] = []
        packed: list[tuple[Buffer, Buffer]] = []
        values = (*self._task.region.inputs, *self._task.region.outputs)
        for buffer, value, plain_argument in zip(
            kernel.params, values, (*inputs, *outputs), strict=True
        ):
            cold = buffer.scope is MemoryScope.CONSTANT
            if buffer.layout == value.type.layout:
                arguments.append(dataclasses.replace(plain_argument, cold=cold))
                continue
            if not self._machine.backend.packs_on_device:
                arguments.append(
                    dataclasses.replace(self._laid_out(buffer, plain_argument), cold=cold)
                )
                continue
            source = as_argument(Buffer("", buffer.dtype, buffer.shape), f"{buffer.name}_plain")
            packed.append((source, as_argument(buffer)))
            plain.append((source, plain_argument))
            arguments.append(Argument(Role.SCRATCH, static(buffer.nbytes), cold=cold))
        params = [as_argument(buffer) for buffer in kernel.params]
        for number, argument in enumerate(self._own_memory(kernel)):
            arguments.append(argument)
            params.append(Buffer(f"own{number}", DType.U8, (argument.nbytes,)))
        arguments += [plain_argument for _, plain_argument in plain]
        prepare: tuple[Launch, ...] = ()
        if packed:
            params += [source for source, _ in plain]
            key = tuple(params)
            if key not in packers:
                packers[key] = packing_function(f"packing{len(packers)}", params, packed)
            prepare = (Launch(packers[key].name),)
        launches = self._machine.backend.launches(kernel)
        return Candidate(launches, tuple(arguments), prepare)

    def _laid_out(self, buffer: Buffer, source: Argument) -> Argument:
        """Return the argument for an input, packed into the layout of a kernel's buffer."""
        assert source.blob is not None
        assert buffer.layout is not None
        key = source.blob, buffer.layout
        if key not in self._packed:
            raw = self._blobs.path(source.blob).read_bytes()
            plain = np.frombuffer(raw, buffer.dtype.numpy).reshape(buffer.type.static_shape)
            packed = np.ascontiguousarray(buffer.layout.pack(plain)).tobytes()
            self._packed[key] = Argument(Role.INPUT, len(packed), blob=self._blobs.put(packed))
        return self._packed[key]

    def _floor(self) -> int:
        """Return a lower bound of the time of any candidate's call, in nanoseconds."""
        if self._floor_ns is None:
            task, target = self._task, self._machine
            program = lower_region(task.region, task.symbol, task.constant_inputs)
            self._floor_ns = target.backend.floor_ns(program, target, self._policy.threads)
        return self._floor_ns

    def _own_memory(self, kernel: Interface) -> list[Argument]:
        """Return the arguments for the temporary memory of a kernel, which follow its params."""
        arguments = list[Argument]()
        if kernel.slice_bytes != 0:
            step = static(kernel.slice_bytes) + GAP_BYTES
            arguments += sizes_argument((step,), self._blobs)
        if kernel.shared_bytes != 0:
            arguments.append(Argument(Role.SCRATCH, static(kernel.shared_bytes)))
        if kernel.slice_bytes != 0:
            arguments.append(Argument(Role.SCRATCH, self._policy.threads * step))
        return arguments

    def _data(self) -> tuple[list[Argument], list[Argument]]:
        """Return the arguments for the region's inputs and outputs, after storing their content as
        blobs."""
        if self._arguments is None:
            data: TaskData = make_task_data(self._task)
            inputs = [
                Argument(Role.INPUT, len(raw), blob=self._blobs.put(raw)) for raw in data.inputs
            ]
            outputs = [
                Argument(
                    Role.OUTPUT,
                    len(raw),
                    dtype=value.type.dtype.value,
                    expected=self._blobs.put(raw),
                    padding=padding,
                )
                for value, raw, padding in zip(
                    self._task.region.outputs, data.expected, data.padding, strict=True
                )
            ]
            self._arguments = inputs, outputs
        return self._arguments
