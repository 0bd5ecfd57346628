"""LLVM text to objects: what LLVM would end the process for is an error before it, and flags that
LLVM does not know would change nothing."""

from __future__ import annotations

import dataclasses
import platform

import pytest

from farrier.errors import UsageError
from farrier.llvm.objects import LLVMMachine, assembly, object_of
from farrier.targets import parse_target

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


ADDRESS = """
define void @f(ptr %p, i64 %i, i64 %n) {
entry:
  %scaled = mul i64 %i, 4
  %at = add i64 %scaled, 64
  %a = getelementptr i8, ptr %p, i64 %at
  %c = icmp sgt i64 %n, 0
  br i1 %c, label %one, label %two
one:
  %x = load float, ptr %a
  %y = fadd float %x, 1.0
  store float %y, ptr %a
  br label %two
two:
  %z = load float, ptr %a
  store float %z, ptr %p
  ret void
}
"""


def test_an_address_of_several_users_is_computed_once_on_x86():
    """LLVM computes the sum once for each user if it searches all of them."""
    target = parse_target("x86-64-v3")
    machine = target.llvm
    all_of_them = [f.replace("-to-scan=1", "-to-scan=100") for f in machine.flags]
    assert "leaq" not in assembly(ADDRESS, dataclasses.replace(machine, flags=tuple(all_of_them)))
    assert "leaq" in assembly(ADDRESS, machine)
