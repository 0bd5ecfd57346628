"""The compilation of LLVM text to object files through llvmlite, without LLVM's optimization
passes.

Loop strength reduction is switched off (`-disable-lsr`), as it takes nine tenths of the compile
time and achieves nothing: the emitter has already optimized every address. Backends add flags of
their own. LLVM ignores unknown flags silently, so tests check the effect of each flag.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from farrier.errors import CompilerError, UsageError

_FLAGS = ("-disable-lsr",)
_ASSEMBLY = re.compile(r' asm (sideeffect )?"[^"]')  # Non-empty inline assembly.
# The flags are global to the process: no thread may set them while another emits code.
_emitting = threading.Lock()


@dataclasses.dataclass(frozen=True, slots=True)
class LLVMMachine:
    """A machine as LLVM describes it. Each of `features` begins with + or -. `flags` are LLVM
    command-line options of the form `-name=value`; they are global to the process until set again,
    so all machines specify the same options. Code for a `freestanding` machine is linked at a fixed
    address. `abi` is LLVM's name of the calling convention, if the triple does not imply it."""

    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    freestanding: bool = False
    abi: str = ""


def object_of(text: str, machine: LLVMMachine) -> bytes:
    """Return the object file of a module of LLVM text. Raises CompilerError that names the faulty
    line, and UsageError for inline assembly of another architecture than this machine's, since
    llvmlite contains no assembler for it."""
    _check_assembly(text, machine)
    return _object_of(_parse(text, machine), machine)


def joined_object(
    texts: Sequence[str], exports: Iterable[str] | None, machine: LLVMMachine
) -> bytes:
    """Return one object file that contains several LLVM modules. Only the functions in `exports`
    stay visible to the linker (None: all), so that the objects of different models do not define
    the same symbol. Raises the same errors as `object_of`."""
    context = initialized().create_context()
    whole, *others = [_parse(text, machine, context) for text in texts]
    for module in others:
        whole.link_in(module)
    if exports is not None:
        visible = set(exports)
        for function in whole.functions:
            if not function.is_declaration and function.name not in visible:
                function.linkage = "internal"
    return _object_of(whole, machine)


def _object_of(module: Any, machine: LLVMMachine) -> bytes:
    try:
        with _emitting:
            _set_flags(machine)
            return bytes(_llvm_machine(machine).emit_object(module))
    except RuntimeError as error:
        raise CompilerError(f"LLVM cannot emit code for {machine.cpu}: {error}") from error


def assembly(text: str, machine: LLVMMachine) -> str:
    """Return the assembly text for a module of LLVM text, for readers and tests."""
    module = _parse(text, machine)
    with _emitting:
        _set_flags(machine)
        return str(_llvm_machine(machine).emit_assembly(module))


def _check_assembly(text: str, machine: LLVMMachine) -> None:
    arch, _, _ = machine.triple.partition("-")
    here, _, _ = initialized().get_process_triple().partition("-")
    if arch != here and _ASSEMBLY.search(text):
        raise UsageError(
            f"code for {arch} is not made on {here}: it holds assembly, for which LLVM's assembler "
            "is only there on a machine of that kind",
            hint=f"compile the model on {arch}, where code for {here} can be made, too",
        )


def _parse(text: str, machine: LLVMMachine, context: Any = None) -> Any:
    llvm = initialized()
    header = f'target triple = "{machine.triple}"\n'
    if machine.freestanding:  # Pointers may have 32 bits, which no other line of a module says.
        header += f'target datalayout = "{_llvm_machine(machine).target_data}"\n'
    try:
        # The text names all values. A new context keeps struct types of different modules apart.
        module = llvm.parse_assembly(header + text, context=context or llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CompilerError(f"LLVM rejects the emitted module: {error}") from error
    return module


@functools.cache
def initialized() -> Any:
    """Return llvmlite's binding module. The first call in a process initializes all LLVM targets
    and sets the global flags."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    for flag in _FLAGS:
        binding.set_option("farrier", flag)
    return binding


_set: dict[str, str] = {}  # The flags of this process, by name.


def _set_flags(machine: LLVMMachine) -> None:
    """Set the LLVM flags of a machine, unless they are set already."""
    for flag in machine.flags:
        name, _, value = flag.partition("=")
        if _set.get(name) != value:
            initialized().set_option("farrier", flag)
            _set[name] = value


@functools.cache
def _llvm_machine(machine: LLVMMachine) -> Any:
    llvm_target = initialized().Target.from_triple(machine.triple)
    features = ",".join(machine.features)
    reloc = "static" if machine.freestanding else "pic"
    return llvm_target.create_target_machine(
        cpu=machine.cpu,
        features=features,
        opt=2,
        reloc=reloc,
        codemodel="small",
        abiname=machine.abi,
    )
