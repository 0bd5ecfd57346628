"""A race: outputs and figures, engines that wait without a core, engines that fail."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import farrier
from farrier.bench.lane import EngineProcess, Round
from farrier.bench.race import ENGINES, Entrant, missing_packages, peer, race, run_turns
from farrier.errors import FarrierError, UsageError
from farrier.options.precision import Precision
from farrier.packaging.draws import random_inputs
from farrier.targets import host
from farrier_device.baseline.lane import Order
from tests.waiting import wait_until


@pytest.fixture
def inputs(small_model):
    return random_inputs(farrier.load(small_model.artifact).manifest.inputs)


def _state(pid: int) -> str:
    """Return the state of every thread from /proc; T is stopped."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return "".join(sorted((t / "stat").read_text().rpartition(")")[2].split()[0] for t in tasks))


def _process(small_model, inputs, folder: Path) -> EngineProcess:
    order = Order(ENGINES["onnxruntime"], small_model.onnx, 2, inputs=())
    return EngineProcess("onnxruntime", sys.executable, order, inputs, folder)


def test_the_outputs_agree_and_the_figures_are_of_all_rounds(small_model, inputs):
    entrants = [
        Entrant("farrier", small_model.artifact),
        Entrant("farrier:again", small_model.artifact),
        Entrant("onnxruntime", small_model.onnx),
    ]
    ours, again, peer = race(entrants, inputs, threads=1, rounds=4, round_s=0.02)
    assert (ours.label, ours.ratio, ours.max_error) == ("farrier", 1.0, 0.0)
    assert again.max_error == 0.0
    assert 0 < peer.max_error < 1e-4
    for figure in (ours, again, peer):
        assert len(figure.rounds_ms) == 4
        assert figure.best_ms <= figure.p10_ms <= figure.median_ms <= figure.p90_ms
        assert figure.samples >= 4
        assert figure.peak_bytes > 10 << 20
        assert 0 < figure.load_s < 30
    ratios = [a / b for a, b in zip(ours.rounds_ms, peer.rounds_ms, strict=True)]
    assert peer.ratio == pytest.approx(statistics.median(ratios))
    assert peer.model_bytes == small_model.onnx.stat().st_size


@pytest.mark.skipif("avx512_bf16" not in host().features, reason="no bf16 dot products here")
def test_errors_of_bf16_are_against_an_engine_in_f32(small_model, inputs, tmp_path):
    artifact = farrier.compile(str(small_model.onnx), threads=1, precision="bf16", verify=False)
    path = artifact.save(tmp_path / "bf16.farrier")
    entrants = [
        Entrant("farrier", path, precision=Precision.BF16),
        peer("onnxruntime", small_model.onnx, sys.executable, Precision.BF16),
        peer("openvino", small_model.onnx, sys.executable, Precision.BF16),
    ]
    ours, exact, other = race(entrants, inputs, threads=1, rounds=1, round_s=0.01)
    assert [figure.label for figure in (ours, exact, other)] == [
        "farrier",
        "onnxruntime",
        "openvino:bf16",
    ]
    assert exact.max_error == 0.0
    assert 1e-5 < ours.max_error < 3e-2
    assert 1e-5 < other.max_error < 3e-2


def test_an_engine_is_asked_only_for_what_it_can(small_model):
    with pytest.raises(UsageError, match="onnxruntime is not asked for bf16"):
        Entrant("onnxruntime", small_model.onnx, precision=Precision.BF16)


def test_engines_are_kept_to_a_target(small_model, inputs):
    entrants = [Entrant("farrier", small_model.artifact), Entrant("onnxruntime", small_model.onnx)]
    if not missing_packages("openvino"):
        entrants.append(Entrant("openvino", small_model.onnx))
    figures = race(entrants, inputs, threads=1, target="x86-64-v3", rounds=1, round_s=0.01)
    limits = {figure.label: figure.limited for figure in figures}
    assert limits.pop("farrier") == ""
    assert "XGETBV" in limits["onnxruntime"]
    assert "ONEDNN_MAX_CPU_ISA=AVX2" in limits.get("openvino", "ONEDNN_MAX_CPU_ISA=AVX2")
    assert all(figure.max_error < 1e-4 for figure in figures)
    with pytest.raises(UsageError, match="onnxruntime cannot be kept to x86-64-v2"):
        race(entrants, inputs, threads=1, target="x86-64-v2", rounds=1)


