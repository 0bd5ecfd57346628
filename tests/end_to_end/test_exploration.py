"""An exploration of two shapes as jobs of a farm: compiled by its worker, tuned and verified by
agents that simulate the shapes, and stored at its server while the jobs run."""

from __future__ import annotations

import json

import pytest

from farrier.hardware.shapes import parse_variation, varied
from farrier.targets.dae.description import to_json, to_toml
from farrier.targets.dae.machines import SMALL
from tests.end_to_end.agents import joined, registered
from tests.targets.dae import models


@pytest.mark.long
def test_two_shapes_are_jobs_whose_results_the_server_has(up, tmp_path):
    shapes, _ = varied([SMALL], [parse_variation("port.bytes=4,8")])
    model = tmp_path / "layer.onnx"
    model.write_bytes(models.convolution(16, 16, (5, 5)))
    words = ["explore", "dae:small", "--vary", "port.bytes=4,8", "--model", model, "--trials", "2"]
    words += ["--server", up.url, "--out", tmp_path / "ports", "--name", "ports"]
    folders = [tmp_path / shape.name for shape in shapes]
    for folder, shape in zip(folders, shapes, strict=True):
        folder.mkdir()
        (folder / "shape.toml").write_text(to_toml(shape))
    simulated = [("--simulate", str(folder / "shape.toml")) for folder in folders]
    with (
        up.client() as client,
        joined(up, "narrow", folders[0], *simulated[0]) as narrow,
    ):
        registered(client, narrow, "narrow")
        # Nobody simulates the second shape yet, and the exploration is there already.
        refused = up.command(*words)
        assert refused.returncode != 0
        (begun,) = client.explorations.list()
        assert (begun.name, begun.result_count, begun.shape_count) == ("ports", 0, 2)
        with joined(up, "wide", folders[1], *simulated[1]) as wide:
            registered(client, wide, "wide")
            explored = up.command(*words)
        assert explored.returncode == 0, explored.stderr
        assert f"the results are shown at {up.url}/explorations/{begun.id}" in explored.stderr
        assert [each.id for each in client.explorations.list()] == [begun.id]
        exploration = client.explorations.get(begun.id)
        assert {each.state for each in exploration.results} == {"succeeded"}
        jobs = [each.job for each in exploration.results]
        assert set(jobs) == {job.id for job in client.jobs()}
    rows = json.loads((tmp_path / "ports" / "pareto.json").read_text())["results"]
    shown = [(each.shape, each.cycles, each.on_front) for each in exploration.results]
    assert shown == [(row["shape"], row["cycles"], row["on_front"]) for row in rows]
    slow, fast = (each.cycles for each in exploration.results)
    assert slow > fast > 0
    assert [each.description for each in exploration.shapes] == [to_json(each) for each in shapes]
