"""The simulator in the agent of a farm: what it offers, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from farrier.cli.targets import read_target
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.records import MemoryRecords
from farrier.targets import parse_target, to_text
from farrier.targets.dae.description import to_toml
from farrier.targets.dae.machines import SMALL
from farrier.targets.dae.rules import RULE
from farrier_device import agent
from farrier_device.connection import UsageError
from farrier_device.loop import describe_device
from farrier_device.runners.local import ChildRunner
from farrier_device.simulators import NoSimulatorError, simulated
from tests.targets.dae import models


def test_a_description_is_simulated_as_a_name_is(tmp_path):
    (tmp_path / "own.toml").write_text(to_toml(SMALL))
    named, own = simulated("dae:small"), simulated(str(tmp_path / "own.toml"))
    assert named == own
    (tmp_path / "own.json").write_text(to_text(named.described))
    assert simulated(str(tmp_path / "own.json")) == named
    target = parse_target(to_text(named.machine()))
    assert target.accelerator == parse_target(read_target(str(tmp_path / "own.toml"))).accelerator
    assert target.host is not None


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        ("dae:vtb", "unknown target 'dae:vtb'"),
        ("quantum:q1", "no simulator of quantum is installed; the installed ones are dae"),
        ("missing.toml", "No such file or directory"),
        ("arch.toml", "the description has no field 'arch'"),
        ("other.json", "no simulator of x86_64 is installed; the installed ones are dae"),
        ("narrow.toml", "the accelerator small: fields.index of 3 bits is too"),
        ("damaged.toml", "it is neither TOML nor JSON"),
    ],
)
def test_what_nothing_simulates_is_refused(tmp_path, monkeypatch, stated, why):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arch.toml").write_text("name = 'x'\n")
    (tmp_path / "other.json").write_text(json.dumps({"arch": "x86_64"}))
    (tmp_path / "narrow.toml").write_text(to_toml(SMALL).replace("index = 11", "index = 3"))
    (tmp_path / "damaged.toml").write_text("[")
    with pytest.raises(NoSimulatorError, match=f"--simulate {stated}: {why}"):
        simulated(stated)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (["--adapter", ""], "use only one of"),
        (["--qemu", "mps2-an386"], "use only one of"),
        (["--engines"], "--engines only with the processor or a GPU"),
        (["--machine", "rpi4"], "--machine cannot be used with --simulate"),
    ],
)
def test_an_agent_measures_with_one_machine(tmp_path, capsys, other, why):
    words = ["--broker", "localhost:1", "--state", str(tmp_path), "--simulate", "dae:vta", *other]
    assert agent.main(words) == UsageError.exit_code
    assert why in capsys.readouterr().err


def test_a_layer_is_tuned_in_a_child_behind_walls():
    machine = simulated("dae:vta")
    model, records = models.convolution(16, 16, (5, 6)), MemoryRecords()
    with ChildRunner(code=machine.code, pin=False) as runner:
        said = describe_device("0", runner, measuring=machine)
        options = CompileOptions("dae:vta", trials=4, seed=1)
        artifact = compile_model(
            Model.of_bytes(model, "layer"), options, name="layer", records=records, runner=runner
        )
    assert (said.arch, said.cpu, said.runner, said.emulated) == ("dae", "vta", "simulator", False)
    assert list(said.kinds) == ["dae", "dae-library", "elf"]
    assert said.sandbox.startswith("denials+landlock")
    (result,) = artifact.run(models.inputs(model)).values()
    assert np.array_equal(result, models.results(model, "host"))
    assert any(each.made_by == RULE for each in records)