def test_an_engine_that_waits_has_no_core(small_model, inputs, tmp_path):
    with _process(small_model, inputs, tmp_path) as process:
        pid = process.pid
        assert set(_state(pid)) == {"T"}
        assert len(process.run(3).samples_ms) == 3
        assert set(_state(pid)) == {"T"}
    assert not Path(f"/proc/{pid}").exists()


def test_a_stopped_engine_does_not_outlive_the_race(small_model, inputs, tmp_path):
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from farrier.bench.lane import EngineProcess\nfrom farrier.bench.race import ENGINES\n"
        "from farrier.files.arrays import load_arrays\n"
        "from farrier_device.baseline.lane import Order\n"
        "folder, model = map(Path, sys.argv[1:])\n"
        "order = Order(ENGINES['onnxruntime'], model, 1, inputs=())\n"
        "inputs = load_arrays(folder / 'in.npz')\n"
        "with EngineProcess('x', sys.executable, order, inputs, folder) as process:\n"
        "    print(process.pid, flush=True)\n    time.sleep(60)\n"
    )
    np.savez(tmp_path / "in.npz", **inputs)
    words = [tmp_path, small_model.onnx]
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    # A container without an init does not reap it.
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_the_python_of_an_engine_may_have_another_farrier(small_model, inputs, tmp_path):
    other = tmp_path / "site" / "farrier_device"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise ImportError('of another version')")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={other.parent} exec {sys.executable} "$@"\n')
    python.chmod(0o700)
    entrant = Entrant("onnxruntime", small_model.onnx, python=str(python))
    (figures,) = race([entrant], inputs, threads=1, rounds=1, round_s=0.01)
    assert figures.samples > 0
    with pytest.raises(FarrierError, match="onnxruntime cannot be started"):
        race([Entrant("onnxruntime", small_model.onnx, python="/no/python")], inputs, threads=1)


def test_an_engine_that_cannot_run_the_model_is_told_and_left_out(small_model, inputs, tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    entrants = [Entrant("farrier", small_model.artifact), Entrant("onnxruntime:x", broken)]
    failures = []
    figures = race(
        entrants,
        inputs,
        threads=1,
        rounds=1,
        round_s=0.01,
        failed=lambda entrant, error: failures.append((entrant.label, error.message)),
    )
    assert [figure.label for figure in figures] == ["farrier"]
    ((label, message),) = failures
    assert label == "onnxruntime:x"
    assert "cannot run the model" in message
    with pytest.raises(FarrierError, match="cannot run the model"):
        race(entrants, inputs, threads=1, rounds=1)


def test_an_engine_that_dies_says_how(small_model, inputs, tmp_path):
    with _process(small_model, inputs, tmp_path) as process:
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(FarrierError, match="SIGKILL"):
            process.run(1)


class _Rounds:
    """An entrant whose rounds are their numbers, after two to find how many runs they have; others
    take `others` of the cores, turn by turn."""

    def __init__(self, others: list[float]) -> None:
        self._others = iter(others)
        self._number = itertools.count()

    def run(self, count: int) -> Round:
        if count < 20:
            return Round((10.0,), 0.0)
        assert count == 20
        return Round((float(next(self._number)),), next(self._others))


@pytest.mark.parametrize(
    ("calm", "kept"), [(None, [0, 1]), (0.1, [1, 3]), (0.55, [1, 2]), (0.01, [6, 3])]
)
def test_disturbed_turns_are_run_again_and_the_calmest_are_kept(calm, kept):
    first = _Rounds([0.0, 0.05, 0.5, 0.04, 0.9, 0.9, 0.03, 0.9])
    second = _Rounds([1.0, 0.0, 0.1, 0.02, 0.9, 0.9, 0.02, 0.9])
    for own in run_turns([first, second], rounds=2, round_s=0.2, calm=calm):
        assert {figure.median_ms for figure in own} == set(kept)


def test_what_an_entrant_may_be(small_model):
    on_cpus = {name for name, engine in ENGINES.items() if not engine.accelerator}
    assert on_cpus == {"farrier", "onnxruntime", "openvino", "iree", "tvm", "inductor"}
    with pytest.raises(UsageError, match="unknown engine 'abacus'"):
        Entrant("abacus", small_model.onnx)
    assert missing_packages("onnxruntime") == []
    for engine in ENGINES:
        if missing_packages(engine):
            with pytest.raises(UsageError, match="is not installed"):
                Entrant(engine, small_model.onnx)
            assert Entrant(engine, small_model.onnx, python="/elsewhere").engine == engine
