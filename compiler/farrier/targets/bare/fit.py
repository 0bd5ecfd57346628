"""The check that a model fits in its board's memories. The error of a model that does not fit
contains advice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from farrier.errors import CompilerError, StackError
from farrier.ir.dim import typical
from farrier.ir.graph import Value
from farrier.ir.types import DType
from farrier.partition.program import Call, DriverProgram, calls_in, notes_of
from farrier.targets.bare.backend import BareTarget
from farrier.targets.bare.boards import BOARDS
from farrier.targets.bare.layers import layer_name
from farrier.targets.bare.part import BarePart
from farrier.targets.cpu.assemble import Plan


def check_fit(
    planned: Plan, part: BarePart, code_bytes: int, stack_bytes: int, target: BareTarget
) -> None:
    """Raise CompilerError if the model needs more flash or RAM than the board has, and StackError
    if it would fit without its stack. The error names the layer that takes the largest part, and
    suggests changes. `stack_bytes` is 0 if the stack was not measured."""
    ram, flash = part.arena.nbytes + stack_bytes, part.params + code_bytes
    lacks: list[str] = []
    hints: list[str] = []
    if target.ram_bytes and ram > target.ram_bytes:
        even = ", even with its first layers in patches" if notes_of(planned.program) else ""
        stack = f", {stack_bytes:,} of them for the stack" if stack_bytes else ""
        lacks.append(_lack("RAM", ram, target.ram_bytes) + stack + even + _busiest(planned))
        hints += _smaller_values(planned, ram, target)
    lacks_flash = target.flash_bytes and flash > target.flash_bytes
    if lacks_flash:
        lacks.append(_lack("flash", flash, target.flash_bytes) + _heaviest(planned.program))
        hints += _smaller_weights(planned.program)
    if not lacks:
        return
    message = f"the model does not fit {target.core}: it needs {'; and '.join(lacks)}"
    hint = ", or ".join((*dict.fromkeys(hints), _roomy(ram, flash)))
    if part.arena.nbytes <= target.ram_bytes and not lacks_flash:
        raise StackError(message, hint=hint, stack_bytes=stack_bytes)
    raise CompilerError(message, hint=hint)


def _lack(memory: str, needed: int, there: int) -> str:
    return f"{needed:,} bytes of {memory}, {needed - there:,} more than the board has"


def _busiest(planned: Plan) -> str:
    """Return the text about the layer at which the most bytes are alive."""
    call, program = planned.memory.busiest, planned.program
    if call is None:
        return ""
    names = {program.home(constant.value).name for constant in program.constants}
    read = _nbytes(value for value in call.inputs if program.home(value).name not in names)
    written = _nbytes(call.outputs)
    others = planned.memory.lower_bound - read - written
    kept = f" while {others:,} others are kept" if others > 0 else ""
    layer = layer_name(call.origin)
    return f" (at layer {layer}, which reads {read:,} bytes and writes {written:,}{kept})"


def _heaviest(program: DriverProgram) -> str:
    """Return the text about the layer with the most bytes of weights."""
    call, nbytes = max(_weights(program), key=lambda pair: pair[1], default=(None, 0))
    if call is None:
        return ""
    return f" (layer {layer_name(call.origin)} has {nbytes:,} bytes of weights)"


def _weights(program: DriverProgram) -> Iterator[tuple[Call, int]]:
    """Yield each call and the bytes of its constant inputs."""
    names = {constant.value.name for constant in program.constants}
    for call in calls_in(program.steps):
        yield call, _nbytes(value for value in call.inputs if value.name in names)


def _smaller_values(planned: Plan, needed: int, target: BareTarget) -> Iterator[str]:
    """Yield suggestions, as text, for changes of the model that would reduce the RAM it needs."""
    call = planned.memory.busiest
    values: Sequence[Value] = () if call is None else (*call.inputs, *call.outputs)
    if any(_is_float(value) for value in values):
        yield "quantize it to int8, which takes a quarter of the bytes"
    share = target.ram_bytes / needed
    yield f"make its inputs smaller, so that this layer takes at most {share:.0%} of these bytes"


def _smaller_weights(program: DriverProgram) -> Iterator[str]:
    """Yield suggestions, as text, for changes of the model that would reduce the flash it needs."""
    if any(_is_float(constant.value) for constant in program.constants):
        yield "quantize it to int8, which takes a quarter of the bytes"
    yield "use fewer channels in the layer with the most weights"


def _roomy(ram: int, flash: int) -> str:
    """Return advice, as text, to use the smallest known boards that have at least `ram` and `flash`
    bytes of memory."""
    fitting = {
        name: board.ram.nbytes
        for name, board in BOARDS.items()
        if board.emulator is None and board.ram.nbytes >= ram and board.flash.nbytes >= flash
    }
    if not fitting:
        return "split it: no board in `farrier targets` has that much"
    names = sorted(fitting, key=lambda name: fitting[name])[:2]
    return "take a larger board: " + " or ".join(f"{n} ({fitting[n]:,} of RAM)" for n in names)


def _is_float(value: Value) -> bool:
    return value.type.dtype is DType.F32 and typical(value.type.nbytes) > 1024


def _nbytes(values: Iterable[Value]) -> int:
    return sum({value.name: typical(value.type.nbytes) for value in values}.values())
