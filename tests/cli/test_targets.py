"""The verb `targets`, and machines of the user's own: `--target FILE.json`."""

from __future__ import annotations

import json

import pytest

import farrier as package
from farrier.targets import known_machines

BOARD = {
    "# which": "the board in the corner",
    "arch": "aarch64",
    "cpu": "cortex-a72",
    "features": ["fp", "asimd"],
    "cores": 2,
    "l1_bytes": 32768,
    "l2_bytes": 1048576,
}


def test_the_list_says_of_each_machine_what_is_known_and_from_where(farrier):
    done = farrier("targets")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert {"host", "x86-64-v3", "rpi4", "graviton3", *known_machines()} <= lines.keys()
    assert "this machine" in lines["host"]
    assert " ".join(lines["rpi4"].split()) == (
        "rpi4 cortex-a72 4 32, 1024, 0 Raspberry Pi 4B, Broadcom BCM2711, 1.5 GHz"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "copy"),
    [("rpi5", "a.json"), ("x86-64-v2", "a.json"), ("host", "a.json"), ("dae:vta", "a.toml")],
)
def test_the_description_of_one_is_a_file_to_start_from(farrier, mlp, tmp_path, name, copy):
    done = farrier("targets", name)
    (tmp_path / copy).write_text(done.stdout)
    flags = "--shape", "x=4,37", "--no-verify"
    for target, file in ((name, "named"), (copy, "copied")):
        compiled = farrier("compile", mlp, "--target", target, *flags, "-o", file)
        assert compiled.returncode == 0, compiled.stderr
    named, copied = (package.load(tmp_path / file) for file in ("named", "copied"))
    assert named.code == copied.code
    assert named.manifest.machine == copied.manifest.machine


@pytest.mark.parametrize(
    "words", [("targets", "graviton33"), ("compile", "mlp.onnx", "--target", "graviton33")]
)
def test_a_name_that_is_none_lists_the_nearest(farrier, mlp, words):
    done = farrier(*words)
    assert done.returncode == 2
    assert "unknown target 'graviton33'" in done.stderr
    assert "did you mean graviton3 or graviton" in done.stderr
    assert "`farrier targets` lists all" in done.stderr


def test_a_name_that_is_like_none_lists_no_nearest(farrier):
    done = farrier("targets", "zzz")
    assert done.returncode == 2
    assert "unknown target 'zzz'" in done.stderr
    assert "did you mean" not in done.stderr


def test_a_machine_of_ones_own(farrier, mlp, tmp_path):
    (tmp_path / "board.json").write_text(json.dumps(BOARD, indent=2))
    done = farrier("compile", mlp, "--target", "board.json", "--no-verify", "-o", "a.farrier")
    assert done.returncode == 0, done.stderr
    manifest = package.load(tmp_path / "a.farrier").manifest
    assert (manifest.architecture, manifest.machine) == ("aarch64", "cortex-a72")
    assert (manifest.features, manifest.backend["threads"]) == ((), 2)
    assert manifest.backend["triple"] == "aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cores": None}, "target: it has no field 'cores'"),
        ({"l1_bytes": None}, "target: it has no field 'l1_bytes'"),
        ({"cores": 100000}, "target.cores: 100000 is not in the range 1 to 4096"),
        ({"l2_bytes": "1 MB"}, "target.l2_bytes: '1 MB' is not of type int"),
        ({"clock": 3}, "target: it has an unknown field 'clock'"),
        ({"features": ["fp"]}, "the machine cortex-a72 lacks asimd"),
        ({"arch": "armv7l"}, "no code generator for armv7l"),
    ],
    ids=str,
)
def test_a_field_that_is_missing_or_impossible_is_named(farrier, mlp, tmp_path, change, words):
    changed = {**BOARD, **change}
    text = json.dumps({name: value for name, value in changed.items() if value is not None})
    (tmp_path / "board.json").write_text(text)
    done = farrier("compile", mlp, "--target", "board.json")
    assert done.returncode == 2
    assert words in done.stderr
    assert "hint: " in done.stderr
    assert not (tmp_path / "mlp.farrier").exists()


@pytest.mark.parametrize("text", ["", "[]", "rpi5", "{", '{"a":' * 50_000], ids=range(5))
def test_a_file_that_is_no_description(farrier, mlp, tmp_path, text):
    (tmp_path / "board.json").write_text(text)
    done = farrier("compile", mlp, "--target", "board.json")
    assert done.returncode == 2
    assert "description of" in done.stderr
