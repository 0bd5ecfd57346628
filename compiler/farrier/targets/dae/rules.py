"""The schedule space of a kernel: the tilings of its anchor that fit in the scratchpads."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from farrier.errors import CompilerError
from farrier.ir.expr import Buffer
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule, Step
from farrier.space import Decisions, Population, Space
from farrier.targets.dae.analysis import anchor_of
from farrier.targets.dae.anchor import Anchor
from farrier.targets.dae.costs import Costs
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.epilogue import Epilogue, epilogue_of
from farrier.targets.dae.images import UnfitError
from farrier.targets.dae.program import Program
from farrier.targets.dae.steps import Channels
from farrier.targets.dae.stream import instructions_of
from farrier.targets.dae.tiles import Tiling, knobs
from farrier.targets.dae.tokens import prove

RULE = RuleId("dae_product", version=1)
RULES = frozenset({RULE})
_HINT = "--target host compiles for the processor"


@dataclasses.dataclass(frozen=True, slots=True)
class StreamFunction(Function):
    """A kernel whose code is an instruction stream. Its loops are the specification of the
    result."""

    code: Program | None = None


def why_not(program: TensorProgram | Function, accelerator: Accelerator) -> str:
    """Return the reason why an accelerator cannot compute a kernel, as a clause; "" if it can."""
    try:
        _Kernel(program, accelerator)
    except UnfitError as error:
        return str(error)
    return ""


def space(program: TensorProgram | Function, accelerator: Accelerator) -> Space:
    """Return the schedule space of a kernel. Raises CompilerError if the accelerator cannot compute
    it."""
    try:
        return _Kernel(program, accelerator).space
    except UnfitError as error:
        raise CompilerError(str(error), hint=_HINT) from None


class _Tilings(Space):
    """The space of tilings. Candidates are ranked by the estimate alone, since the shipped learned
    cost model was trained on processors only."""

    def is_learned(self, population: Population) -> npt.NDArray[np.bool_]:
        return np.zeros(len(population), bool)


class _Kernel:
    """A program analysed as an anchor and its epilogue. Construction raises UnfitError if it is not
    one."""

    def __init__(self, program: TensorProgram | Function, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.anchor: Anchor = anchor_of(program, accelerator)
        assert isinstance(program, TensorProgram)
        self.program = program
        self.epilogue: Epilogue = epilogue_of(program, self.anchor, accelerator.matrix.outer)
        arguments = len(program.inputs) + len(program.outputs)
        most = 1 << accelerator.fields.argument
        if arguments > most:
            raise UnfitError(f"it has {arguments} arguments, and instructions name {most}")
        costs = Costs(self.anchor, self.epilogue, accelerator)
        self.space = _Tilings(
            RULE, knobs(self.anchor), costs.allowed, costs.estimate, self._schedule
        )
        self.space.program = program
        try:
            self.space.candidates()
        except CompilerError:
            raise UnfitError("no tile of it fits the scratchpads and the fields") from None

    def _schedule(self, decisions: Decisions) -> Schedule:
        tiling = Tiling.of(decisions)
        schedule = Schedule(to_loops(self.program))
        if (weights := self.anchor.weights) is not None:
            constant = self.program.inputs[weights.position]
            schedule.transform_layout(constant.name, weights.layout)
        for operand in self.epilogue.operands:
            if isinstance(operand, Channels) and operand.layout is not None:
                constant = self.program.inputs[operand.position]
                schedule.transform_layout(constant.name, operand.layout)
        instructions = instructions_of(self.anchor, self.epilogue, tiling, self.accelerator)
        prove(instructions, self.accelerator)
        function = schedule.function
        nbytes = tuple(_bytes(buffer) for buffer in function.params)
        code = Program(self.accelerator, instructions, nbytes)
        fields = {
            field.name: getattr(function, field.name) for field in dataclasses.fields(function)
        }
        schedule.function = StreamFunction(**fields, code=code)
        words = tuple(f"{name}={value}" for name, value in dataclasses.asdict(tiling).items())
        schedule.trace = schedule.trace.then(Step("stream", words))
        return schedule


def _bytes(buffer: Buffer) -> int:
    nbytes = buffer.nbytes
    assert isinstance(nbytes, int)
    return nbytes
