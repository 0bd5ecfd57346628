"""The table that writes instructions as LLVM text."""

import re

from farrier import llvm
from farrier.ir import instr
from farrier.ir.expr import Binary, BinaryOp, Buffer, Const, Load, MemoryScope, Var
from farrier.ir.instr import F32, I1, I64, Branch, Carried, Joined, Loop, Variable, While, index
from farrier.ir.loop import For, Function, LoopKind, Store
from farrier.ir.types import DType
from farrier.targets import parse_target
from farrier.targets.cpu.codegen import compile_text, emit_function
from farrier.targets.llvm import llvm_text as text
from farrier.targets.llvm.builder import Builder, Instructions

V3 = parse_target("x86-64-v3")


def test_every_operation_is_written():
    declared = {value for value in vars(instr).values() if isinstance(value, instr.Operation)}
    assert declared == text._WRITERS.keys()


def test_equal_constants_are_one_and_others_are_apart():
    zeros = [instr.number_of(F32, number) for number in (0.0, -0.0, float("nan"), float("-nan"))]
    assert [text._literal(zero)[2:4] for zero in zeros[:2]] == ["00", "80"]
    assert zeros[0] is instr.number_of(F32, 0.0)
    assert instr.number_of(I1, True) is not instr.number_of(I64, 1)


def test_a_loop_a_test_and_a_branch_are_blocks_that_llvm_accepts():
    b, n = Builder(), Variable(I64, "n")
    count, left, larger = (b.variable(I64, name) for name in ("count", "left", "larger"))
    with b.nested() as body:
        more = b.op(instr.ADD, count, index(3))
        again = b.icmp("slt", more, n)
    b.body.append(Loop([Carried(count, index(0), more)], body, again, b.labels(2)))
    with b.nested() as test:
        is_left = b.icmp("sgt", left, index(0))
    with b.nested() as body:
        fewer = b.op(instr.SUB, left, index(2))
    b.body.append(While([Carried(left, more, fewer)], test, is_left, body, b.labels(3)))
    with b.nested() as then:
        doubled = b.op(instr.SHL, left, index(1))
    b.body.append(
        Branch(b.icmp("eq", left, n), then, [], [Joined(larger, doubled, left)], b.labels(3))
    )
    function = instr.Function("f", (n,), b.body, larger, is_exported=True)
    written = text.definition(function, "", set())
    assert compile_text(written, V3).startswith(b"\x7fELF")
    phis = re.findall(r"phi i64 (.*)", written)
    assert [re.findall(r"%([a-z]+)\d* \]", phi) for phi in phis] == [
        ["entry", "loop"],
        ["done", "body"],
        ["then", "done"],
    ]


def test_memory_of_a_scope_lies_in_the_address_space_of_the_target():
    b = Builder(Instructions(spaces={MemoryScope.LOCAL: 5}))
    local = b.hoisted(0, instr.STACK, b.pointer(MemoryScope.LOCAL), (), (64, "x"))
    common = Variable(b.pointer(MemoryScope.PARAM), "p")
    b.store(b.load(F32, b.offset(local, 4), 4), b.offset(common, 4), 4)
    lines = "\n".join(text.lines_of(b.body))
    assert "alloca [64 x i8], align 64, addrspace(5)" in lines
    assert re.search(r"load float, ptr addrspace\(5\) %v\d+, align 4", lines)
    assert re.search(r"store float %v\d+, ptr %v\d+, align 4", lines)


def test_attributes_of_functions_come_from_the_backend():
    x = Buffer("x", DType.F32, (8,))
    doubled = Binary(BinaryOp.MUL, Load(x, (Var("i"),)), Const(2.0, DType.F32))
    nest = For("i", 8, LoopKind.SERIAL, Store(x, (Var("i"),), doubled))
    for name, has_width in (("x86-64-v3", True), ("rpi5", False)):
        target = parse_target(name)
        written = emit_function(Function("twice", (x,), nest), target)
        assert ("min-legal-vector-width" in written) is has_width
        assert llvm.object_of(written, target.llvm)
