"""The stages of compiling a kernel: schedule → scheduled loops → final loops (`lower`) → code
(`codegen`).

Every kernel passes through these stages, whether its schedule is a default, tuned, for a hot size
or a candidate of a search, and in whichever process it is compiled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from farrier.compile_pool.choose import ScheduledTask, of_kernel
from farrier.errors import CompilerError
from farrier.ir.dim import Undecided
from farrier.ir.loop import Function
from farrier.lower.runner import LoopPassRun, run_loop_passes
from farrier.space import Decisions, Space
from farrier.targets import Target
from farrier.targets.interface import Interface
from farrier_device.program import HOST

# Receives the loops of a kernel, or the text of its instructions, by the kernel's name and that of
# the pass.
Note: TypeAlias = Callable[[str, str, Function | str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class BuildInput:
    """A kernel to compile: a schedule, as decisions in a space, and the name of the function.
    `loops` are the final loops if the kernel is lowered already. `origin` names the model's nodes.
    """

    space: Space
    decisions: Decisions
    name: str
    loops: Function | None = None
    origin: str = ""
    runs_in: str = HOST  # The memory space in which the kernel runs.

    @classmethod
    def of(cls, choice: ScheduledTask) -> BuildInput:
        """Return the input to compile the chosen schedule of a task."""
        return cls(
            choice.space,
            choice.decisions,
            choice.program.name,
            origin=choice.origin,
            runs_in=choice.site.space,
        )

    def machine(self, target: Target) -> Target:
        """Return the part of a target on which the kernel runs."""
        return target.part(self.runs_in)


@dataclasses.dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel as machine code: `content` is an object file that defines it, possibly along with
    other kernels."""

    interface: Interface
    content: bytes


def lower(
    build_input: BuildInput, target: Target, note: Note = lambda folder, name, ir: None
) -> Function:
    """Return the final loops of a kernel: its scheduled loops after the loop passes of the backend
    for the part of the target on which it runs. `note` receives the scheduled loops, and the loops
    after each pass that changed them. Raises CompilerError."""
    if build_input.loops is not None:
        return build_input.loops
    name = build_input.name

    def noted(run: LoopPassRun) -> None:
        if run.changed:
            note(name, run.name, run.after)

    try:
        schedule = build_input.space.schedule(build_input.decisions)
        loops = dataclasses.replace(schedule.function, name=name)
        note(name, "schedule", loops)
        machine = build_input.machine(target)
        return run_loop_passes(loops, machine.backend.loop_passes(machine), noted)
    except (CompilerError, Undecided) as error:
        raise of_kernel(error, name, build_input.origin) from error


def codegen(functions: Sequence[Function], target: Target, runs_in: str = HOST) -> list[Compiled]:
    """Compile kernels that run in one memory space to one object file for the target; their names
    must differ. Raises CompilerError."""
    machine = target.part(runs_in)
    (content,) = machine.backend.compile(functions, machine)
    content = target.backend.enclosed(content, runs_in)
    interfaces = map(machine.backend.interface, functions)
    return [Compiled(dataclasses.replace(each, space=runs_in), content) for each in interfaces]


def lowered(
    choices: Mapping[str, ScheduledTask], target: Target, note: Note | None = None
) -> dict[str, BuildInput]:
    """Return the build input of every choice.

    With a `note`, the kernels are lowered in this process, one after the other. Otherwise the
    process that compiles a kernel lowers it, since passing loops between processes, or waiting
    until all are lowered, would take longer. Raises CompilerError.
    """
    build_inputs = {key: BuildInput.of(choice) for key, choice in choices.items()}
    if note is None:
        return build_inputs
    return {
        key: dataclasses.replace(each, loops=lower(each, target, note))
        for key, each in build_inputs.items()
    }


def note_instructions(build_inputs: Iterable[BuildInput], target: Target, note: Note) -> None:
    """Call `note` with the instructions of each kernel as text, and again after each pass that
    changes them. Since the text cannot be parsed, the instructions are generated once more when the
    kernel is compiled."""
    for each in build_inputs:
        machine = each.machine(target)
        for name, text in machine.backend.instruction_texts(lower(each, target), machine).items():
            note(each.name, name, text)
