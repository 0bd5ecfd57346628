"""Models of gigabytes: what compiling one takes of memory."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from bench.large import write_model
from farrier.artifact.params import ParamArena
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import Model

ROOT = Path(__file__).parents[2]


def _resident() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def test_weights_and_parameters_leave_memory_as_they_are_packed(tmp_path):
    path = tmp_path / "m.onnx"
    weights = write_model(path, 32 << 20, wide=2048, narrow=512)
    graph = import_model(Model.of_path(path)).graph
    arena = ParamArena()
    offsets = [arena.add(constant, None) for constant in graph.constants]
    packed = arena.pack()
    before = _resident()
    for constant, offset in zip(graph.constants, offsets, strict=True):
        parameters = np.frombuffer(packed.view, np.float32, constant.data.size, offset)
        np.testing.assert_array_equal(parameters, constant.data.ravel())
    assert _resident() - before > 1.5 * weights  # Neither copy is in memory.


def test_the_written_model_runs(tmp_path):
    path = tmp_path / "m.onnx"
    write_model(path, 1 << 20, wide=256, narrow=64)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.ones((4, 64), np.float32)})
    assert np.isfinite(y).all()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_peak_is_little_more_than_the_weights():
    command = [sys.executable, "-m", "bench.large"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
