"""`python -m bench --device cuda` with an emulated driver: a race, its target, its errors."""

from __future__ import annotations

import argparse
import sys

import pytest

from bench.__main__ import target_of
from bench.measure import Peer, Settings, measure
from bench.workloads import Workload
from farrier.errors import UsageError
from farrier.options.precision import Precision
from farrier_device.devices import libcuda
from tests.targets.cuda import driver
from tests.targets.cuda.libcuda import Library
from tests.targets.cuda.test_models import LAYERS_OF_FOUR

CUDA = argparse.Namespace(device="cuda")


def test_a_model_is_raced_where_the_gpu_is(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    driver.install(tmp_path, monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"))
    peers = [Peer(name, sys.executable) for name in ("onnxruntime", "onnxruntime-cuda")]
    settings = Settings(
        *(target_of(CUDA), Precision.F32, peers, 2, 1e-3, None, None, None, None), device="cuda"
    )
    failures = []
    result = measure(
        Workload("layers", lambda: LAYERS_OF_FOUR),
        1,
        settings,
        lambda event: None,
        lambda entrant, error: failures.append((entrant.label, str(error))),
    )
    assert [figure.label for figure in result.figures] == ["farrier", "onnxruntime"]
    assert result.figures[1].max_error < 1e-5
    assert result.roofline.bandwidth == 1e3 * (1 << 20)  # A launch takes a millisecond there.
    ((label, failure),) = failures
    assert label == "onnxruntime-cuda"
    assert "has no CUDAExecutionProvider; install onnxruntime-gpu" in failure


@pytest.mark.parametrize(
    ("capability", "target"),
    [((8, 0), "cuda:sm_80"), ((8, 7), "cuda:sm_86"), ((12, 1), "cuda:sm_120")],
)
def test_the_target_is_the_newest_that_the_gpu_runs(capability, target, monkeypatch):
    monkeypatch.setattr(libcuda, "_loaded", lambda: Library(capability))
    assert target_of(CUDA) == target


def test_a_machine_without_a_gpu_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(libcuda, "_loaded", lambda: Library(devices=0))
    with pytest.raises(UsageError, match="no CUDA device here: the NVIDIA driver finds no GPU"):
        target_of(CUDA)


def test_a_gpu_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr(libcuda, "_loaded", lambda: Library((7, 0)))
    with pytest.raises(UsageError, match=r"compute capability 7\.0, which is too old"):
        target_of(CUDA)
