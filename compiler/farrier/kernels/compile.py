"""The way of a kernel: its schedule → scheduled loops (`lower`) → machine code (`codegen`).

Every kernel goes it, be its schedule a default, tuned, for a hot size or a candidate of a search,
and whichever process it is in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farrier.errors import CompilerError
from farrier.ir.dim import Undecided
from farrier.ir.loop import Function
from farrier.kernels.choose import ScheduledTask, of_kernel
from farrier.space import Decisions, Space
from farrier.targets import Target, backend_of
from farrier.targets.interface import Interface


@dataclasses.dataclass(frozen=True, slots=True)
class BuildInput:
    """A kernel to compile: one schedule of a space, and the name of the function. `loops` are what
    it is lowered to, where that is done already. `origin` names the model's nodes."""

    space: Space
    decisions: Decisions
    name: str
    loops: Function | None = None
    origin: str = ""

    @classmethod
    def of(cls, choice: ScheduledTask) -> BuildInput:
        """The kernel of a task as it is in the model."""
        return cls(choice.space, choice.decisions, choice.program.name, origin=choice.origin)


@dataclasses.dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel as machine code: `content` is an object that defines it, maybe beside others."""

    interface: Interface
    content: bytes


def lower(build_input: BuildInput) -> Function:
    """The scheduled loops of a kernel, ready for code generation. Raises CompilerError."""
    if build_input.loops is not None:
        return build_input.loops
    try:
        loops = build_input.space.build(build_input.decisions)
    except (CompilerError, Undecided) as error:
        raise of_kernel(error, build_input.name, build_input.origin) from error
    return dataclasses.replace(loops, name=build_input.name)


def codegen(functions: Sequence[Function], target: Target) -> list[Compiled]:
    """Some kernels as one object; their names must differ. Raises CompilerError."""
    backend = backend_of(target)
    (content,) = backend.compile(functions, target)
    return [Compiled(backend.interface(function), content) for function in functions]


def lowered(choices: Mapping[str, ScheduledTask], *, here: bool) -> dict[str, BuildInput]:
    """The kernel of every choice, lowered `here`, one after the other. Otherwise the process that
    compiles a kernel lowers it first: to hand loops from process to process, or to wait until all
    are made, takes longer. Raises CompilerError."""
    build_inputs = {key: BuildInput.of(choice) for key, choice in choices.items()}
    if not here:
        return build_inputs
    return {key: dataclasses.replace(one, loops=lower(one)) for key, one in build_inputs.items()}
