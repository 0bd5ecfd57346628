"""The C header of a model: the offsets of its inputs and outputs in one block of memory (the
arena), and the declaration of the function that runs it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

from farrier.artifact.manifest import Manifest, TensorSpec

ALIGNMENT = 64
"""What a model's memory begins at a multiple of, in bytes, as its parts do."""

# The C types of elements. Floating-point types that C lacks are passed as their bits.
_TYPES = {
    "f64": "double",
    "f32": "float",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "bool": "uint8_t",
    "string": "uint32_t",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Arena:
    """The block of memory that a C program provides for a model. It holds each input, each output,
    the workspace, and an array of 64-bit integers that the entry point takes as its last argument.

    `inputs`, `outputs` and `workspace` are sizes in bytes; `sizes` is the number of integers in the
    array. A tensor may be stored within the workspace instead of in memory of its own. `lent` has,
    for each input and then each output, the tensor's offset in the workspace, or -1 if the tensor
    has memory of its own.
    """

    inputs: Sequence[int]
    outputs: Sequence[int]
    workspace: int
    sizes: int = 0
    lent: Sequence[int] = ()

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets in the arena of the inputs, the outputs, the workspace and the 64-bit sizes,
        in that order; the last number is the size of the whole arena in bytes."""
        sizes = (*self.inputs, *self.outputs, self.workspace, 8 * self.sizes)
        lent = (*(self.lent or [-1] * (len(sizes) - 2)), -1, -1)
        at, offsets = 0, []
        for nbytes, place in zip(sizes, lent, strict=True):
            offsets.append(at)
            at += 0 if place >= 0 else -(-nbytes // ALIGNMENT) * ALIGNMENT
        workspace = offsets[-2]
        within = [workspace + place if place >= 0 else -1 for place in lent]
        return (*(w if w >= 0 else o for w, o in zip(within, offsets, strict=True)), at)

    @property
    def keeps_inputs(self) -> bool:
        """True if running the model leaves the inputs unchanged: no input shares its memory with
        other values."""
        return all(place < 0 for place in self.lent[: len(self.inputs)])

    @property
    def nbytes(self) -> int:
        """The size of the arena in bytes."""
        return self.offsets[-1]

    def slots(self) -> list[str]:
        """Return the arguments of the entry point as C expressions of two variables: the addresses
        of the inputs, outputs, workspace and sizes are relative to the pointer `base`, and the
        address of the packed parameters is the variable `parameters`."""
        *places, workspace, sizes, _ = self.offsets
        slots = [f"(uintptr_t)(base + {offset})" for offset in places]
        slots += ["(uintptr_t)parameters", f"(uintptr_t)(base + {workspace})"]
        return [*slots, f"(uintptr_t)(base + {sizes})"]


AROUND_ENTRY = f"""\
__asm__(".pushsection .rodata.parameters,\\"a\\"\\n"
        ".balign {ALIGNMENT}\\n"
        ".type parameters, %object\\n"
        "parameters: .incbin \\"params.bin\\"\\n"
        ".size parameters, . - parameters\\n"
        ".popsection");
extern const uint8_t parameters[] __attribute__((visibility("hidden")));

typedef void body(void *context, int64_t begin, int64_t end, int64_t worker);
typedef int32_t entry_point(const uint64_t *arguments, const void *pool);

static void run_all(const void *pool, body *run, void *context, int64_t extent) {{
  run(context, 0, extent, 0);
}}

static const struct {{
  void *parallel_for;
  uint64_t threads;
}} pool __attribute__((aligned(8))) = {{(void *)run_all, 1}};
"""
"""The C that the glue of every model begins with: its parameters, the type of an entry point, and a
pool of one thread, which runs parallel loops."""


def identifier(text: str) -> str:
    """Return a valid C identifier derived from `text`."""
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()
    return word if word[:1].isalpha() else f"m_{word}".rstrip("_")


def header(name: str, manifest: Manifest, arena: Arena, machine: str) -> str:
    """Return the text of the C header for a model. It declares `<name>_run` and the functions that
    return the addresses of the inputs and outputs in the arena. `machine` is the name of the
    target, for a comment."""
    upper = name.upper()
    inputs = "\n".join(_accessors(name, "input", manifest.inputs, arena.offsets))
    outputs_at = arena.offsets[len(arena.inputs) :]
    outputs = "\n".join(_accessors(name, "output", manifest.outputs, outputs_at))
    kept = "but for the inputs" if arena.keeps_inputs else "the inputs too"
    return f"""\
/* {manifest.name}, compiled by Farrier for {machine}. Nothing is allocated: the caller has the
   arena, {arena.nbytes} bytes at a multiple of {ALIGNMENT}. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_ARENA_BYTES {arena.nbytes}
#define {upper}_ARENA_ALIGNMENT {ALIGNMENT}

{inputs}

{outputs}

/* Run the model: the inputs in the arena become outputs. What else lies there is lost,
   {kept}. Returns 0, or a code of failure. */
int32_t {name}_run(void *arena);

#ifdef __cplusplus
}}
#endif
"""


def _accessors(
    name: str, side: str, specs: Iterable[TensorSpec], offsets: Iterable[int]
) -> Iterator[str]:
    """Yield the lines of one C function for each tensor in `specs`. The function is called
    `<name>_<side>_<tensor>`, with `side` either "input" or "output", and returns the address of the
    tensor: the start of the arena plus the tensor's entry in `offsets`."""
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
