"""The linker of a model for microcontrollers: it combines the kernels and the entry point into one
object file for a firmware."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import ClassVar

from farrier.artifact.code import CodeObject, ModelCode
from farrier.errors import UsageError
from farrier.ir.dim import typical
from farrier.llvm import joined_object
from farrier.partition.program import DriverProgram, notes_of
from farrier.targets.bare.arena import lent_offsets
from farrier.targets.bare.backend import OBJECT, BareTarget
from farrier.targets.bare.elf import sections_of
from farrier.targets.bare.fit import check_fit
from farrier.targets.bare.image import linked_image
from farrier.targets.bare.part import BarePart
from farrier.targets.bare.stack import stack_bytes
from farrier.targets.cpu.assemble import Plan
from farrier.targets.linked import LinkedModel
from farrier.targets.target import Target
from farrier_device.boards.image import IMAGE

_PATH = "code/model.o"


class BarePlan(Plan):
    """The plan of a model whose kernels remain LLVM text until the whole model is compiled to one
    object. Inputs and outputs may share workspace memory with other values."""

    lends: ClassVar = True

    def measured_entry(self, target: Target, name: str) -> bytes:
        return self.measured_text(name).encode()


def check_sizes(program: DriverProgram) -> None:
    """Raise UsageError if the program has sizes that are known only at run time."""
    if program.counted or program.dims:
        raise UsageError(
            "the values of inputs decide sizes of this model, and a microcontroller's memory is "
            "planned when a model is compiled",
            hint="leave out the operators whose results have such sizes, as NonZero's",
        )


def assemble(planned: Plan, objects: Sequence[bytes], target: BareTarget) -> LinkedModel:
    """Return the linked code of a model. Raises CompilerError if the model does not fit the board's
    memories."""
    params = planned.arena.pack()
    texts = [content.decode() for content in objects]
    digest = hashlib.sha256("".join(texts).encode() + params.digest.encode()).hexdigest()
    # The name is unique, so that several models can be linked into one firmware.
    name = f"farrier_model_{digest[:16]}"
    entry = planned.entry(name)
    content = joined_object([entry.text, *texts], [name], target.llvm)
    part = BarePart(
        core=target.tune,
        entry=name,
        inputs=planned.inputs,
        outputs=planned.outputs,
        workspace=typical(planned.memory.workspace_bytes),
        params=planned.params_bytes,
        sizes=len(planned.sizes),
        lent=lent_offsets(planned.program, planned.memory),
        notes=notes_of(planned.program),
    )
    stack = stack_bytes(part, content, bytes(params.view), target)
    check_fit(planned, part, sections_of(content).flash_bytes, stack, target)
    image = linked_image(target.tune, content, [name])
    return LinkedModel(
        code=ModelCode((CodeObject(_PATH, OBJECT, (name,), content),), part.to_json()),
        library=CodeObject(_PATH, IMAGE, (name,), image.to_bytes()),
        params=params,
        bytes_of=planned.arena.bytes_of,
        memories=(planned.memory,),
        dims=planned.dims,
        capacities=planned.capacities,
        counted=planned.counted,
        checks=entry.checks,
        sizes=planned.sizes,
        calls=planned.calls,
        entries=(name,),
    )
