"""Each barrier, condition, copy and thread of what the rules for GPUs schedule matters: without it
the interpreter of threads names an error, or another result. `_does_not_matter` names the
exceptions, with the reason."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.ir.evaluate import evaluate
from farrier.ir.expr import Const, Load, MemoryScope
from farrier.ir.loop import For, If, Store
from farrier.ir.printer import print_ir
from farrier.ir.run_threads import run_threads
from farrier.ir.statements import walk_stmts
from farrier.lower.lower_threads import lower_threads
from farrier.targets.gpu import attention, direct, few_rows, parts, points, rows, tiles, transposes
from farrier.targets.gpu.device import LEAST, USUAL
from tests.ir.test_mutants import mutants
from tests.schedule.programs import inputs_of, matmul, softmax
from tests.targets.gpu.convolutions import convolution
from tests.targets.gpu.packed import packed_product
from tests.targets.gpu.test_attention import program_of
from tests.targets.gpu.test_parts import row_ends
from tests.targets.gpu.transposed import relayout

CASES = {
    "attention": (attention, program_of(2, 5, 7, 3)),
    "convolution": (tiles, convolution(3, 5, 6, 5, 3, 1)),
    "convolution of groups": (tiles, convolution(6, 10, 5, 4, 3, 2, 2)),
    "each channel": (direct, convolution(5, 5, 6, 7, 3, 1, 5)),
    "few terms": (direct, matmul(8, 16, 3)),
    "packed weights": (few_rows, packed_product(3, 2, 8, 16)),
    "parts of a product": (parts, matmul(5, 3, 256)),
    "parts of a row": (parts, row_ends(1, 2048)),
    "points": (points, convolution(2, 3, 5, 4, 3, 1)),
    "product": (tiles, matmul(11, 17, 13)),
    "rows": (rows, softmax(3, 300)),
    "transposes": (transposes, relayout(1, 33, 5, 7)),
}


# Barriers between two phases in which each thread touches elements of its own alone: what it
# computes of its part of a row, it reads in the next pass. They stay where threads do not divide
# the row, since a compiler may load before the condition that the last threads do not fulfil.
_OWN = {"attention": 2, "rows": 1}


def _does_not_matter(stmt):
    """Check whether no result can depend on a statement."""
    if isinstance(stmt, For):
        # The last thread has nothing to do where the points do not fill a block.
        return isinstance(stmt.body, If) and stmt.body.otherwise is None
    if isinstance(stmt, If) and isinstance(stmt.then, Store):
        # Sums that are each thread's own may begin at 0 where no element of the result is theirs.
        return stmt.then.value == Const(0.0, stmt.then.buffer.dtype)
    if isinstance(stmt, If) and stmt.otherwise is None and _is_ahead(stmt):
        return True  # The last turn loads nothing for another one, and what it would, nobody reads.
    if not isinstance(stmt, Store) or not isinstance(stmt.value, Const):
        return False
    if stmt.buffer.name.endswith("_own") and stmt.value.value == -np.inf:
        return True  # The greatest of a row may begin with the greatest of a part of it.
    # A zero for a row or column beyond the result is multiplied, and the product is not stored.
    is_factor = stmt.buffer.name.endswith(("_row", "_column", "_next"))
    return is_factor and stmt.buffer.scope is MemoryScope.REGISTER and stmt.value.value == 0


def _is_ahead(stmt):
    """Check whether a statement stores a thread's elements of the next turn, or loads them."""
    stores = [part for part in walk_stmts(stmt) if isinstance(part, Store)]
    loaded = [part.value.buffer for part in stores if isinstance(part.value, Load)]
    stored = [part.buffer for part in stores]
    return any(all(b.name.endswith("_next") for b in side) for side in (stored, loaded) if side)


def _kernels(name, count):
    """The kernels of a case by its default, and by other candidates."""
    rule, program = CASES[name]
    figures = () if rule is points else (LEAST, USUAL)
    space = rule.space(program, *figures)
    candidates = space.candidates()
    picks = np.random.default_rng(len(name)).choice(len(candidates), count - 1)
    for decisions in space.default(), *(space.decisions(candidates[pick]) for pick in picks):
        yield lower_threads(space.schedule(decisions).function)


def _survivors(kernel, name):
    """Return the statements without which the kernel of a case computes the same."""
    program = CASES[name][1]
    inputs = inputs_of(program)
    ((output, expected),) = evaluate(program, inputs).items()
    survivors = []
    for stmt, mutant in mutants(kernel):
        if _does_not_matter(stmt):
            continue
        try:
            result = run_threads(mutant, inputs)[output]
        except CompilerError:
            continue
        if np.allclose(result, expected, 1e-5, 1e-5):
            survivors.append(print_ir(stmt))
    barriers = [text for text in survivors if text.startswith("barrier")]
    is_named = len(barriers) <= _OWN.get(name, 0)
    return [text for text in survivors if not is_named or text not in barriers]


@pytest.mark.parametrize("name", CASES)
def test_whatever_is_taken_away_is_missed(name):
    (kernel,) = _kernels(name, 1)
    assert not _survivors(kernel, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_whatever_is_taken_away_of_other_candidates_is_missed(name):
    """Candidates may have threads beyond the points, so loops over threads need not matter."""
    for kernel in _kernels(name, 5):
        left = [text for text in _survivors(kernel, name) if not text.startswith("for ")]
        assert not left, print_ir(kernel)
