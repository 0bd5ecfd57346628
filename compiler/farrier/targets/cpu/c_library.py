"""The export of a model as a shared library for C programs on Linux."""

from __future__ import annotations

import tempfile
from pathlib import Path

from farrier.artifact.manifest import Manifest, TensorSpec
from farrier.errors import UsageError
from farrier.llvm import zig
from farrier.targets.c_header import AROUND_ENTRY, Arena, header, identifier
from farrier.targets.cpu.part import CpuPart
from farrier.targets.exporting import Exportable, Exported

# The oldest supported glibc, that of Debian 10.
_GLIBC = "2.28"
_EXAMPLE = """\
/* cc main.c -L. -l{name} -Wl,-rpath,'$ORIGIN' */
#include <stdlib.h>
#include "{name}.h"

int main(void) {{
  void *arena = aligned_alloc({upper}_ARENA_ALIGNMENT, {upper}_ARENA_BYTES);
  /* Fill the inputs here, then read the outputs: {name}.h has a function for each. */
  const int code = {name}_run(arena);
  free(arena);
  return code;
}}
"""


def export(model: Exportable, form: str) -> Exported:
    """Return the files of the C library: header and shared libraries. Raises UsageError for a model
    with open (dynamic) sizes, and if `form` is not "c"."""
    manifest, code = model.manifest, model.code
    if form != "c":
        raise UsageError(f"code for {manifest.machine} has no form {form!r}", hint="--format c")
    _check_sizes(manifest)
    part = CpuPart.of_json(code.backend)
    arena = Arena(
        [_nbytes(spec) for spec in manifest.inputs],
        [_nbytes(spec) for spec in manifest.outputs],
        part.workspace_bytes,
        len(manifest.sizes),
    )
    word = identifier(model.name)
    [library] = code.objects
    files = {
        f"lib{word}.so": _library(word, manifest, part, arena, bytes(model.params)),
        f"lib{word}_kernels.so": library.content,
        f"{word}.h": header(word, manifest, arena, manifest.machine).encode(),
        "main.c": _EXAMPLE.format(name=word, upper=word.upper()).encode(),
    }
    notes = (
        f"memory: {arena.nbytes:,} bytes of arena, {part.workspace_bytes:,} of them workspace",
        "a call runs on the thread of its caller alone",
    )
    return Exported(files, notes)


def _check_sizes(manifest: Manifest) -> None:
    names = [dim.name for dim in manifest.dims]
    if names or manifest.capacities or manifest.counted:
        sizes = ", ".join(names) or "values of inputs decide some"
        raise UsageError(
            f"sizes of {manifest.name} are open ({sizes}), and a C program lends fixed memory",
            hint="compile it with --shape, which says what they are",
        )


def _nbytes(spec: TensorSpec) -> int:
    count = 1
    for extent in spec.typical_shape:
        count *= extent
    return count * spec.element.nbytes


def _library(name: str, manifest: Manifest, part: CpuPart, arena: Arena, params: bytes) -> bytes:
    """Return a shared library that contains the C function `NAME_run` and the model's parameters.
    At run time, the function loads a second shared library, which contains the model's kernels."""
    with tempfile.TemporaryDirectory(prefix="farrier-c-") as at:
        folder = Path(at)
        (folder / "params.bin").write_bytes(params)
        (folder / "glue.c").write_text(_glue(name, manifest, part, arena))
        words = ["cc", "-target", f"{manifest.architecture}-linux-gnu.{_GLIBC}", "-O2", "-shared"]
        words += ["-fPIC", "-fno-sanitize=all", f"-Wl,-soname,lib{name}.so", "glue.c"]
        zig.run([*words, "-o", "library.so"], folder, "the library does not link")
        return (folder / "library.so").read_bytes()


def _glue(name: str, manifest: Manifest, part: CpuPart, arena: Arena) -> str:
    sizes_at = arena.offsets[-2]
    sizes = ", ".join(map(str, manifest.sizes)) or "0"
    slots = ",\n    ".join(arena.slots())
    return f"""\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

{AROUND_ENTRY}
static entry_point *model;

/* Other models have an entry point of the same name, so it is looked up in the model's own library,
   which lies beside this one. */
__attribute__((constructor)) static void load(void) {{
  Dl_info own;
  char path[4096];
  if (!dladdr((void *)run_all, &own)) return;
  const char *end = strrchr(own.dli_fname, '/');
  const int folder = end ? (int)(end - own.dli_fname) + 1 : 0;
  snprintf(path, sizeof path, "%.*slib{name}_kernels.so", folder, own.dli_fname);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library) model = (entry_point *)dlsym(library, "{part.entry}");
}}

int32_t {name}_run(void *arena) {{
  static const int64_t sizes[] = {{{sizes}}};
  uint8_t *const base = arena;
  if (!model) return INT32_MIN; /* the library of the kernels is not there */
  memcpy(base + {sizes_at}, sizes, {8 * len(manifest.sizes)});
  const uint64_t arguments[] = {{
    {slots}}};
  return model(arguments, &pool);
}}
"""
