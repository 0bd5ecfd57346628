"""Targets: from a name, from a description, and from what this machine says of itself."""

from __future__ import annotations

import dataclasses
import json

import pytest

from farrier import pipeline
from farrier.errors import InvalidModelError, UsageError
from farrier.options import CompileOptions
from farrier.targets import backend_for, host, known_machines, parse_target
from farrier.targets.target import Target
from farrier_device import describe

SSE = ("sse4_1", "sse4_2", "ssse3", "popcnt", "cx16")
AVX2 = (*SSE, "avx2", "fma", "bmi1", "bmi2", "f16c", "movbe")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
BOARD = {
    "arch": "aarch64",
    "cpu": "cortex-a72",
    "features": ["asimd", "fp"],
    "cores": 4,
    "l1_bytes": 32 << 10,
    "l2_bytes": 1 << 20,
}


@pytest.mark.parametrize(
    ("cpu", "features", "code", "tune"),
    [
        ("AMD EPYC", AVX2, "x86-64-v3", "znver3"),
        ("AMD EPYC", AVX512, "x86-64-v4", ""),
        ("Intel(R) Xeon(R) Processor", AVX512, "x86-64-v4", "sapphirerapids"),
        ("Intel(R) Core(TM) i7", AVX2, "x86-64-v3", ""),
        ("AMD Opteron", SSE, "x86-64-v2", ""),
    ],
)
def test_a_machine_has_code_and_figures_of_what_it_says_of_itself(cpu, features, code, tune):
    here = dataclasses.replace(describe.describe(), arch="x86_64", cpu=cpu, features=features)
    target = backend_for("x86_64").target(here)
    assert (target.cpu, target.tune) == (code, tune)


def test_a_known_machine_is_none_of_this_machine(monkeypatch):
    before = {name: parse_target(name) for name in known_machines()}
    other = dataclasses.replace(describe.describe(), cores=7, l1_bytes=1, cpu="other")
    monkeypatch.setattr(describe, "describe", lambda: other)
    assert {name: parse_target(name) for name in known_machines()} == before


def test_a_description_is_a_target():
    target = parse_target(json.dumps({"#": "the board in the corner", **BOARD}))
    assert (target.cpu, target.cores, target.arch) == ("cortex-a72", 4, "aarch64")
    # Its cores share the second level, which is the last one.
    assert (target.l2_bytes, target.l3_bytes) == (256 << 10, 1 << 20)


def test_the_description_of_a_known_machine_is_that_machine():
    for name, machine in known_machines().items():
        assert parse_target(json.dumps(dataclasses.asdict(machine.description))) == parse_target(
            name
        )


def test_what_a_core_is_not_known_by_name_gets_code_for_any():
    target = parse_target(json.dumps({**BOARD, "cpu": "cortex-x99"}))
    assert (target.cpu, target.tune) == ("generic", "cortex-a72")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cores": 0}, "cores is 0, not a whole number of 1 to"),
        ({"cores": True}, "cores is True"),
        ({"l2_bytes": -1}, "l2_bytes is -1"),
        ({"features": "asimd"}, "features is 'asimd', not a list"),
        ({"features": []}, "lacks asimd, fp"),
        ({"cpu": 3}, "cpu is 3, not a text"),
        ({"arch": "armv7l"}, "no code generator for armv7l"),
        ({"speed": 3}, "no field 'speed'"),
        ({"cores": None}, "cores is None"),
    ],
)
def test_a_description_with_a_bad_field_names_it(change, words):
    with pytest.raises(UsageError) as refused:
        parse_target(json.dumps({**BOARD, **change}))
    assert words in refused.value.message


def test_a_description_that_lacks_a_field_names_it():
    with pytest.raises(UsageError, match="lacks 'cores'"):
        parse_target(json.dumps({name: value for name, value in BOARD.items() if name != "cores"}))
    with pytest.raises(UsageError, match="not JSON"):
        parse_target("{")


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(UsageError, match="unknown target 'gravitron3'") as refused:
        parse_target("gravitron3")
    assert "did you mean graviton3 or " in refused.value.hint


def test_a_target_reads_back():
    for target in (host(), *map(parse_target, known_machines())):
        assert Target.from_dict(json.loads(json.dumps(target.to_dict()))) == target


def test_code_that_cannot_run_here_is_made_but_not_measured(monkeypatch):
    monkeypatch.setattr(pipeline, "why_not_here", lambda *_: "this machine lacks avx512f")
    for options in (CompileOptions(), CompileOptions(verify=False, trials=4)):
        with pytest.raises(UsageError, match="this machine lacks avx512f") as refused:
            pipeline.compile_model(b"", options)
        assert "--no-verify" in refused.value.hint
    with pytest.raises(InvalidModelError):  # it reads the model, then
        pipeline.compile_model(b"", CompileOptions(verify=False))
