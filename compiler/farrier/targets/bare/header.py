"""The C header of a model: where its inputs and outputs lie in an arena, and the call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from farrier.artifact.manifest import Manifest, TensorSpec
from farrier.targets.bare.part import ALIGNMENT, BarePart

# C's types of elements; floats that C does not have are their bits.
_TYPES = {
    "f64": "double",
    "f32": "float",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "bool": "uint8_t",
    "string": "uint32_t",
}


def identifier(text: str) -> str:
    """Return a C identifier that is like a name."""
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()
    return word if word[:1].isalpha() else f"m_{word}".rstrip("_")


def header(name: str, manifest: Manifest, part: BarePart) -> str:
    """Return the header NAME.h of a model."""
    upper = name.upper()
    inputs = "\n".join(_accessors(name, "input", manifest.inputs, part.offsets))
    outputs_at = part.offsets[len(part.inputs) :]
    outputs = "\n".join(_accessors(name, "output", manifest.outputs, outputs_at))
    return f"""\
/* {manifest.name}, compiled by Farrier for {part.core}. No library is needed, and nothing is
   allocated: the caller has the arena, {part.arena_bytes} bytes at a multiple of {ALIGNMENT}. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_ARENA_BYTES {part.arena_bytes}
#define {upper}_ARENA_ALIGNMENT {ALIGNMENT}

{inputs}

{outputs}

/* Run the model: the inputs in the arena become outputs. What else lies there is lost, but for the
   inputs. Returns 0, or a code of failure. */
int32_t {name}_run(void *arena);

#ifdef __cplusplus
}}
#endif
"""


def _accessors(
    name: str, side: str, specs: Iterable[TensorSpec], offsets: Iterable[int]
) -> Iterator[str]:
    """Yield the functions that return where each input, or each output, lies."""
    taken: set[str] = set()
    for number, (spec, offset) in enumerate(zip(specs, offsets, strict=False)):
        word = identifier(spec.name)
        word = f"{word}_{number}" if word in taken else word
        taken.add(word)
        shape = " × ".join(map(str, spec.typical_shape)) or "a scalar"
        kind = _c_type(spec.dtype)
        yield f"/* {spec.name!r}: {spec.dtype}, {shape}. */".replace("*/ ", "")
        yield f"static inline {kind} *{name}_{side}_{word}(void *arena) {{"
        yield f"  return ({kind} *)((uint8_t *)arena + {offset});"
        yield "}"


def _c_type(dtype: str) -> str:
    if dtype in _TYPES:
        return _TYPES[dtype]
    sign = "u" if dtype[0] == "u" else ""
    return f"{sign}int{max(8, int(dtype[1:]))}_t"
