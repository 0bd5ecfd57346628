"""Whole models on accelerators: the integers are those of the processor, bit for bit."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import re
import textwrap
import zipfile

import numpy as np
import pytest

import farrier
from farrier.errors import ArtifactError
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ops.verify import verify
from farrier.passes import Settings
from farrier.passes.eliminate_dead_code import eliminate_dead_code
from farrier.records import MemoryRecords
from farrier.targets import parse_target
from farrier.targets.dae.fill_channels import fill_channels
from farrier.targets.dae.instructions import Instruction, Kind
from farrier.targets.dae.machines import VTA
from farrier.targets.dae.passes import write_paddings
from farrier.targets.dae.program import Program, ProgramError
from farrier.targets.dae.rules import RULE, why_not
from tests.targets.dae import models


def _kernels_on_device(artifact: farrier.Artifact, path) -> int:
    artifact.save(path)
    with zipfile.ZipFile(path) as file:
        return sum(name.endswith(".dae") for name in file.namelist())


@pytest.mark.parametrize(
    "model",
    [
        models.convolution(16, 32),
        models.convolution(32, 16, (9, 8), stride=2, adds=True),
        models.convolution(16, 16, (11, 6), pad=2, dilation=2, clips=True),
        models.convolution(64, 32, (14, 14), kernel=1, pad=0, adds=True),
        models.convolution(24, 40, (14, 14), adds=True),
        models.convolution(48, 48, (15, 12), group=48, clips=True),
        models.convolution(32, 32, (40, 38), group=32, stride=2, dilation=2, pad=2, adds=True),
        models.convolution(3, 32, (15, 17), kernel=7, stride=2, pad=3),
        models.convolution(1, 20, (13, 13), kernel=5, pad=2),
        models.convolution(8, 12, (7, 9)),
        models.product(5, 48, 32),
        models.product(1, 64, 48),
        models.product(1, 64, 1000),
        models.product(7, 32, 37),
        models.product(3, 32, 9),
        models.addition((1, 16, 7, 9)),
        models.addition((6, 32), clips=True),
        models.addition((3, 5, 16), (117, 0)),
    ],
    ids=[
        "plain",
        "stride, sum",
        "dilation, clip",
        "1x1",
        "partial blocks",
        "depthwise",
        "depthwise, stride, dilation, sum",
        "three channels, stride",
        "one channel",
        "half a block",
        "product",
        "row",
        "row of partial blocks",
        "rows of partial blocks",
        "rows below a block",
        "addition",
        "addition of rows, clip",
        "addition of a line, one zero point",
    ],
)
def test_a_layer_has_the_integers_of_the_processor(model, tmp_path):
    artifact = farrier.compile(model, target="dae:vta", verify=False)
    assert _kernels_on_device(artifact, tmp_path / "m.farrier") == 1
    (result,) = artifact.run(models.inputs(model)).values()
    expected = models.results(model, "host")
    assert len(np.unique(expected)) > 20
    assert np.array_equal(result, expected)


@pytest.mark.parametrize(
    ("model", "kernels"),
    [
        (models.max_pool(32, (15, 13), 3, 2, 1), 3),
        (models.max_pool(24, (9, 9), 2, 2, 0), 3),
        (models.average_pool(48, (7, 5)), 2),
        (models.average_pool(40, (14, 14)), 2),
    ],
    ids=["padded", "partial blocks", "average", "average of partial blocks"],
)
def test_a_pool_runs_beside_its_convolutions(model, kernels, tmp_path):
    artifact = farrier.compile(model, target="dae:vta", verify=False)
    assert _kernels_on_device(artifact, tmp_path / "m.farrier") == kernels
    (result,) = artifact.run(models.inputs(model)).values()
    expected = models.results(model, "host")
    assert len(np.unique(expected)) > 20
    assert np.array_equal(result, expected)


POOL = """
@program
def pool(x: i8[1, 16, 6, 6] @ layout(0, 1 / 16, 2, 3, 1 % 16)):
    wide: i32[1, 16, 3, 3] @ layout(0, 1 / 16, 2, 3, 1 % 16) in workspace
    for n, c, oy, ox in axes(1, 16, 3, 3):
        wide[n, c, oy, ox] = max(cast(i32, x[n, c, oy * 2 + kh - 1, ox * 2 + kw - 1] if 0 <= oy * 2 + kh - 1 and 0 <= ox * 2 + kw - 1 else i8(-128)) for kh, kw in axes(3, 3))
    y: i8[1, 16, 3, 3] @ layout(0, 1 / 16, 2, 3, 1 % 16)
    for n, c, oy, ox in axes(1, 16, 3, 3):
        y[n, c, oy, ox] = cast(i8, wide[n, c, oy, ox])
    return y
