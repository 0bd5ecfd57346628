"""The compilation of LLVM text to PTX, through llvmlite. LLVM's optimization passes run first; they
move a thread's arrays to registers and inline Farrier's functions.

Pointers to shared memory have 32 bits (`-nvptx-short-ptr`): no block has more than 4 GiB of it, and
addresses of 64 bits would take two registers each.
"""

from __future__ import annotations

import functools
from typing import Any

from farrier.errors import CompilerError
from farrier.llvm import initialized
from farrier.targets.cuda.architectures import ARCHITECTURES

TRIPLE = "nvptx64-nvidia-cuda"
_OPT = 2  # LLVM's -O2
_SHORT_POINTERS = "-nvptx-short-ptr"


def ptx_of(text: str, cpu: str) -> str:
    """Return the PTX of a module of LLVM text for an architecture. Raises CompilerError."""
    llvm, machine = _llvm(), _machine(cpu)
    header = f'target triple = "{TRIPLE}"\ntarget datalayout = "{machine.target_data}"\n'
    try:
        module = llvm.parse_assembly(header + text, context=llvm.create_context())
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=_OPT)
        options.slp_vectorization = False
        options.loop_vectorization = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return str(machine.emit_assembly(module))
    except RuntimeError as error:
        raise CompilerError(f"LLVM rejects the module of a kernel for {cpu}: {error}") from error


@functools.cache
def _llvm() -> Any:
    """Return llvmlite's binding module, after setting the flag of short pointers, which LLVM reads
    when it creates a target machine."""
    llvm = initialized()
    llvm.set_option("farrier", _SHORT_POINTERS)
    return llvm


@functools.cache
def _machine(cpu: str) -> Any:
    features = f"+ptx{ARCHITECTURES[cpu].ptx}"
    target = _llvm().Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=cpu, features=features, opt=_OPT)
