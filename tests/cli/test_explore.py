"""The verb `explore`, and what it computes of shapes."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext
from xml.etree import ElementTree

import onnx
import onnx.compose
import pytest

import farrier as package
from farrier.errors import UsageError
from farrier.hardware.artifact_figures import figures_of
from farrier.hardware.explore import Exploration
from farrier.hardware.figures import Figures, area_of, front
from farrier.hardware.kept import Kept
from farrier.hardware.shapes import parse_variation, varied
from farrier.targets.dae.description import to_features
from farrier.targets.dae.device import observing
from farrier.targets.dae.machines import SMALL, VTA
from farrier.targets.dae.simulator.timed import simulate
from tests.targets.dae import models

LAYER = models.convolution(16, 16, (5, 5))
ON_HOST = models.convolution(3, 16, (13, 11), stride=3)
SHAPES, _ = varied([SMALL], [parse_variation("port.bytes=4,8")])


def _listening():
    return nullcontext(lambda event: None)


def test_shapes_are_compared_by_a_command(farrier, tmp_path):
    (tmp_path / "layer.onnx").write_bytes(LAYER)
    (tmp_path / "host.onnx").write_bytes(ON_HOST)
    words = ("explore", "dae:small", "--model", "layer.onnx", "--model", "host.onnx")
    done = farrier(*words, "--vary", "port.bytes=3,4,8", "--out", "results")
    assert done.returncode == 2
    assert "left out: the accelerator small-port.bytes-3: port.bytes of 3" in done.stderr
    assert "none of the shapes runs a kernel of host.onnx: " in done.stderr
    folder = tmp_path / "results"
    document = json.loads((folder / "pareto.json").read_text())
    narrow, wide, *others = document["results"]
    assert list(document["shapes"]) == [narrow["shape"], wide["shape"]]
    assert narrow["cycles"] > wide["cycles"] > 0
    assert [each["on_front"] for each in (narrow, wide, *others)] == [True, True, False, False]
    assert (folder / "shapes" / "small-port.bytes-8.toml").exists()
    drawn = ElementTree.parse(folder / "pareto.svg").findall(".//{*}circle")
    assert len(drawn) == 2  # The only figure of area that differs is the port's.


@pytest.mark.parametrize("options", [("--private",), ("--name", "sizes")])
def test_what_concerns_a_server_needs_one(farrier, tmp_path, options):
    (tmp_path / "layer.onnx").write_bytes(LAYER)
    words = ("explore", "dae:small", "--model", "layer.onnx", "--out", "results")
    done = farrier(*words, *options)
    assert done.returncode == 2
    assert f"{options[0]} is for an exploration on a farm" in done.stderr
    assert "add --server URL" in done.stderr
    assert not (tmp_path / "results").exists()


def test_an_interrupted_run_goes_on(tmp_path):
    model = tmp_path / "layer.onnx"
    model.write_bytes(LAYER)

    def results():
        return Exploration(SHAPES, [model], tmp_path / "results", trials=2).run(_listening)

    interrupted = results()
    first = next(interrupted)
    interrupted.close()
    with (tmp_path / "results" / "results.jsonl").open("a") as file:
        file.write('{"key": "a line that was cut sh')
    again, second = results()
    assert (first.is_kept, again.is_kept, second.is_kept) == (False, True, False)
    assert again.figures == first.figures
    assert all(each.is_kept for each in results())
    model.write_bytes(models.convolution(16, 16, (5, 6)))
    assert not next(results()).is_kept


def test_placements_are_kept_and_decide_by_time(tmp_path, monkeypatch):
    pytest.importorskip("amaranth")
    from farrier.targets.dae.rtl import area, parts

    clocks = {"small-port.bytes-4": (60.0, 50.0, 70.0), "small-port.bytes-8": ()}
    placed = []

    def place(shape):
        placed.append(shape.name)
        part = "ECP5-45" if clocks[shape.name] else ""
        return area.Placed(parts.Cells(5, 4, 3, 2), part, clocks[shape.name])

    monkeypatch.setattr(area, "place", place)
    model = tmp_path / "layer.onnx"
    model.write_bytes(LAYER)
    for _ in range(2):
        exploration = Exploration(SHAPES, [model], tmp_path / "results")
        figures = [counted for _, counted in exploration.synthesize(places=True)]
        assert [each["part"] for each in figures] == ["ECP5-45", ""]
        narrow, wide = list(exploration.run(_listening)) and exploration.rows()
        assert narrow["placed_ms"] == pytest.approx(narrow["cycles"] / 60e3)
        assert narrow["area"]["lut"] == 5
        assert "mhz" not in wide
    assert placed == list(clocks)


def test_models_of_one_name_stay_apart(tmp_path):
    paths = [tmp_path / folder / "m.onnx" for folder in ("a", "b")]
    for path, columns in zip(paths, (16, 32), strict=True):
        path.parent.mkdir()
        path.write_bytes(models.product(1, 16, columns))
    exploration = Exploration([SMALL], [*paths, paths[0]], tmp_path / "results")
    assert len(list(exploration.run(_listening))) == 2
    assert [(row["model"], row["on_front"]) for row in exploration.rows()] == [
        (str(path), True) for path in paths
    ]


def test_figures_are_those_of_a_run():
    on_device, on_host = (
        onnx.compose.add_prefix(onnx.load_from_string(model), name)
        for model, name in ((LAYER, "a_"), (ON_HOST, "b_"))
    )
    model = onnx.compose.merge_models(on_device, on_host, []).SerializeToString()
    artifact = package.compile(model, target="dae:vta", verify=False)
    cycles = []

    def observed(bound):
        program = bound.program
        cycles.append(simulate(program.instructions, program.accelerator).cycles)

    with observing(observed):
        artifact.run(models.inputs(model))
    figures = figures_of(artifact)
    assert figures.cycles == sum(cycles) > 0
    assert figures.device_ms == pytest.approx(figures.cycles / 100e3)
    products = 16 * 16 * 9 * (5 * 5), 16 * 3 * 9 * (5 * 4)
    assert figures.share == pytest.approx(products[0] / sum(products))
    assert figures.reason


def test_the_front_has_what_nothing_betters():
    fast, slow, partial, idle = (
        Figures(cycles, 0.0, None, share, kernels)
        for cycles, share, kernels in ((100, 1.0, 3), (200, 1.0, 3), (50, 0.5, 1), (0, 0.0, 0))
    )
    large, small = {"multipliers": 64}, {"multipliers": 16}
    every = [(fast, large), (slow, small), (slow, large), (partial, large), (idle, small)]
    figures, areas = zip(*every, strict=True)
    assert front(figures, areas) == [True, True, False, True, False]
    assert front([fast, fast], [large, large]) == [True, True]
    # With the clocks of all shapes, the time counts.
    assert front([fast, slow], [large, large], [10.0, 30.0]) == [False, True]
    assert front([fast, slow], [large, large], [10.0, None]) == [True, False]


def test_fields_vary_in_all_combinations():
    variations = map(parse_variation, ["matrix.inner,matrix.outer=8,16", "port.bytes=4,8,5"])
    shapes, refused = varied([SMALL], list(variations))
    assert [(each.matrix.inner, each.matrix.outer, each.port.bytes) for each in shapes] == [
        *((8, 8, 4), (8, 8, 8)),
        *((16, 16, 4), (16, 16, 8)),
    ]
    assert len({each.name for each in shapes}) == 4
    assert len(refused) == 2
    assert varied([VTA, VTA], [])[0] == [VTA]
    assert area_of(VTA)["scratchpad_bytes"] == 416 << 10
    assert len(set(map(to_features, shapes))) == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port.bytes", "--vary port.bytes is not a field with whole numbers"),
        ("port.bytes=4,x", "is not a field with whole numbers"),
        ("port.width=4", "--vary port.width: a description has no such number"),
        ("matrix.input=4", "--vary matrix.input: a description has no such number"),
        ("matrix=4", "--vary matrix: a description has no such number"),
    ],
)
def test_a_variation_of_nothing_is_refused(text, words):
    with pytest.raises(UsageError, match=words):
        varied([SMALL], [parse_variation(text)])


def test_two_shapes_of_one_name_are_refused():
    other = dataclasses.replace(SMALL, mhz=90)
    with pytest.raises(UsageError, match="two shapes have the name small"):
        varied([SMALL, other], [])


def test_the_newest_of_a_key_counts(tmp_path):
    kept = Kept(tmp_path / "kept.jsonl")
    for job in ("first", "second"):
        kept.add("job", {"job": job})
    assert Kept(tmp_path / "kept.jsonl").get("job") == {"job": "second"}
    assert kept.get("other") is None
