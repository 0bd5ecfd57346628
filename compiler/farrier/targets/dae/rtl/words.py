"""The fields of instruction words as hardware signals."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth import Value

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.instructions import MODULE_OF, Kind, Module, formats


def fields_of(word: Value, kind: Kind, accelerator: Accelerator) -> Mapping[str, Value]:
    """Return the fields of the instruction word `word`, by name, as slices of the signal. `kind` is
    the kind of the instruction."""
    parts, at = {}, 0
    for field in formats(accelerator)[kind]:
        part = word[at : at + field.bits]
        parts[field.name] = part.as_signed() if field.signed else part
        at += field.bits
    return parts


def bits_of(module: Module, accelerator: Accelerator) -> int:
    """Return the width in bits of the widest instruction of a module."""
    table = formats(accelerator)
    return max(
        sum(field.bits for field in table[kind]) for kind, of in MODULE_OF.items() if of is module
    )
