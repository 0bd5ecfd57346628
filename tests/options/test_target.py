"""Targets: from a name, from a description, and from what this machine says of itself."""

from __future__ import annotations

import dataclasses
import json

import pytest

from farrier import pipeline
from farrier.errors import InvalidModelError, UsageError
from farrier.options import CompileOptions
from farrier.targets import host, known_machines, parse_target, read_target, why_not_here
from farrier.targets.registry import backend_for
from farrier_device import describe
from tests.rpc_device import boards
from tests.rpc_device.boards import Board, Cluster, Pretended

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


@pytest.fixture
def this(tmp_path, monkeypatch):
    """This machine as a board that it is not."""
    host.cache_clear()
    yield Pretended(tmp_path, monkeypatch)
    host.cache_clear()


class TestHostIsABoard:
    @pytest.mark.parametrize(
        ("board", "code", "cores", "caches"),
        [
            (boards.RPI4, "cortex-a72", 4, (32, 256, 1024)),
            (boards.RPI5, "cortex-a76", 4, (64, 512, 2048)),
            (boards.RK3588, "cortex-a76", 4, (64, 512, 3072)),
            (boards.GRAVITON3, "neoverse-v1", 16, (64, 1024, 32768)),
        ],
        ids=["rpi4", "rpi5", "rk3588", "graviton3"],
    )
    def test_of_a_known_core(self, this, board, code, cores, caches):
        this.be(board)
        target = host()
        assert (target.cpu, target.tune, target.cores) == (code, code, cores)
        sizes = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
        assert sizes == tuple(size << 10 for size in caches)
        assert why_not_here(target.arch, target.cpu, target.features) == ""

    def test_of_riscv_it_is_the_board_that_has_a_name(self, this):
        """So records of the board count for its name."""
        this.be(boards.VISIONFIVE2)
        assert host() == parse_target("visionfive2")

    def test_of_an_unknown_core(self, this):
        """A core about which the kernel reports nothing else."""
        this.be(Board([Cluster(0x805, 8, implementer=0x51)], boards.RPI5.features, (0x119FFF, 0)))
        target = host()
        assert (target.cpu, target.tune, target.cores) == ("generic", "cortex-a76", 8)
        assert 0 < target.l1_bytes < target.l2_bytes < target.l3_bytes

    def test_of_a_core_without_an_extension_of_its_kind(self, this):
        """As a hypervisor may have it: code that names the core would use it."""
        bits = boards.GRAVITON3.hwcaps[0] & ~(1 << 26)
        this.be(dataclasses.replace(boards.GRAVITON3, hwcaps=(bits, boards.GRAVITON3.hwcaps[1])))
        assert (host().cpu, host().tune) == ("generic", "neoverse-v1")

    def test_in_32_bits(self, this):
        this.be(boards.RPI4_IN_32_BITS, bits=32)
        with pytest.raises(UsageError, match=r"armv7l, a 32-bit system: 64-bit Linux \(aarch64\)"):
            host()


class TestCodeForAnotherMachine:
    def test_that_has_extensions_which_this_one_lacks(self, this):
        this.be(boards.RPI4)
        why = why_not_here("aarch64", "cortex-a76", ())
        assert why == ("this machine lacks asimddp, asimdhp, asimdrdm, atomics, fphp, lrcpc")

    def test_of_a_newer_version_of_the_architecture(self, this):
        """LLVM uses an instruction of it that a Raspberry Pi 5 lacks; it was an illegal
        instruction."""
        this.be(boards.RPI5)
        target = parse_target("graviton3")
        why = why_not_here(target.arch, target.cpu, target.features)
        assert why == "this machine lacks bf16, fcma, flagm, i8mm, ilrcpc, jscvt"

    def test_of_another_architecture(self, this):
        this.be(boards.RPI4)
        target = parse_target("x86-64-v3")
        assert why_not_here(target.arch, target.cpu, ()) == "this machine is aarch64"

    @pytest.mark.parametrize("board", [boards.RPI4, boards.RPI4_IN_32_BITS])
    def test_in_64_bits_on_a_32_bit_system(self, this, board):
        this.be(board, bits=32)
        target = parse_target("rpi4")
        why = why_not_here(target.arch, target.cpu, ())
        assert why.startswith("this is a 32-bit system (armv")
        assert "needs 64-bit Linux" in why


def test_what_a_core_is_not_known_by_name_gets_code_for_any():
    target = parse_target(json.dumps({**BOARD, "cpu": "cortex-x99"}))
    assert (target.cpu, target.tune) == ("generic", "cortex-a72")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cores": 0}, "cores: 0 is not in the range 1 to"),
        ({"cores": True}, "cores: True is not of type int"),
        ({"l2_bytes": -1}, "l2_bytes: -1 is not in the range 1 to"),
        ({"features": "asimd"}, "features: 'asimd' is not a list"),
        ({"features": []}, "lacks asimd, fp"),
        ({"cpu": 3}, "cpu: 3 is not of type str"),
        ({"arch": "armv7l"}, "no code generator for armv7l, a 32-bit system: 64-bit Linux"),
        ({"speed": 3}, "unknown field 'speed'"),
        ({"cores": None}, "cores: None is not"),
    ],
)
def test_a_description_with_a_bad_field_names_it(change, words):
    with pytest.raises(UsageError) as refused:
        parse_target(json.dumps({**BOARD, **change}))
    assert words in refused.value.message


def test_a_description_that_lacks_a_field_names_it():
    with pytest.raises(UsageError, match="no field 'cores'"):
        parse_target(json.dumps({name: value for name, value in BOARD.items() if name != "cores"}))
    with pytest.raises(UsageError, match="not JSON"):
        parse_target("{")


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(UsageError, match="unknown target 'gravitron3'") as refused:
        parse_target("gravitron3")
    assert "did you mean graviton3 or " in refused.value.hint


def test_a_target_reads_back():
    for target in (host(), *map(parse_target, known_machines())):
        assert read_target(json.loads(json.dumps(target.to_dict()))) == target


def test_code_that_cannot_run_here_is_made_but_not_measured(monkeypatch):
    backend = type(host().backend)
    monkeypatch.setattr(backend, "why_not_here", lambda *_: "this machine lacks avx512f")
    for options in (CompileOptions(), CompileOptions(verify=False, trials=4)):
        with pytest.raises(UsageError, match="this machine lacks avx512f") as refused:
            pipeline.compile_model(b"", options)
        assert "--no-verify" in refused.value.hint
    with pytest.raises(InvalidModelError):  # By then it reads the model.
        pipeline.compile_model(b"", CompileOptions(verify=False))
