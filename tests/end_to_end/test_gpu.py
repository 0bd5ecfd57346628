"""A job for a GPU: tuned and verified by an agent that measures with an adapter of this machine."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pytest

import farrier
from farrier_device.adapters import NoAdapterError, find_adapter
from tests.end_to_end.agents import joined, registered

SHAPE = (2, 3, 13, 17)


@pytest.fixture
def adapter():
    try:
        return find_adapter()
    except NoAdapterError as error:
        pytest.skip(str(error))


@pytest.fixture
def agent(up, adapter, tmp_path):
    """An agent that measures with the adapter, enrolled as `gpu`."""
    with joined(up, "gpu", tmp_path, "--adapter", adapter.name) as process:
        yield process


@pytest.mark.slow
def test_a_job_is_tuned_and_verified_by_the_agent_of_a_gpu(up, agent, adapter, model, tmp_path):
    with up.client() as client:
        device = registered(client, agent, "gpu")
    assert set(device.description["kinds"]) == {"elf", "webgpu", "wgsl"}
    assert device.description["adapters"][0]["name"] == adapter.name
    assert device.device_class.endswith("-emulated") == adapter.is_emulated
    listed = up.command("devices").stdout
    assert listed.count(adapter.model[:8]) > 1  # The agent of the processor has seen it, too.
    assert up.command("devices", "trust", "gpu").returncode == 0
    flags = ("--target", "webgpu", "--shape", "x=2,3,13,17", "--trials", "4", "--watch")
    submitted = up.command("submit", model, *flags)
    assert submitted.returncode == 0, submitted.stderr + (tmp_path / "log").read_text()
    job = submitted.stdout.split()[0]
    assert "on gpu" in submitted.stderr
    fetched = up.command("fetch", job, "-o", tmp_path / "a.farrier")
    assert fetched.returncode == 0, fetched.stderr
    artifact = farrier.load(tmp_path / "a.farrier")
    verification = artifact.report["verification"]
    assert (verification["device"], verification["emulated"]) == ("gpu", adapter.is_emulated)
    assert verification["sandbox"].startswith("denials+landlock")
    assert artifact.manifest.machine == adapter.model
    x = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    np.testing.assert_allclose(artifact.run({"x": x})["y"], expected, atol=1e-5)
    records = up.command("records", "export", "-o", tmp_path / "records.jsonl")
    assert records.returncode == 0, records.stderr
    kept = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert any(record["device"] == "gpu" for record in kept) != adapter.is_emulated
