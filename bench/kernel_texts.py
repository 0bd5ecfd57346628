"""`python -m bench.kernel_texts`: list hashes of the code that the compiler generates for the
models, to compare commits.

    python -m bench.kernel_texts -o before.txt
    python -m bench.kernel_texts --against before.txt       exit status 1 where a kernel differs

Each line describes a kernel: target, model, symbol, rule, hash of its code, and its knobs. Nothing
is executed: each kernel has the schedule that the analytic model ranks first, for machines that are
defined here, and is compiled as a separate module. The hash covers the sections of code, constants
and relocations. Other versions of llvmlite and numpy may yield other lines; other machines do not.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import hashlib
import multiprocessing
import os
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.workloads import NAMES, Shapes, workload
from farrier.compile_pool import BuildInput, lower
from farrier.compile_pool.choose import ScheduledTask
from farrier.errors import FarrierError, UsageError
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import model_of
from farrier.model_tuning.hot import (
    for_any_size,
    hot_sizes,
    shapes_at,
    with_shared_kernels,
    with_shared_panels,
)
from farrier.model_tuning.variant import Variant, make_variant
from farrier.options import TYPICAL_ALONE
from farrier.options.precision import Precision
from farrier.options.shapes import GivenShape
from farrier.passes import Settings, prepare
from farrier.targets import parse_target
from farrier.targets.cpu.codegen import compile_functions
from farrier.targets.cpu.target import CpuTarget, as_cpu

_EXTENSIONS = ("amx_bf16", "amx_tile", "avx512_bf16", "avx512_vnni")
_IN_BF16 = ("resnet18", "bert_base", "squeezenet")
_OPENED = ("squeezenet", "mobilenet_v2")
_HASHED = (b".text", b".rodata", b".rela.text", b".rela.rodata")
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_FIELDS = 6  # of a line


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A model and the machine for which it is compiled; `is_open` leaves its dims open, as
    exporters write them."""

    model: str
    level: str
    precision: Precision = Precision.F32
    is_open: bool = False

    @property
    def target(self) -> CpuTarget:
        """The target: a machine with two cores and fixed caches, independent of this machine."""
        return dataclasses.replace(
            as_cpu(parse_target(self.level)),
            features=_EXTENSIONS if self.level == "x86-64-v4" else (),
            cores=2,
            l1_bytes=32 << 10,
            l2_bytes=1 << 20,
            l3_bytes=32 << 20,
            tune="",
        )

    @property
    def words(self) -> str:
        name = f"{self.model}-open" if self.is_open else self.model
        return f"{self.level}-{self.precision} {name}"


def cases(models: Sequence[str]) -> list[Case]:
    """Return every model for every x86-64 level in f32, then some models in bf16, and some with
    open dims."""
    levels = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    in_f32 = [Case(model, level) for model in models for level in levels]
    in_f32 += [Case(m, "x86-64-v4", Precision.BF16) for m in models if m in _IN_BF16]
    return in_f32 + [Case(m, "x86-64-v3", is_open=True) for m in models if m in _OPENED]


def lines(case: Case) -> list[str]:
    """Compile a case and return one line per kernel. Raises FarrierError."""
    source = workload(case.model)
    data = source.build()
    if case.is_open and source.opened is not None:
        data = source.opened()
    return kernel_lines(case, data, {} if case.is_open else source.shapes)


def kernel_lines(case: Case, data: bytes, shapes: Mapping[str, GivenShape] | Shapes) -> list[str]:
    """Compile an ONNX file for a case and return one line per kernel. Raises FarrierError."""
    target = case.target
    collected = set()
    for choice in _choices(case, data, shapes):
        objects = compile_functions([lower(BuildInput.of(choice), target)], target)
        knobs = ",".join(f"{name}={value}" for name, value in sorted(choice.decisions.items()))
        code = hashlib.sha256(b"".join(map(code_of, objects))).hexdigest()[:16]
        rule = choice.space.rule.name.replace(" ", "_")
        collected.add(f"{case.words} {choice.program.name} {rule} {code} {knobs or '-'}")
    return sorted(collected)


