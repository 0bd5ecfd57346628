"""`tests/golden/instructions/<pass>.ll`: a body before a pass on instructions, and after it.

`pytest --update-golden` writes both anew, from the bodies that are built here.
"""

from pathlib import Path

import pytest

from farrier.ir import instr
from farrier.ir.instr import F32, I8, I32, I64, PTR, Carried, Function, Loop, Variable, index
from farrier.targets.cpu.codegen.instruction_passes import instruction_passes
from farrier.targets.llvm.builder import Builder, Instructions
from farrier.targets.llvm.llvm_text import lines_of

_GOLDEN = Path(__file__).parents[3] / "golden" / "instructions"
_PASSES = instruction_passes(Instructions(pair_reach=1008, index_bits=32))
_LINE_BYTES = 3136  # Beyond the reach of an instruction for two vectors.


def _pair_vectors(b):
    """Sum two lines of an image, each of four vectors, again and again."""
    image, at = Variable(PTR, "image"), b.variable(PTR, "at")
    total = b.variable(F32.of(4), "total")
    with b.nested() as body:
        sums = total
        for nbytes in range(0, 64, 16):
            for line in (0, _LINE_BYTES):
                vector = b.load(F32.of(4), b.offset(at, nbytes + line), 4)
                sums = b.op(instr.FADD, sums, vector)
        moved = b.offset(at, 64)
        again = b.icmp("slt", b.load(I64, moved, 8), index(1 << 20))
    first = instr.number_of(total.type, 0.0)
    carried = [Carried(total, first, sums), Carried(at, image, moved)]
    b.body.append(Loop(carried, body, again, b.labels(2)))


def _narrow_indices(b):
    """Copy bytes by an index that 32 bits hold, and store it and another that they do not."""
    source, target, i = Variable(PTR, "source"), Variable(PTR, "target"), b.variable(I64, "i")
    with b.nested() as body:
        line = b.op(instr.UDIV, i, index(7))
        at = b.op(instr.ADD, b.op(instr.MUL, line, index(100)), index(-3))
        b.store(b.load(I8, b.offset(source, at), 1), b.offset(target, i), 1)
        b.store(b.convert(instr.TRUNC, at, I32), target, 4)
        b.store(at, target, 8)
        b.store(b.op(instr.MUL, at, index(1 << 30)), target, 8)
        following = b.op(instr.ADD, i, index(1))
        again = b.icmp("slt", following, index(1000))
    b.body.append(Loop([Carried(i, index(0), following)], body, again, b.labels(2)))


_BODIES = {"narrow-indices": _narrow_indices, "pair-vectors": _pair_vectors}


@pytest.mark.parametrize("name", _BODIES)
def test_golden(name, update_golden):
    b = Builder()
    _BODIES[name](b)
    before = lines_of(b.body)
    after = lines_of(_PASSES[name](Function("f", (), b.body, None)).body)
    text = "\n".join(["; before", *before, "; after", *after, ""])
    path = _GOLDEN / f"{name}.ll"
    if update_golden:
        path.write_text(text)
    else:
        assert text == path.read_text()


def test_every_pass_has_a_golden_body():
    assert _BODIES.keys() == _PASSES.keys() == {path.stem for path in _GOLDEN.glob("*.ll")}
