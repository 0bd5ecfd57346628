"""Jobs for a machine that the user describes: `farrier submit --target FILE.json`."""

from __future__ import annotations

import dataclasses
import json

import pytest

import farrier
from farrier.targets import host
from farrier_device import describe
from tests.here import CLASS

BOARD = {
    "arch": "aarch64",
    "cpu": "cortex-a72",
    "features": ["asimd", "fp"],
    "cores": 2,
    "l1_bytes": 32768,
    "l2_bytes": 1048576,
}


@pytest.mark.long
def test_a_description_of_this_machine_is_measured_on_its_device(up, model, tmp_path):
    description = {**dataclasses.asdict(describe.describe()), "#": "this one"}
    (tmp_path / "mine.json").write_text(json.dumps(description, indent=2))
    flags = "--target", tmp_path / "mine.json", "--shape", "x=2,3,13,17", "--trials", "4", "--watch"
    submitted = up.command("submit", model, *flags)
    assert submitted.returncode == 0, submitted.stderr
    assert "verified on local" in submitted.stderr
    job = submitted.stdout.split()[0]
    (row,) = (line for line in up.command("jobs").stdout.splitlines() if job in line)
    assert f"with {description['cores']} cores" in row
    fetched = up.command("fetch", job, "-o", tmp_path / "a.farrier")
    assert fetched.returncode == 0, fetched.stderr
    artifact = farrier.load(tmp_path / "a.farrier")
    assert artifact.manifest.machine == host().cpu
    records = [json.loads(line) for line in _records(artifact)]
    assert {record["fingerprint"] for record in records} == {host().fingerprint}
    assert {(record["device_class"], record["device"]) for record in records} == {
        (CLASS.id, "local")
    }


def test_without_a_device_of_its_class_it_is_refused_and_told_what_is_there(up, model, tmp_path):
    here = dataclasses.asdict(describe.describe())
    for machine, name in ((BOARD, "cortex-a72-2c-"), ({**here, "l3_bytes": 3 << 20}, "")):
        (tmp_path / "board.json").write_text(json.dumps(machine))
        refused = up.command("submit", model, "--target", tmp_path / "board.json")
        assert refused.returncode == 13
        assert f"no device for class:{name}" in refused.stderr
        assert f"class:{CLASS.id} (1 connected)" in refused.stderr.replace("\n", " ")
    bound = up.command("submit", model, "--target", "device:remote", "--shape", "x=2,3,13,17")
    assert (bound.returncode, "no device 'remote'" in bound.stderr) == (12, True)


def test_a_field_that_is_impossible_is_named_before_anything_is_sent(up, model, tmp_path):
    (tmp_path / "board.json").write_text(json.dumps({**BOARD, "cores": 0}))
    refused = up.command("submit", model, "--target", tmp_path / "board.json")
    assert refused.returncode == 2
    assert "cores: 0 is not in the range 1 to 4096" in refused.stderr


def _records(artifact):
    return artifact.members["records.jsonl"].decode().splitlines()
