"""LLVM, through llvmlite: text in, object file out, no pass in between.

A hidden flag decides the time to make code: loop strength reduction takes nine tenths of it for
nothing, since the emitter has already placed every address (`-disable-lsr`). Backends add others.
LLVM ignores a flag it does not know, so tests watch for what each prevents.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from farrier.errors import CompilerError
from farrier.targets import Target, backend_of

_FLAGS = ("-disable-lsr",)


def compile_text(text: str, target: Target) -> bytes:
    """The ELF object of a module of LLVM text; CompilerError names the line that does not parse."""
    module = _parse(text, target)
    _set_flags(backend_of(target).llvm(target).flags)
    try:
        return bytes(_machine(target).emit_object(module))
    except RuntimeError as error:
        raise CompilerError(f"LLVM cannot emit code for {target.cpu}: {error}") from error


def assembly(text: str, target: Target) -> str:
    """The module as assembly text, to read and for tests to look at."""
    module = _parse(text, target)
    _set_flags(backend_of(target).llvm(target).flags)
    return str(_machine(target).emit_assembly(module))


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


_set: dict[str, str] = {}  # the flags of this process, by name


def _set_flags(flags: Sequence[str]) -> None:
    """Sets what a backend asks for, where it is not so by now."""
    for flag in flags:
        name, _, value = flag.partition("=")
        if _set.get(name) != value:
            initialized().set_option("farrier", flag)
            _set[name] = value


@functools.cache
def _machine(target: Target) -> Any:
    features = ",".join(backend_of(target).llvm(target).features)
    return (
        initialized()
        .Target.from_triple(target.triple)
        .create_target_machine(
            cpu=target.cpu, features=features, opt=2, reloc="pic", codemodel="small"
        )
    )
