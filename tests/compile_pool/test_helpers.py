"""Tests that kernels compiled in other processes are the same, and that their failures are
reported."""

import dataclasses
import gc
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from farrier.compile_pool import CompilePool, helpers_for, lowered
from farrier.compile_pool import helpers as helpers_module
from farrier.errors import CompilerError
from farrier.ir.dim import Question, Relation, Undecided, as_dim, dim
from farrier.ir.loop import Block, Function
from farrier.schedule import ScheduleError
from farrier.space import Space
from farrier.targets.cpu.codegen.link import link
from farrier_device import python
from tests.compile_pool.conftest import LAYERS, THREADS
from tests.waiting import wait_until


def _wait_until_ready(helpers):
    for helper_process in helpers._helpers:
        assert helper_process.is_ready.wait(60)


def test_kernels_are_the_same_whoever_compiles_them(build_inputs, target):
    with CompilePool(0, target, THREADS) as nobody:
        alone = nobody.compile(build_inputs)
    with CompilePool(1, target, THREADS) as helpers:
        _wait_until_ready(helpers)
        together = helpers.compile(build_inputs)
    assert len(build_inputs) > LAYERS
    assert together == alone
    assert any(interface.dims for interface in together.interfaces.values())


def test_loops_that_are_there_are_those_compiled(choices, build_inputs, target, monkeypatch):
    """Loops that were lowered to be read are not lowered again, and yield the same code."""
    with CompilePool(0, target, THREADS) as nobody:
        wanted = nobody.compile(build_inputs)
    here = lowered(choices, target, lambda folder, name, ir: None)
    assert [kernel.loops.name for kernel in here.values()] == [
        kernel.name for kernel in build_inputs.values()
    ]
    with CompilePool(1, target, THREADS) as helpers:
        _wait_until_ready(helpers)
        monkeypatch.setattr(Space, "schedule", _refuse)
        assert helpers.compile(here) == wanted


def _refuse(*_):
    raise AssertionError("a kernel is lowered twice")


def _schedule_error():
    return ScheduleError("vectorize", "lanes conflict", Function("f", (), Block(())))


def _question():
    return Undecided(Question(as_dim(dim("n", 0, 9)), Relation.POSITIVE, "n > 0"))


def test_an_error_in_a_helper_is_raised_here(build_inputs, target):
    key, *_ = build_inputs
    wrong = dataclasses.replace(build_inputs[key], decisions={"nothing": 1})
    with CompilePool(1, target, THREADS) as helpers:
        _wait_until_ready(helpers)
        with pytest.raises(CompilerError, match="nothing"):
            helpers.compile({**{k: c for k, c in build_inputs.items() if k != key}, key: wrong})


def test_a_helper_that_does_not_start_is_not_waited_for(build_inputs, target, monkeypatch):
    monkeypatch.setattr(python, "_BOOTSTRAP", "raise SystemExit")
    with CompilePool(1, target, THREADS) as helpers:
        assert helpers.compile(build_inputs).interfaces.keys() == build_inputs.keys()


