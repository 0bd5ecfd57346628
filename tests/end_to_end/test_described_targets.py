"""Jobs for a machine that the user describes: `farrier submit --target FILE.json`."""

from __future__ import annotations

import dataclasses
import json

import farrier
from farrier.targets import host
from farrier_device import describe

BOARD = {
    "arch": "aarch64",
    "cpu": "cortex-a72",
    "features": ["asimd", "fp"],
    "cores": 2,
    "l1_bytes": 32768,
    "l2_bytes": 1048576,
}


def test_a_description_of_this_machine_is_measured_on_its_device(up, model, tmp_path):
    description = {**dataclasses.asdict(describe.describe()), "l3_bytes": 3 << 20, "#": "smaller"}
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
    assert artifact.manifest.cpu == host().cpu
    # Its records are another machine's than those of this one.
    (target,) = {json.loads(line)["fingerprint"] for line in _records(artifact)}
    assert target != host().fingerprint


def test_without_a_device_of_its_kind_it_is_refused_or_made_unmeasured(up, model, tmp_path):
    (tmp_path / "board.json").write_text(json.dumps(BOARD))
    target = "--target", tmp_path / "board.json"
    refused = up.command("submit", model, *target)
    assert refused.returncode == 13
    assert "no device for cortex-a72 with 2 cores is connected (connected: local)" in refused.stderr


def test_a_field_that_is_impossible_is_named_before_anything_is_sent(up, model, tmp_path):
    (tmp_path / "board.json").write_text(json.dumps({**BOARD, "cores": 0}))
    refused = up.command("submit", model, "--target", tmp_path / "board.json")
    assert refused.returncode == 2
    assert "cores is 0, not a whole number of 1 to 4096" in refused.stderr


def _records(artifact):
    return artifact.members["records.jsonl"].decode().splitlines()
