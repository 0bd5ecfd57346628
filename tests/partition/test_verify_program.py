"""Errors of driver programs name the step, the value, its space, and a way out."""

from __future__ import annotations

import dataclasses

import pytest

from farrier.errors import CompilerError
from farrier.ir.dim import dim
from farrier.ir.graph import Value
from farrier.ir.types import DType, TensorType
from farrier.partition.program import (
    Bind,
    Branch,
    Call,
    Carried,
    Copy,
    DriverProgram,
    Fail,
    Home,
    Launch,
    Repeat,
    Wait,
)
from farrier.partition.verify_program import verify_driver

FOUR = TensorType(DType.F32, (4,))
X, Y, H, A, B = (Value(name, FOUR) for name in ("x", "y", "h", "a", "b"))
C = Value("c", TensorType(DType.BOOL, ()))
INDEX = Value("i", TensorType(DType.I64, ()))
UP, DOWN = Copy(X, A), Copy(B, Y)
RUN = Launch(Call("k", (A,), (B,), ""), "chip")
WAIT = Wait("chip")


def program(*steps, inputs=(X, C), outputs=(Y,), homes=None, **spaces):
    spaces = spaces or {"a": "chip", "b": "chip"}
    return DriverProgram(inputs, outputs, (), steps, homes or {}, spaces)


def refused(*steps, **fields):
    """Return the message and the hint for a program."""
    with pytest.raises(CompilerError) as error:
        verify_driver(program(*steps, **fields))
    return error.value.message, error.value.hint


def test_a_program_with_copies_and_waits():
    verify_driver(program(UP, RUN, DOWN, WAIT))


def test_the_host_does_not_read_what_a_device_holds():
    assert refused(UP, RUN, Call("f", (B,), (Y,), "")) == (
        "call f(b) -> y: b lies in chip, and not in host",
        "copy it to a value in host",
    )


def test_a_device_does_not_read_what_the_host_holds():
    message, _ = refused(Launch(Call("k", (X,), (B,), ""), "chip"), DOWN, WAIT)
    assert message == "launch[chip] k(x) -> b: x lies in host, and not in chip"


def test_the_driver_itself_reads_the_host():
    assert refused(Copy(C, Value("d", C.type)), Branch(Value("d", C.type), (), ()), d="chip") == (
        "if d: d lies in chip, and not in host",
        "copy it to a value in host",
    )


def test_a_result_that_is_pending():
    message = "call f(h) -> y: h is read while the queue of chip still writes it"
    hint = "a wait for chip is missing before it"
    assert refused(UP, RUN, Copy(B, H), Call("f", (H,), (Y,), "")) == (message, hint)


def test_a_source_that_is_overwritten_too_early():
    first = Call("f", (X,), (H,), "")
    message, hint = refused(first, Copy(H, A), Call("f", (X,), (H,), ""), RUN, DOWN, WAIT, homes={})
    assert message == "call f(x) -> h: h is written while the queue of chip still reads it"
    assert hint == "a wait for chip is missing before it"


def test_the_end_of_a_program_is_awaited():
    assert refused(UP, RUN, DOWN) == (
        "the program ends while the queue of chip still reads x",
        "a wait for chip is missing at its end",
    )


def test_a_wait_of_the_other_branch_does_not_count():
    branch = Branch(C, (WAIT,), ())
    use = Call("f", (H,), (Y,), "")
    message, _ = refused(UP, RUN, Copy(B, H), branch, use)
    assert "h is read while the queue of chip still writes it" in message
    failing = Branch(C, (WAIT,), (Fail("never", ""),))
    verify_driver(program(UP, RUN, Copy(B, H), failing, use))


def loop(*body, carried=()):
    return Repeat(3, None, None, INDEX, carried, (), (), body)


def test_a_wait_of_the_next_iteration_is_too_late():
    use = Call("f", (H,), (Y,), "")
    step = Call("f", (X,), (H,), "")
    message, _ = refused(step, loop(step, Copy(H, A)), use)
    assert message == "call f(x) -> h: h is written while the queue of chip still reads it"
    verify_driver(program(step, loop(WAIT, step, Copy(H, A)), WAIT, use))


def test_a_loop_may_run_no_iteration():
    message, hint = refused(loop(Call("f", (X,), (Y,), "")))
    assert (message, hint) == ("the output y is not written", "")


