"""Libraries that would outlive their batch, or exhaust their keeper: nothing of them is left."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from farrier.llvm import zig
from farrier.targets import host
from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.support import support_object
from farrier_device.measurement import CodeObject, MeasureRequest, Status, TimingPolicy, to_json
from farrier_device.processes import is_running
from farrier_device.runners.local import ChildRunner
from tests.rpc_device.children import measuring_processes, threads_of

QUICK = TimingPolicy(min_repeats=3, max_repeats=3, min_time_s=0.001, timeout_s=20.0)


@functools.cache
def hostile_kernels(folder: Path) -> bytes:
    """Return the library of `hostile.ll`, which no `dlclose` unloads, and which sees libc."""
    target = host()
    text = Path(__file__).with_name("hostile.ll").read_text()
    names = []
    for content in (compile_text(text, target), support_object(target)):
        names.append(hashlib.sha256(content).hexdigest() + ".o")
        (folder / names[-1]).write_bytes(content)
    command = ["ld.lld", "-shared", "-z", "nodelete", *names, "-o", "hostile.so"]
    zig.run(command, folder, "linking failed")
    return (folder / "hostile.so").read_bytes()


@pytest.fixture(scope="session")
def hostile(tmp_path_factory) -> bytes:
    return hostile_kernels(tmp_path_factory.mktemp("hostile"))


@pytest.fixture
def measure(runner, folder, doubling):
    """`measure(library, symbol)`: the result of one candidate in a batch of its own."""

    def call(library: bytes, symbol: str):
        request = MeasureRequest(
            (CodeObject(folder.add(library)),), (doubling.candidate(symbol),), QUICK
        )
        result = runner.measure(request, folder)
        assert result.fault is None, result.message
        return result.results[0]

    return call


def test_a_pinned_library_supplies_no_symbol_to_the_next_batch(measure, hostile, library):
    assert measure(hostile, "right_by_another").status is Status.OK
    assert measure(library, "right").status is Status.OK
    later = measure(library, "right_by_another")
    assert later.status is Status.REJECTED
    assert "no symbol 'right_by_another'" in later.message


def test_threads_that_spin_are_gone_with_their_batch(measure, hostile, library):
    assert measure(hostile, "leaves_a_thread").status is Status.OK
    before = measuring_processes(os.getpid())
    assert before  # The fork server is ready for the next batch.
    assert {threads_of(pid) for pid in before} == {1}
    assert measure(library, "right").status is Status.OK
    assert measuring_processes(os.getpid()) == before


# A keeper of its own, whose peak of memory is not that of other tests.
KEEPER = """
import sys
from pathlib import Path
from farrier_device.measurement import request_from_json
from farrier_device.runners.local import ChildRunner

class Folder:
    def path(self, sha256):
        return Path(sys.argv[1]) / sha256

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])

requests = [request_from_json(text) for text in sys.argv[2:]]
with ChildRunner() as runner:
    honest, first = runner.measure(requests[0], Folder()), peak()
    assert honest.results[0].status == "ok", honest
    hostile = runner.measure(requests[1], Folder())
    print(peak() - first, hostile.results[0].status, hostile.results[0].message, sep="|")
"""


def test_an_answer_without_end_is_not_read(folder, doubling, hostile, library):
    requests = [
        MeasureRequest((CodeObject(folder.add(code)),), (doubling.candidate(symbol),), QUICK)
        for code, symbol in ((library, "right"), (hostile, "answers_at_length"))
    ]
    done = subprocess.run(
        [sys.executable, "-c", KEEPER, str(folder.root), *map(to_json, requests)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
        check=True,
    )
    kilobytes, status, message = done.stdout.strip().split("|")
    assert status == "crashed"
    assert message.startswith("sent more than ")
    assert int(kilobytes) < 4096  # The frame would have 1.8 GB.


def test_a_candidate_after_one_that_floods_is_measured(runner, folder, doubling, hostile):
    symbols = ("right_by_another", "answers_at_length", "right_by_another")
    candidates = tuple(map(doubling.candidate, symbols))
    result = runner.measure(
        MeasureRequest((CodeObject(folder.add(hostile)),), candidates, QUICK), folder
    )
    assert [outcome.status for outcome in result.results] == [Status.OK, Status.CRASHED, Status.OK]


def test_no_process_is_left_when_a_runner_closes(folder, doubling, hostile):
    with ChildRunner() as own:
        request = MeasureRequest(
            (CodeObject(folder.add(hostile)),), (doubling.candidate("leaves_a_thread"),), QUICK
        )
        assert own.measure(request, folder).results[0].status is Status.OK
        processes = measuring_processes(os.getpid())
    assert not any(map(is_running, set(processes) - set(measuring_processes(os.getpid()))))