def _choices(
    case: Case, data: bytes, shapes: Mapping[str, GivenShape] | Shapes
) -> Iterator[ScheduledTask]:
    """Yield the scheduled tasks that `compile_model` would pass to the code generator, without
    tuning or records."""
    model, target = model_of(data), case.target
    settings = Settings(target, target.cores, precision=case.precision)
    imported = import_model(model, shapes)
    hot = hot_sizes(imported.dims, TYPICAL_ALONE) if imported.dims else []
    shared = for_any_size(settings, hot)
    general = make_variant(prepare(imported.graph, settings), shared)
    yield from general.choices.values()
    for sizes in hot:
        at_sizes = import_model(model, shapes_at(imported, sizes))
        own: Variant = make_variant(prepare(at_sizes.graph, settings), settings)
        own = with_shared_kernels(with_shared_panels(own, general), general, sizes)
        yield from own.choices.values()


def code_of(content: bytes) -> bytes:
    """Return the sections of a 64-bit little-endian ELF object with code, constants and
    relocations, each after its name (System V ABI, chapter 4). Raises UsageError for other
    bytes."""
    if content[:6] != b"\x7fELF\x02\x01":
        raise UsageError("an object is not 64-bit little-endian ELF")
    (start,) = struct.unpack_from("<Q", content, 0x28)
    size, count, names = struct.unpack_from("<HHH", content, 0x3A)
    headers = [_SECTION.unpack_from(content, start + size * n) for n in range(count)]
    strings = headers[names][4]
    kept = []
    for name, _, _, _, offset, length, *_ in headers:
        text = content[strings + name : content.index(b"\0", strings + name)]
        if text.startswith(_HASHED):
            kept.append(text + b"\0" + content[offset : offset + length])
    return b"".join(kept)


def differences(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the differences between two lists of lines, one line per kernel. Raises UsageError."""
    old, new = _by_kernel(before), _by_kernel(after)
    messages = []
    for kernel in sorted(old.keys() | new.keys()):
        was, now = old.get(kernel), new.get(kernel)
        if was is None or now is None:
            messages.append(f"{' '.join(kernel)}: {'new' if was is None else 'gone'}")
            continue
        changed = [
            f"{part} {was_part} → {now_part}"
            for part, was_part, now_part in zip(("rule", "code", "knobs"), was, now, strict=True)
            if was_part != now_part
        ]
        if changed:
            messages.append(f"{' '.join(kernel)}: {'; '.join(changed)}")
    return messages


def _by_kernel(text: Sequence[str]) -> dict[tuple[str, ...], tuple[str, ...]]:
    by_kernel = {}
    for line in text:
        fields = tuple(line.split())
        if len(fields) != _FIELDS:
            raise UsageError(f"no line of a kernel: {line!r}", hint="give what -o has written")
        by_kernel[fields[:3]] = fields[3:]
    return by_kernel


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.kernel_texts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", default=",".join(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("-o", "--output", type=Path, help="the file to write; else stdout")
    parser.add_argument("--against", type=Path, help="an earlier output, of the same models")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    arguments = parser.parse_args()
    try:
        models = arguments.models.split(",")
        for name in models:
            workload(name)  # A wrong name fails at once.
        before = [] if arguments.against is None else arguments.against.read_text().splitlines()
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(arguments.jobs, context) as pool:
            current = sorted(line for each in pool.map(lines, cases(models)) for line in each)
        changed = [] if arguments.against is None else differences(before, current)
    except (FarrierError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, FarrierError) else 2
    if arguments.output is not None:
        arguments.output.write_text("".join(f"{line}\n" for line in current))
    for line in changed if arguments.against is not None else current:
        if arguments.against is not None or arguments.output is None:
            print(line)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