def test_what_a_loop_carries_is_in_one_space():
    current, after = Value("s", FOUR), Value("t", FOUR)
    turn = Carried(X, current, after)
    message, _ = refused(loop(carried=(turn,)), s="chip", t="chip")
    assert message == "for i in repeat(3): x lies in host, and not in chip"
    message, hint = refused(loop(carried=(turn,)), homes={"y": Home("s")})
    assert message == "for i in repeat(3): t is read, and not written before"
    assert hint == "a step that writes it in host is missing"


def test_a_value_that_nothing_writes():
    assert refused(RUN, DOWN, WAIT) == (
        "launch[chip] k(a) -> b: a is read, and not written before",
        "a step that writes it in chip is missing",
    )


def test_a_part_that_nothing_writes():
    whole, first = Value("w", TensorType(DType.F32, (8,))), Value("p", FOUR)
    homes = {"p": Home("w"), "q": Home("w", 16)}
    steps = [Call("f", (X,), (first,), ""), Call("g", (whole,), (Y,), "")]
    message, _ = refused(*steps, homes=homes)
    assert message == "call g(w) -> y: w is read, and not written before"
    second = Call("f", (X,), (Value("q", FOUR),), "")
    verify_driver(program(steps[0], second, steps[1], homes=homes))


def test_a_part_of_open_size_that_the_whole_covers():
    """The rows of three products lie one behind the other, and each is read by itself."""
    size = dim("k", 0, 4)
    whole = Value("w", TensorType(DType.F32, (3 * size,)))
    part, behind = (Value(name, TensorType(DType.F32, (size,))) for name in "pq")
    homes = {"p": Home("w", 4 * size), "q": Home("w", 12 * size)}
    write = Call("f", (X,), (whole,), "")
    verify_driver(program(write, Call("g", (part,), (Y,), ""), homes=homes))
    message, _ = refused(write, Call("g", (behind,), (Y,), ""), homes=homes)
    assert message == "call g(q) -> y: q is read, and not written before"


def test_copies_have_an_end_in_the_host_and_one_size():
    message, hint = refused(UP, RUN, Copy(B, A), DOWN, WAIT)
    assert (message, hint) == (
        "copy(b -> a): it copies from chip to chip",
        "a copy has one end in the host",
    )
    message, _ = refused(Copy(C, A))
    assert message == "copy(c -> a): it copies 1 bytes to 16"


def test_outputs_lie_in_the_host():
    message, _ = refused(UP, RUN, outputs=(B,))
    assert message == "the output b does not lie in the host"


def test_a_size_that_has_no_value_yet():
    size = dim("k", 0, 4)
    rows = TensorType(DType.F32, (size,))
    h, r = Value("h", rows), Value("r", rows)
    count = Value("n", TensorType(DType.I64, ()))
    run = Launch(Call("k", (A,), (r, Value("m", count.type)), ""), "chip")
    steps = [UP, run, Copy(Value("m", count.type), count), WAIT, Bind(count, (size,), "")]
    spaces = {"a": "chip", "r": "chip", "m": "chip"}
    verify_driver(program(*steps, Copy(r, h), WAIT, outputs=(h,), **spaces))
    assert refused(*steps[:2], Copy(r, h), *steps[2:], outputs=(h,), **spaces) == (
        "copy(r -> h): the size k has no value yet",
        "a step that binds it is missing before",
    )


def test_sizes_that_are_equal_only_in_a_run():
    """A Bind checks that two symbols are the same number; bytes that nothing writes are missed."""
    k, m = (TensorType(DType.F32, (dim(name, 0, 4),)) for name in "km")
    written, read = Value("v", k), Value("view", m)
    fill, use = Call("f", (X,), (written,), ""), Call("g", (read,), (Y,), "")
    verify_driver(program(fill, use, homes={"view": Home("v")}))
    message, _ = refused(use, homes={"view": Home("v")})
    assert message == "call g(view) -> y: view is read, and not written before"


def test_sizes_are_read_in_the_host():
    bind = Bind(INDEX, (4,), "", is_check=True)
    message, _ = refused(bind, Call("f", (X,), (Y,), ""))
    assert message == "check[exact] i: 4: i is read, and not written before"
    moved = dataclasses.replace(bind, value=Value("j", INDEX.type))
    assert "j lies in chip, and not in host" in refused(moved, j="chip")[0]
