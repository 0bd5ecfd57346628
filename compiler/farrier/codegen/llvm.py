"""LLVM, through llvmlite: text in, object file out, no pass in between.

Three hidden flags decide the speed of the code and the time to make it: the scheduler before
register allocation hoists broadcasts until they spill (`-enable-misched=false`), loop strength
reduction takes nine tenths of code generation for nothing, since the emitter has already placed
every address (`-disable-lsr`), and to shorten chains of integer additions more values are kept than
there are registers (`-x86-machine-combiner=false`). LLVM ignores a flag it does not know, so tests
watch for what each prevents.
"""

from __future__ import annotations

import functools
from typing import Any

from farrier.errors import CompilerError
from farrier.target import Target

_FLAGS = ("-enable-misched=false", "-disable-lsr", "-x86-machine-combiner=false")

# LLVM's names of the ISA extensions whose names differ from the kernel's.
_FEATURES = {
    "avx512_bf16": "avx512bf16",
    "avx512_vnni": "avx512vnni",
    "avx512_fp16": "avx512fp16",
    "avx_vnni": "avxvnni",
    "amx_tile": "amx-tile",
    "amx_bf16": "amx-bf16",
}


def compile_text(text: str, target: Target) -> bytes:
    """The ELF object of a module of LLVM text; CompilerError names the line that does not parse."""
    module = _parse(text, target)
    try:
        return bytes(_machine(target).emit_object(module))
    except RuntimeError as error:
        raise CompilerError(f"LLVM cannot emit code for {target.cpu}: {error}") from error


def assembly(text: str, target: Target) -> str:
    """The module as assembly text, to read and for tests to look at."""
    return str(_machine(target).emit_assembly(_parse(text, target)))


def _parse(text: str, target: Target) -> Any:
    llvm = initialized()
    header = f'target triple = "{target.triple}"\n'
    try:
        # The text names its values; a context of its own keeps struct names of modules apart.
        module = llvm.parse_assembly(header + text, context=llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CompilerError(f"LLVM rejects the emitted module: {error}") from error
    return module


@functools.cache
def initialized() -> Any:
    """llvmlite's binding, every target initialised and the flags set: once a process."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    for flag in _FLAGS:
        binding.set_option("farrier", flag)
    return binding


@functools.cache
def _machine(target: Target) -> Any:
    llvm = initialized()
    features = [f"+{_FEATURES.get(name, name)}" for name in target.features]
    if target.vector_bits == 512:
        features.append("-prefer-256-bit")
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=",".join(features), opt=2, reloc="pic", codemodel="small"
    )
