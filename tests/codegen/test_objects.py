"""LLVM text to objects: what LLVM would end the process for is an error before it, and flags that
LLVM does not know would change nothing."""

from __future__ import annotations

import dataclasses
import platform

import pytest

from farrier.errors import UsageError
from farrier.llvm.objects import LLVMMachine, assembly, object_of
from farrier.targets import backend_of, parse_target

TEXT = 'define void @f() {{\n  call void asm sideeffect "{0}", ""()\n  ret void\n}}\n'


def machine(arch: str) -> LLVMMachine:
    return LLVMMachine(f"{arch}-unknown-linux-gnu", "generic")


def test_assembly_of_this_machine_is_assembled():
    assert object_of(TEXT.format("nop"), machine(platform.machine()))[:4] == b"\x7fELF"


def test_assembly_of_another_machine_is_refused():
    here = platform.machine()
    (other,) = {"x86_64", "aarch64"} - {here}
    with pytest.raises(UsageError, match=f"code for {other} is not made on {here}") as refused:
        object_of(TEXT.format("nop"), machine(other))
    assert f"compile the model on {other}" in refused.value.hint


def test_assembly_that_says_nothing_is_for_every_machine():
    for arch in ("x86_64", "aarch64"):
        assert object_of(TEXT.format(""), machine(arch))[:4] == b"\x7fELF"


DIVISION = "define i64 @f(i64 %a, i64 %b) {\n  %q = udiv i64 %a, %b\n  ret i64 %q\n}\n"


def test_codegenprepare_is_off_for_x86():
    """It gives divisions of 64 bits a short way of 32 bits where a processor is slow at them."""
    target = parse_target("x86-64-v3")
    off = backend_of(target).llvm(target)
    flags = [flag.replace("-disable-cgp=true", "-disable-cgp=false") for flag in off.flags]
    on = dataclasses.replace(off, flags=tuple(flags))
    assert "divl" in assembly(DIVISION, on)
    assert "divl" not in assembly(DIVISION, off)