def test_no_room_for_processes_is_no_error(build_inputs, target, monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with CompilePool(2, target, THREADS) as helpers:
        assert helpers.compile(build_inputs).interfaces.keys() == build_inputs.keys()


def test_a_helper_that_dies_is_named(build_inputs, target, monkeypatch):
    dying = (
        "import json, os, socket, sys; sys.path[:] = json.loads(sys.argv[1]);"
        "from farrier_device import wire; sock = socket.socket(fileno=int(sys.argv[2]));"
        "wire.send(sock, {{}}); wire.receive(sock); os.kill(os.getpid(), 11)"
    )
    monkeypatch.setattr(python, "_BOOTSTRAP", dying)
    with CompilePool(1, target, THREADS) as helpers:
        _wait_until_ready(helpers)
        with pytest.raises(CompilerError, match="killed by SIGSEGV"):
            helpers.compile(build_inputs)


def test_small_models_and_lone_cores_get_no_help(monkeypatch):
    monkeypatch.setattr(helpers_module.os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert [helpers_for(nodes) for nodes in (0, 10, 40, 500, 5000)] == [0, 0, 1, 2, 2]
    monkeypatch.setattr(helpers_module.os, "sched_getaffinity", lambda _: {3})
    assert helpers_for(500) == 0


def test_cores_bound_the_helpers_and_what_tunes_gets_all_of_them(monkeypatch):
    monkeypatch.setattr(helpers_module.os, "sched_getaffinity", lambda _: set(range(32)))
    assert [helpers_for(1, cores, tunes=True) for cores in (0, 1, 8, 64)] == [31, 0, 7, 31]
    assert [helpers_for(500, cores) for cores in (0, 1, 2, 8, 64)] == [7, 0, 1, 7, 7]
    assert helpers_for(1, 8) == 0


def test_threads_that_ask_at_once_get_each_their_own(build_inputs, target):
    """Whoever compiles them: the threads themselves, or a helper that serves both."""
    items = list(build_inputs.items())
    halves = [dict(items[::2]), dict(items[1::2])]
    with CompilePool(0, target, THREADS) as nobody:
        wanted = [nobody.build(half) for half in halves]
    for count in (0, 1):
        with CompilePool(count, target, THREADS) as helpers, ThreadPoolExecutor(6) as pool:
            _wait_until_ready(helpers)
            results = list(pool.map(helpers.build, halves * 3))
        for actual, due in zip(results, wanted * 3, strict=True):
            assert list(actual) == list(due)
            assert [kernel.interface for kernel in actual.values()] == [
                kernel.interface for kernel in due.values()
            ]
    assert gc.isenabled()


def test_kernels_asked_for_first_are_compiled_first(build_inputs, target, monkeypatch):
    compiled = []
    go_on, begun = threading.Event(), threading.Event()
    original = helpers_module._compiled

    def slow(module, target):
        compiled.append(next(iter(module)))
        begun.set()
        assert go_on.wait(60)
        return original(module, target)

    monkeypatch.setattr(helpers_module, "_compiled", slow)
    (key, first_input), *_ = build_inputs.items()
    jobs = [{f"{key} {job} {n}": first_input for n in range(4)} for job in "ab"]
    with CompilePool(0, target, THREADS) as helpers, ThreadPoolExecutor(2) as pool:
        first = pool.submit(helpers.build, jobs[0])
        assert begun.wait(60)
        second = pool.submit(helpers.build, jobs[1])
        wait_until(lambda: len(helpers._queue._jobs) >= 2)
        go_on.set()
        assert [list(future.result(60)) for future in (first, second)] == [
            list(job) for job in jobs
        ]
    assert compiled == [f"{key} {job} {n}" for job in "ab" for n in (0, 2, 3)]


def test_kernels_that_were_begun_are_those_that_are_asked_for(build_inputs, target):
    """One whose decisions change meanwhile is made anew, whoever shared its module."""
    key = next(key for key, kernel in build_inputs.items() if len(kernel.space.candidates()) > 1)
    space = build_inputs[key].space
    rows = space.candidates()
    other = next(d for d in map(space.decisions, rows) if d != build_inputs[key].decisions)
    changed = {**build_inputs, key: dataclasses.replace(build_inputs[key], decisions=other)}
    with CompilePool(0, target, THREADS) as nobody:
        wanted = nobody.compile(changed)
    with CompilePool(1, target, THREADS) as helpers:
        _wait_until_ready(helpers)
        helpers.begin(build_inputs)
        compiled = helpers.compile(changed)
    assert compiled.interfaces == wanted.interfaces
    link(
        compiled.objects, [build_input.name for build_input in build_inputs.values()]
    )  # No kernel is in it twice.


def test_what_was_begun_is_told_while_the_rest_compiles(build_inputs, target):
    keys = list(build_inputs)
    begun = {key: build_inputs[key] for key in keys[: len(keys) // 2]}
    reported = []
    with CompilePool(1, target, THREADS) as helpers:
        helpers.begin(begun)
        compiled = helpers.compile(
            build_inputs, lambda kernels: reported.append(kernels.interfaces)
        )
    assert [interfaces.keys() for interfaces in reported] == [begun.keys()]
    assert compiled.interfaces.keys() == build_inputs.keys()
    assert all(compiled.interfaces[key] == interfaces for key, interfaces in reported[0].items())


@pytest.mark.parametrize("error", [_schedule_error, _question], ids=["schedule", "question"])
def test_what_lowering_meets_is_an_error_that_names_the_node(
    choices, build_inputs, target, monkeypatch, error
):
    def refuse(*_):
        raise error()

    monkeypatch.setattr(Space, "schedule", refuse)
    key, build_input = next(iter(build_inputs.items()))
    assert build_input.origin
    message = re.escape(f"kernel {build_input.name} of node {build_input.origin!r}: {error()}")
    with CompilePool(0, target, THREADS) as nobody, pytest.raises(CompilerError, match=message):
        nobody.compile({key: build_input})
    with pytest.raises(CompilerError, match=message):
        lowered(choices, target, lambda folder, name, ir: None)
