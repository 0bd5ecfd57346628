"""Programs run on a host, which is Python here, and on a chip with a queue of its own."""

from __future__ import annotations

import array
import dataclasses
import os
import struct
import sys
from pathlib import Path

import pytest

from farrier_device.devices.device import Device
from farrier_device.interpreter import Interpreter
from farrier_device.measurement import CodeObject
from farrier_device.memory import aligned_buffer
from farrier_device.program import (
    Allocate,
    Bind,
    Branch,
    Call,
    Carried,
    Check,
    Copy,
    Fail,
    Grown,
    Joined,
    Launch,
    Memory,
    Place,
    Program,
    Repeat,
    Slice,
    Wait,
    evaluate,
)
from tests.rpc_device.device_contract import in_file

sys.path.insert(0, str(Path(__file__).with_name("strange")))
import queue_device


class Host(Device):
    """A host whose functions take views of their arguments, from their places on."""

    def __init__(self, **functions):
        self._functions = functions
        self._code = 0

    def bind(self, launch, places):
        return self._functions[launch.symbol], [memory.view[at:] for memory, at in places]

    def launch(self, bound):
        function, views = bound
        self._code = function(*views) or 0

    def synchronize(self):
        return self._code


@pytest.fixture
def chip():
    device = queue_device.QueueDevice()
    file = in_file(queue_device.CODE)
    device.load([(CodeObject("", queue_device.KIND), file)], 1, ())
    yield device
    device.close()
    os.close(file)


def floats(*values):
    buffer = aligned_buffer(4 * len(values))
    buffer.view[:] = array.array("f", values).tobytes()
    return buffer


def numbers(*values):
    buffer = aligned_buffer(8 * len(values))
    buffer.view[:] = struct.pack(f"<{len(values)}q", *values)
    return buffer


def read(buffer, kind="f"):
    return list(buffer.view.cast(kind))


def program(*steps, memories=("x", "y"), dims=(), counted=(), setup=()):
    return Program(tuple(Memory(name, 0) for name in memories), dims, counted, {}, setup, steps)


X, Y = Place("x"), Place("y")
A, B = Place("a", 0, "chip"), Place("b", 16, "chip")
ROOM = Allocate("a", "chip", "4 * n"), Allocate("b", "chip", "4 * n + 16")
DOUBLED = (
    *ROOM,
    Copy(X, A, "4 * n"),
    Launch("right", "chip", (A, B)),
    Copy(B, Y, "4 * n"),
    Wait("chip"),
)


def test_steps_run_on_the_device_and_results_come_back(chip):
    run = Interpreter(program(*DOUBLED, dims=("n",)), {"chip": chip}).run
    for values in ([1.0, 2.0], [3.0], [4.0, 5.0, 6.0]):  # The memory grows and shrinks.
        y = floats(*[0.0] * len(values))
        assert run([floats(*values), y], [len(values)]) == 0
        assert read(y) == [2 * value for value in values]


def test_without_the_wait_the_result_is_not_there(chip):
    y = floats(0.0, 0.0)
    run = Interpreter(program(*DOUBLED[:-1], dims=("n",)), {"chip": chip}).run
    with chip.paused:
        assert run([floats(1, 2), y], [2]) == 0
        assert read(y) == [0, 0]
    chip.synchronize()
    assert read(y) == [2, 4]


def test_the_setup_runs_once(chip):
    whole = program(
        Launch("right", "chip", (A, B)),
        Copy(B, Y, 8),
        Wait("chip"),
        setup=(Allocate("a", "chip", 8), Allocate("b", "chip", 24), Copy(X, A, 8), Wait("chip")),
    )
    run = Interpreter(whole, {"chip": chip}).run
    for x in (floats(1, 2), floats(7, 7)):
        y = floats(0, 0)
        assert run([x, y]) == 0
        assert read(y) == [2, 4]


def test_a_failure_of_a_kernel_is_that_of_the_wait(chip):
    failing = [dataclasses.replace(step) for step in DOUBLED]
    failing[3] = Launch("code_three", "chip", (A, B))
    whole = program(*failing, dims=("n",))
    assert Interpreter(whole, {"chip": chip}).run([floats(1), floats(1)], [1]) == 3
    assert chip.synchronize() == 0


def test_functions_of_the_host_have_sizes_and_scratch_behind_their_arguments():
    seen = []

    def function(x, y, sizes, scratch):
        seen.append((x.cast("f")[0], struct.unpack_from("<2q", sizes), scratch.cast("f")[0]))
        y[:4] = x[:4]
        return 5 if x.cast("f")[0] == 9 else 0

    call = Call("f", (X, Place("y", "4 * n")), ("n", "n * n"), (Place("s", 4),), ("n",))
    whole = program(call, memories=("x", "y", "s"), dims=("n",))
    run = Interpreter(whole, {"host": Host(f=function)}).run
    y = floats(0, 0)
    assert run([floats(7), y, floats(0, 3)], [1]) == 0
    assert (seen, read(y)) == ([(7, (1, 1), 3)], [0, 7])
    assert run([floats(7), y, floats(0, 3)], [0]) == 0
    assert len(seen) == 1  # Nothing to do for a size of 0.
    assert run([floats(9), y, floats(0, 3)], [1]) == 5


