"""A job for an accelerator: tuned and verified by an agent that simulates it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import farrier
from tests.end_to_end.agents import joined, registered
from tests.targets.dae import models


@pytest.mark.slow
def test_a_job_is_tuned_and_verified_by_the_agent_of_a_simulator(up, tmp_path):
    model = tmp_path / "layer.onnx"
    model.write_bytes(models.convolution(32, 32, (12, 12), adds=True))
    with joined(up, "sim", tmp_path, "--simulate", "dae:vta") as agent, up.client() as client:
        device = registered(client, agent, "sim")
        assert set(device.description["kinds"]) == {"elf", "dae", "dae-library"}
        assert device.device_class.startswith("vta-1c-")
        assert "vta, simulated" in up.command("devices").stdout
        assert up.command("devices", "trust", "sim").returncode == 0
        flags = ("--target", "dae:vta", "--trials", "6", "--watch")
        submitted = up.command("submit", model, *flags)
        assert submitted.returncode == 0, submitted.stderr + (tmp_path / "log").read_text()
        job = submitted.stdout.split()[0]
        other = up.command("submit", model, "--target", "dae:wide", "--trials", "6")
        assert other.returncode != 0
        assert "dae:wide" in other.stderr
        flags = ("--trials", "6", "--server", up.url, "--out", tmp_path / "shapes")
        words = ("explore", "dae:vta", "--model", model, *flags)
        explored = up.command(*words)
        assert explored.returncode == 0, explored.stderr
        assert len(list(client.jobs())) == 2
        assert "kept from an earlier run" in up.command(*words).stderr
    (result,) = json.loads((tmp_path / "shapes" / "pareto.json").read_text())["results"]
    assert result["cycles"] > 0
    fetched = up.command("fetch", job, "-o", tmp_path / "a.farrier")
    assert fetched.returncode == 0, fetched.stderr
    artifact = farrier.load(tmp_path / "a.farrier")
    verification = artifact.report["verification"]
    assert (verification["device"], verification["emulated"]) == ("sim", False)
    assert verification["sandbox"].startswith("denials+landlock")
    inputs = models.inputs(model.read_bytes())
    (result,) = artifact.run(inputs).values()
    assert np.array_equal(result, models.results(model.read_bytes(), "host"))
    records = up.command("records", "export", "-o", tmp_path / "records.jsonl")
    assert records.returncode == 0, records.stderr
    kept = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert any(record["device"] == "sim" for record in kept)
