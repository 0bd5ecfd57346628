"""Descriptions: read as they are written, and refused by the field at fault."""

from __future__ import annotations

import dataclasses
import itertools
import textwrap
from pathlib import Path

import pytest

from farrier.cli.targets import read_target
from farrier.errors import CompilerError, UsageError
from farrier.targets import parse_target
from farrier.targets.dae.backend import BACKEND
from farrier.targets.dae.description import (
    Fields,
    Matrix,
    from_features,
    from_json,
    read,
    to_features,
    to_json,
    to_toml,
)
from farrier.targets.dae.instructions import (
    Alu,
    Instruction,
    Kind,
    Pad,
    decode,
    encode,
    formats,
    quantized_by,
    quantizing,
    word_bits,
)
from farrier.targets.dae.machines import MACHINES, SMALL, VTA, WIDE


@pytest.mark.parametrize("accelerator", [VTA, SMALL, WIDE])
def test_a_description_reads_back(accelerator):
    assert read(to_toml(accelerator)) == accelerator
    described = MACHINES[f"dae:{accelerator.name}"].description
    assert BACKEND.read(BACKEND.written(described)) == described
    assert from_json(to_json(accelerator)) == accelerator
    assert from_features(accelerator.name, to_features(accelerator)) == accelerator
    assert parse_target(f"dae:{accelerator.name}").accelerator == accelerator


def test_the_description_in_the_page_is_vta_s():
    page = (Path(__file__).parents[3] / "docs" / "accelerators.md").read_text()
    lines = itertools.takewhile(
        lambda line: not line.strip() or line.startswith("    "),
        page.partition("takes it:\n")[2].splitlines(),
    )
    assert read(textwrap.dedent("\n".join(lines))) == dataclasses.replace(VTA, name="mine")


@pytest.mark.parametrize(
    "features", [("matrix=3", "matrix.batch=1"), ("mhz=" + "9" * 5000,), ("mhz.x=1",)]
)
def test_features_that_are_not_of_an_accelerator_are_refused(features):
    with pytest.raises(UsageError, match="cannot read the description"):
        from_features("mine", features)


def test_a_file_is_a_target(tmp_path):
    file = tmp_path / "mine.toml"
    mine = dataclasses.replace(SMALL, name="mine", mhz=33)
    file.write_text(to_toml(mine))
    target = parse_target(read_target(f"x86-64-v3+{file}"))
    assert target.accelerator == mine
    assert target.host == parse_target("x86-64-v3")
    for text in ('{"arch": "dae"}', "a = " + "[" * 5000):
        file.write_text(text)
        with pytest.raises(UsageError, match="cannot read the description"):
            read_target(str(file))
    file.write_text("name = 'mine'")
    with pytest.raises(UsageError, match="must state its architecture"):
        read_target(str(file))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fields": Fields(index=10, count=11)}, "fields.index of 10 bits is too narrow"),
        ({"fields": Fields(index=11, count=5)}, "fields.count of 5 bits is too narrow: 6"),
        ({"memory": dataclasses.replace(VTA.memory, weight=256)}, "below two tiles of 256"),
        ({"memory": dataclasses.replace(VTA.memory, sum=1000)}, "not a multiple of a tile of 64"),
        ({"port": dataclasses.replace(VTA.port, bytes=512)}, "no tile fits"),
        ({"port": dataclasses.replace(VTA.port, bytes=24)}, "does not divide a tile"),
        ({"matrix": Matrix(1, 16, 8)}, "they must be equal"),
        ({"vector": dataclasses.replace(VTA.vector, lanes=32)}, "has only 16"),
    ],
)
def test_what_cannot_work_is_named(changed, message):
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(VTA, **changed).checked()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 3", "no field 'fields'"),
        (to_toml(VTA) + "color = 1", "color"),
        (to_toml(VTA).replace("lanes = 16", "lanes = 0"), "not in the range"),
        (to_toml(VTA).replace('"dae"', '"gpu"'), 'has arch = "dae"'),
        ("[matrix", "cannot read"),
    ],
)
def test_a_text_that_is_no_description_is_refused(text, message):
    with pytest.raises(UsageError, match=message) as refused:
        read(text)
    assert refused.value.hint


def test_instructions_read_back():
    """Every field at both of its bounds, or the last number that has a name."""
    last = {"operation": max(Alu), "pad": max(Pad)}
    for kind, fields in formats(VTA).items():
        assert sum(field.bits for field in fields) <= word_bits(VTA)
        for bound in range(2):
            values = {
                field.name: min(field.limits[bound], last.get(field.name, field.limits[bound]))
                for field in fields
                if field.name != "kind"
            }
            instruction = Instruction(kind, {name: n for name, n in values.items() if n})
            assert decode(encode([instruction], VTA), VTA) == [instruction]


def test_a_value_beyond_its_field_is_named():
    with pytest.raises(CompilerError, match="to of ALU is 2048, and its 11 bits on vta hold 0 to"):
        encode([Instruction(Kind.ALU, {"to": 2048})], VTA)
    with pytest.raises(CompilerError, match="no field pad"):
        encode([Instruction(Kind.ALU, {"pad": 1})], VTA)
    with pytest.raises(ValueError, match="no whole words"):
        decode(b"\0", VTA)
    assert quantized_by(quantizing(-128, -255, 255)) == (-128, -255, 255)
    assert max(Alu) < 1 << 5
