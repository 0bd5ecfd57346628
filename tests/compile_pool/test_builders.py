"""Builders compile the same kernels, and whatever becomes of them, the kernels are there."""

import json
import threading

import pytest

from farrier.compile_pool import Built, CompilePool
from farrier.compile_pool import helpers as helpers_module
from farrier.compile_pool.helper import build
from farrier.errors import CompilerError, ServiceError
from tests.compile_pool.conftest import THREADS


class InProcess:
    """Some builders of this process, which do what `act` says with a message."""

    def __init__(self, count, act=lambda message: Built(json.dumps(build(json.loads(message))))):
        self.messages = []
        self.most_at_once = 0
        self._count = count
        self._act = act
        self._at_once = 0
        self._lock = threading.Lock()

    def count(self):
        return self._count

    def build(self, message):
        with self._lock:
            self.messages.append(message)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return self._act(message)
        finally:
            with self._lock:
                self._at_once -= 1


@pytest.fixture
def alone(build_inputs, target):
    """The kernels, compiled by nobody else."""
    with CompilePool(0, target, THREADS) as nobody:
        return nobody.compile(build_inputs)


@pytest.fixture
def held_up(monkeypatch):
    """This process compiles nothing until a builder was asked."""
    asked = threading.Event()
    original = helpers_module._compiled

    def wait(module, target):
        assert asked.wait(60)
        return original(module, target)

    monkeypatch.setattr(helpers_module, "_compiled", wait)
    return asked


def _after(asked, act):
    def tell(message):
        try:
            return act(message)
        finally:
            asked.set()

    return tell


def test_builders_compile_what_this_process_is_not_free_for(build_inputs, target, alone, held_up):
    act = _after(held_up, lambda message: Built(json.dumps(build(json.loads(message)))))
    builders = InProcess(2, act)
    with CompilePool(0, target, THREADS, builders) as helpers:
        compiled = helpers.compile(build_inputs)
    assert compiled == alone
    assert 1 <= builders.most_at_once <= 3
    message = json.loads(builders.messages[0])
    assert set(message) == {"kernels", "target", "threads"}


def test_what_a_builder_compiled_has_its_trace_here(build_inputs, target, held_up):
    act = _after(held_up, lambda message: Built(json.dumps(build(json.loads(message)))))
    for build_input in build_inputs.values():
        build_input.space.built_in._traces.clear()
    with CompilePool(0, target, THREADS, InProcess(9, act)) as helpers:
        helpers.compile(build_inputs)
    # This process may have compiled some kernels itself, which leaves no trace.
    assert any(each.space.built_in._traces for each in build_inputs.values())


def _refuse(_message):
    raise ServiceError("the line is gone")


@pytest.mark.parametrize(
    "act",
    [
        lambda _: Built(),
        lambda _: Built(answer="{"),
        lambda _: Built(answer="{}"),
        lambda _: Built(answer=json.dumps({"failed": "another version, say"})),
        _refuse,
    ],
    ids=["went away", "no JSON", "no answer", "failed", "nobody to ask"],
)
def test_what_builders_do_not_compile_is_compiled_here(build_inputs, target, alone, held_up, act):
    builders = InProcess(3, _after(held_up, act))
    with CompilePool(0, target, THREADS, builders) as helpers:
        assert helpers.compile(build_inputs) == alone
    assert builders.messages


def test_a_crash_of_a_builders_process_is_the_kernels(build_inputs, target, held_up):
    act = _after(held_up, lambda _: Built(crashed="was killed by SIGSEGV"))
    with CompilePool(0, target, THREADS, InProcess(1, act)) as helpers:
        results = helpers.build(build_inputs)
    failed = [result for result in results.values() if isinstance(result, CompilerError)]
    assert failed
    assert len(failed) < len(results)
    assert "was killed by SIGSEGV" in str(failed[0])


def test_without_builders_nobody_is_asked(build_inputs, target, alone):
    builders = InProcess(0)
    with CompilePool(0, target, THREADS, builders) as helpers:
        assert helpers.compile(build_inputs) == alone
    assert builders.messages == []