def test_a_launch_is_bound_once_as_long_as_its_arguments_stay(chip, monkeypatch):
    bound = []
    bind = chip.bind
    monkeypatch.setattr(chip, "bind", lambda *what: bound.append(what) or bind(*what))
    run = Interpreter(program(*DOUBLED, dims=("n",)), {"chip": chip}).run
    for values in ([1.0, 2.0], [3.0, 4.0], [5.0]):
        y = floats(*[0.0] * len(values))
        assert run([floats(*values), y], [len(values)]) == 0
        assert read(y) == [2 * value for value in values]
    assert len(bound) == 2


def test_a_copy_to_where_it_is_already_is_left_out():
    called = []
    whole = program(Call("f", (X, Y), copies=True))
    run = Interpreter(whole, {"host": Host(f=lambda x, y: called.append(1))}).run
    x = floats(1)
    assert run([x, x]) == 0
    assert not called
    assert run([x, floats(2)]) == 0
    assert called


@pytest.mark.parametrize(
    ("value", "demand", "code"),
    [
        *((4, "", 0), (5, "", -3), (-1, "", -3), (4, "exact", 0), (3, "exact", -3)),
        *((9, "least", 0), (3, "least", -3), (4, "most", 0), (5, "most", -3)),
    ],
)
def test_sizes_are_bound_and_checked(value, demand, code):
    whole = program(Bind(X, "k", Check(2, "2 * n", demand)), dims=("n",), counted=("k",))
    sizes = [2, 0, 0]
    assert Interpreter(whole, {}).run([numbers(value), numbers(0)], sizes) == code
    assert sizes == ([2, value, 0] if code == 0 else [2, 0, value])


def test_branches_choose_steps_and_sizes():
    whole = program(
        Branch(X, (Copy(X, Y, 1),), (Fail(4),), (Joined("k", "n", 0),)),
        dims=("n",),
        counted=("k",),
    )
    run = Interpreter(whole, {}).run
    yes, no = floats(0), floats(0)
    yes.view[0] = 1
    sizes, y = [3, 0, 0], floats(0)
    assert run([yes, y], sizes) == 0
    assert (sizes[1], y.view[0]) == (3, 1)
    assert run([no, y], sizes) == -5


@pytest.mark.parametrize("trips", [0, 1, 2, 3])
def test_what_a_loop_carries_changes_places_on_the_device(chip, trips):
    """The carried pair is doubled in each iteration, and each is left in a slice of the stack."""
    current, after = Place("c", 0, "chip"), Place("d", 0, "chip")
    body = (
        Launch("right", "chip", (current, after)),
        Copy(after, Place("part"), 8),
        Wait("chip"),
    )
    loop = Repeat(
        None,
        X,
        None,
        None,
        Place("i"),
        (Carried("c", "d", A, Place("w", 0, "chip"), Place("w", 8, "chip")),),
        (Slice("part", Place("stack"), 8),),
        body,
        "trips",
        Check(0, 3),
        (Grown("g", 1, "2 * g", "total", Check(1, 8)),),
    )
    whole = program(
        Allocate("a", "chip", 8),
        Allocate("w", "chip", 16),
        Copy(Place("z"), A, 8),
        loop,
        Copy(current, Y, 8),
        Wait("chip"),
        memories=("x", "y", "z", "i", "stack"),
        counted=("trips", "total"),
    )
    y, i, stack, sizes = floats(0, 0), numbers(-1), floats(*[0] * 6), [0, 0, 0]
    memories = [numbers(trips), y, floats(1, 3), i, stack]
    assert Interpreter(whole, {"chip": chip}).run(memories, sizes) == 0
    assert read(y) == [2**trips, 3 * 2**trips]
    assert read(stack) == [
        value for k in range(1, 4) for value in ((2**k, 3 * 2**k) if k <= trips else (0, 0))
    ]
    assert (read(i, "q"), sizes[:2]) == ([trips - 1], [trips, 2**trips])


def test_a_loop_ends_when_its_condition_does_and_at_its_bound():
    def step(i, goes):
        goes[0] = i.cast("q")[0] < 2

    loop = Repeat(None, None, Y, Y, X, (), (), (Call("step", (X, Y)),), "trips", Check(0, "n"), ())
    whole = program(loop, dims=("n",), counted=("trips",))
    run = Interpreter(whole, {"host": Host(step=step)}).run
    goes = numbers(1)
    sizes = [3, 0, 0]
    assert run([numbers(0), goes], sizes) == 0
    assert sizes[1] == 3
    sizes = [2, 0, 0]
    assert run([numbers(0), numbers(1)], sizes) == -1
    assert sizes[2] == 3
    assert run([numbers(0), numbers(0)], sizes) == 0
    assert sizes[1] == 0


@pytest.mark.parametrize(
    ("size", "value"),
    [(7, 7), ("n", 5), ("4 * n + min(n, 3) - -1", 24), ("max(n, m) // 2 % 4", 2), ("-n", -5)],
)
def test_sizes_are_expressions(size, value):
    assert evaluate(size, {"n": 5, "m": 13}) == value


@pytest.mark.parametrize(
    "text",
    ["", "1.5", "n.real", "f(1, 2)", "n if n else 1", "min(n)", "(", "True", "n ** 2", "'a'"],
)
def test_other_texts_are_not_sizes(text):
    with pytest.raises(ValueError, match="is not a valid size"):
        evaluate(text, {"n": 5})


def test_a_size_that_is_not_there_is_named():
    with pytest.raises(KeyError, match="m"):
        evaluate("n + m", {"n": 5})