"""  # noqa: E501


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("i8(-128)", "i8(0)", "its image is padded in another way"),
        ("0 <= oy * 2 + kh - 1 and", "1 <= oy * 2 + kh - 1 and", "it is no pool of bytes"),
        ("x[n, c, oy", "x[n, 15 - c, oy", "it is a pool across channels, or one of several images"),
        (
            "cast(i8, wide[n, c, oy, ox])",
            "cast(i8, wide[n, c, oy, ox] + i32(1))",
            "it converts i32 to i8",
        ),
    ],
)
def test_another_pool_runs_on_the_host(old, new, reason):
    accelerator = parse_target("dae:vta").accelerator
    assert why_not(parse_ir(POOL), accelerator) == ""
    assert why_not(parse_ir(POOL.replace(old, new)), accelerator) == reason


def test_a_stride_that_fills_no_block_runs_on_the_host(tmp_path):
    model = models.convolution(3, 16, (13, 11), stride=3)
    artifact = farrier.compile(model, target="dae:vta", verify=False)
    assert _kernels_on_device(artifact, tmp_path / "m.farrier") == 0
    (result,) = artifact.run(models.inputs(model)).values()
    assert np.array_equal(result, models.results(model, "host"))


def test_tuning_counts_cycles_and_keeps_them():
    records = MemoryRecords()
    model = models.convolution(32, 32, (12, 12))
    artifact = models.tuned(model, "dae:vta", records)
    (result,) = artifact.run(models.inputs(model)).values()
    assert np.array_equal(result, models.results(model, "host"))
    of_products = [each for each in records if each.made_by == RULE]
    assert of_products
    assert all(len(set(each.samples_ns)) == 1 for each in of_products)


def test_instructions_of_another_version_are_refused(monkeypatch):
    code = Program(VTA, [Instruction(Kind.FINISH, {})], (), "empty")
    text = code.text()
    assert Program.of_text(text).instructions == code.instructions
    monkeypatch.setattr("farrier.targets.dae.program.VERSION", 0)
    with pytest.raises(ProgramError, match="of version 2, and this Farrier has version 0"):
        Program.of_text(text)


@pytest.mark.parametrize("arguments", ["[Infinity]", "[" * 100_000, "[{}]", "3", "["])
def test_texts_that_are_not_programs_are_refused(arguments):
    text = Program(VTA, [Instruction(Kind.FINISH, {})], (16,), "empty").text()
    fields = text.replace("[16]", arguments)
    with contextlib.suppress(ValueError, RecursionError):
        raw = json.loads(fields)
        raw.pop("sha256")
        digest = hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()
        fields = json.dumps({**raw, "sha256": digest})
    with pytest.raises(ProgramError):
        Program.of_text(fields)


@pytest.mark.parametrize(
    "instruction", [Instruction(Kind.ALU, {"operation": 31}), Instruction(Kind.LOAD, {"pad": 7})]
)
def test_words_without_a_meaning_are_refused(instruction):
    with pytest.raises(ProgramError, match="is not a valid"):
        Program.of_text(Program(VTA, [instruction], (16,), "odd").text())


def test_a_program_that_was_changed_is_refused(tmp_path):
    path = tmp_path / "m.farrier"
    farrier.compile(models.product(1, 64, 16), target="dae:vta", verify=False).save(path)
    changed = tmp_path / "changed.farrier"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(".dae"):
                fields = json.loads(content)
                fields["arguments"][0] += 16
                content = json.dumps(fields).encode()
            new.writestr(name, content)
    with pytest.raises(ArtifactError):
        farrier.load(changed).run(models.inputs(models.product(1, 64, 16)))


def test_the_reason_for_the_host_is_a_clause():
    program = parse_ir(
        """
@program
def f(x: f32[4, 4]):
    y: f32[4, 4]
    for i, j in axes(4, 4):
        y[i, j] = x[i, j] + 1.0
    return y
"""
    )
    accelerator = parse_target("dae:vta").accelerator
    assert why_not(program, accelerator) == "it is no convolution or product of bytes"


@pytest.mark.parametrize(
    ("documented", "run"),
    [
        (write_paddings, lambda graph: write_paddings(graph, Settings(parse_target("dae:vta"), 1))),
        (fill_channels, lambda graph: fill_channels(graph, 4)),
    ],
)
def test_the_docstring_of_a_pass_is_true(documented, run):
    shown = re.search(r"before:\n(.*?)\nafter:\n(.*)", inspect.getdoc(documented), re.DOTALL)
    before, after = (textwrap.dedent(part).strip() + "\n" for part in shown.groups())
    graph = parse_ir(before)
    verify(graph)
    result = eliminate_dead_code(run(graph))
    verify(result)
    assert print_ir(result) == after
