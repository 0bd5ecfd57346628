"""A compiled kernel raced with other engines: real ones, on models that they run, refuse or never
end."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier_device.baseline.engines import NAMES, installed
from farrier_device.measurement import (
    CodeObject,
    DeviceFault,
    MeasureRequest,
    MeasureResult,
    Rival,
    Status,
    Tensor,
    TimingPolicy,
    request_from_json,
    result_from_json,
    to_json,
)
from farrier_device.runners import baselines
from farrier_device.runners.baselines import Engines
from farrier_device.runners.local import ChildRunner
from tests.rpc_device.doubling import COUNT
from tests.waiting import wait_until

POLICY = TimingPolicy(timeout_s=20.0)


@pytest.fixture(scope="module")
def racer(tmp_path_factory):
    """A runner on which models are raced with the installed engines."""
    state = tmp_path_factory.mktemp("state")
    engines = Engines(installed(), folder=state / "models", secrets=(state,))
    with ChildRunner(engines=engines) as runner:
        yield runner


def scaling(factor: float) -> onnx.ModelProto:
    """y = factor * x over f32[COUNT]."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [COUNT]) for name in "xy")
    weights = numpy_helper.from_array(np.full(COUNT, factor, np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [weights]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def endless() -> bytes:
    """y = x + x, again and again: longer than anybody waits."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [COUNT]) for name in "xy")
    scalars = [
        numpy_helper.from_array(np.array(1 << 62, np.int64), "trips"),
        numpy_helper.from_array(np.array(True), "on"),
    ]
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["c2"]),
            helper.make_node("Sin", ["v"], ["v2"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [COUNT]),
        ],
        [
            helper.make_tensor_value_info("c2", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v2", TensorProto.FLOAT, [COUNT]),
        ],
    )
    node = helper.make_node("Loop", ["trips", "on", "x"], ["y"], body=body)
    graph = helper.make_graph([node], "g", [x], [y], scalars)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


@pytest.fixture
def request_of(folder, library, doubling):
    def make(
        model: bytes, engine: str = "onnxruntime", files: tuple = (), **fields
    ) -> MeasureRequest:
        rival = Rival(
            engine,
            (("", folder.add(model)), *files),
            (Tensor("x", "f32", (COUNT,), doubling.input),),
            (Tensor("y", "f32", (COUNT,), doubling.output),),
            **{"tolerance": 1e-4, "rounds": 4, "round_s": 0.01, **fields},
        )
        return MeasureRequest(
            (CodeObject(folder.add(library)),), (doubling.candidate("right"),), POLICY, rival=rival
        )

    return make


def is_right(result: MeasureResult) -> None:
    assert result.fault is None, result.message
    assert result.rival.message == ""
    assert result.rival.max_error < 1e-6
    assert result.rival.load_s > 0
    [own] = result.results
    assert own.status is Status.OK
    assert len(result.rival.rounds_ns) == len(result.rival.ours_ns) == 4
    assert all(ns > 0 for ns_of_round in result.rival.rounds_ns for ns in ns_of_round)
    assert own.samples_ns == tuple(ns for ns_of_round in result.rival.ours_ns for ns in ns_of_round)


def is_told(result: MeasureResult, *words: str) -> None:
    """The engine was not timed, which is nobody's fault."""
    assert result.fault is None, result.message
    assert not result.rival.rounds_ns
    assert all(word in result.rival.message for word in words), result.rival.message
    assert [outcome.status for outcome in result.results] == [Status.REJECTED]


def processes() -> list[int]:
    """Those of engines, of this process."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes()
            if parent == os.getpid() and b"farrier_device.baseline.enclosed" in command:
                pids.append(int(stat.parent.name))
    return pids


def wait_for_process() -> int:
    return wait_until(processes, "the engine's process does not start")[0]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class TestRaces:
    @pytest.mark.parametrize("engine", NAMES)
    def test_rounds_in_turn(self, racer, folder, request_of, engine):
        result = racer.measure(request_of(scaling(2.0).SerializeToString(), engine), folder)
        is_right(result)
        assert (result.rival.engine, result.rival.version) == (engine, installed()[engine])
        assert result_from_json(to_json(result)) == result
        assert not processes()

    @pytest.mark.parametrize("location", ["weights/w.data", "model.onnx"])
    def test_data_lies_where_the_model_says(self, racer, folder, request_of, tmp_path, location):
        place = tmp_path / "exported"
        (place / location).parent.mkdir(parents=True)
        onnx.save(
            scaling(2.0),
            place / "m.onnx",
            save_as_external_data=True,
            location=location,
            size_threshold=0,
        )
        files = ((location, folder.add((place / location).read_bytes())),)
        is_right(racer.measure(request_of((place / "m.onnx").read_bytes(), files=files), folder))

    def test_it_stands_still_while_it_is_not_its_turn(self, racer, folder, request_of, doubling):
        request = request_of(scaling(2.0).SerializeToString(), rounds=3)
        request = dataclasses.replace(request, candidates=(doubling.candidate("slow"),))
        results: list[MeasureResult] = []
        racing = threading.Thread(target=lambda: results.append(racer.measure(request, folder)))
        racing.start()
        states = set()
        while racing.is_alive():
            for pid in processes():
                with contextlib.suppress(OSError):
                    states.add(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
            time.sleep(0.005)
        assert results[0].rival.message == ""
        assert "T" in states

    def test_a_manifest_survives_the_way(self, request_of):
        request = request_of(b"model")
        assert request_from_json(to_json(request), whole=True) == request
        assert {sha256 for _, sha256 in request.rival.files} < request.blobs()
        raw = to_json(dataclasses.replace(request, rival=None))
        assert request_from_json(raw, whole=True).rival is None


class TestWhatAnEngineDoes:
    def test_it_answers_wrong(self, racer, folder, request_of):
        result = racer.measure(request_of(scaling(3.0).SerializeToString()), folder)
        is_told(result, "the engine's outputs differ by 5.0e-01")
        assert result.rival.max_error == pytest.approx(0.5)

    def test_it_cannot_read_the_model(self, racer, folder, request_of):
        is_told(racer.measure(request_of(b"no model at all"), folder), "cannot run the model")

    def test_it_is_not_here(self, runner, folder, request_of):
        model = scaling(2.0).SerializeToString()
        is_told(runner.measure(request_of(model), folder), "does not have the engine")

    def test_it_hangs(self, racer, folder, request_of):
        begin = time.monotonic()
        is_told(racer.measure(request_of(endless(), timeout_s=3.0), folder), "within the 3 s")
        assert time.monotonic() - begin < 15
        assert not processes()
        is_right(racer.measure(request_of(scaling(2.0).SerializeToString()), folder))

    def test_no_job_has_a_device_for_longer(self, racer, folder, request_of, monkeypatch):
        monkeypatch.setattr(baselines, "_MOST_S", 2.0)
        is_told(racer.measure(request_of(endless(), timeout_s=1e9), folder), "within the 2 s")

    def test_it_is_killed(self, racer, folder, request_of):
        def kill_at_work() -> None:
            pid = wait_for_process()
            wait_until(lambda: _cpu_s(pid) >= 1.5)  # It has started, and runs.
            os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_at_work)
        killer.start()
        result = racer.measure(request_of(endless(), timeout_s=60.0), folder)
        killer.join()
        is_told(result, "killed by SIGKILL")
        is_right(racer.measure(request_of(scaling(2.0).SerializeToString()), folder))

    def test_the_batch_is_called_off(self, racer, folder, request_of):
        cancelled = threading.Event()
        results: list[MeasureResult] = []
        request = request_of(endless(), timeout_s=60.0)
        racing = threading.Thread(
            target=lambda: results.append(racer.measure(request, folder, cancelled))
        )
        racing.start()
        wait_for_process()
        cancelled.set()
        racing.join(10)
        [result] = results
        assert result.fault is DeviceFault.LOST
        assert not processes()


class TestWhatAJobMayAsk:
    @pytest.mark.parametrize("location", ["../planted", "/tmp/farrier-planted", "a/../../planted"])
    def test_no_file_outside_of_the_model_s_folder(self, racer, folder, request_of, location):
        files = ((location, folder.add(b"data")),)
        result = racer.measure(request_of(b"model", files=files), folder)
        is_told(result, "outside of its folder")
        assert not Path("/tmp/farrier-planted").exists()

    def test_no_other_program(self, racer, folder, request_of):
        is_told(
            racer.measure(request_of(b"model", engine="os"), folder), "does not have the engine"
        )

    def test_a_type_that_numpy_lacks(self, racer, folder, request_of):
        request = request_of(scaling(2.0).SerializeToString())
        inputs = (dataclasses.replace(request.rival.inputs[0], dtype="bf16"),)
        request = dataclasses.replace(
            request, rival=dataclasses.replace(request.rival, inputs=inputs)
        )
        is_told(racer.measure(request, folder), "x is of type bf16")

    def test_an_emulated_device_times_nothing(self, folder, request_of, tmp_path):
        engines = Engines(installed(), folder=tmp_path / "models")
        with ChildRunner(emulated=True, engines=engines) as emulated:
            result = emulated.measure(request_of(scaling(2.0).SerializeToString()), folder)
        is_told(result, "emulated")
        assert not result.results[0].samples_ns


EXPLORER = """
import ctypes, os, socket, sys
from pathlib import Path
from farrier_device import denials, installation, sandbox
from farrier_device.landlock import Access
secret, model = map(Path, sys.argv[1:])
reads = installation.readable([secret])
reads[model] = Access.READ
level = sandbox.enter(
    sandbox.Limits.of_machine(), os.getppid(), reads=reads, filtered=denials.restrict_alone
)
assert "seccomp+landlock" in level, level

def denied(act):
    try:
        act()
    except (PermissionError, BlockingIOError):
        return True
    return False

import numpy, onnxruntime  # behind the walls
assert (model / "m.onnx").read_bytes() == b"model"
assert denied(lambda: (model / "m.onnx").write_bytes(b"other"))
assert denied(lambda: (model / "new").write_bytes(b""))
assert denied((secret / "token").read_bytes)
assert denied(lambda: open("/etc/passwd").read())
assert denied(lambda: open("/tmp/farrier-planted", "w"))
assert denied(lambda: open(f"/proc/{os.getppid()}/environ", "rb").read())
assert denied(os.fork)
assert denied(lambda: os.kill(os.getppid(), 0))
assert denied(socket.socket)
print("enclosed")
"""


def test_what_its_process_reaches(tmp_path):
    """The walls that `enclosed.main` raises, by themselves."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "token").write_text("secret")
    model = tmp_path / "state" / "model"
    model.mkdir()
    (model / "m.onnx").write_text("model")
    done = subprocess.run(
        [sys.executable, "-c", EXPLORER, str(tmp_path / "state"), str(model)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.stdout.strip() == "enclosed", done.stderr


def test_the_agent_imports_neither_numpy_nor_an_engine():
    script = (
        "import sys, farrier_device.agent\n"
        "from farrier_device.baseline.engines import installed\n"
        "print(*sorted(installed()))\n"
        "print(*{'numpy', 'onnxruntime', 'openvino', 'farrier'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.split("\n")[:2] == [" ".join(NAMES), ""]
