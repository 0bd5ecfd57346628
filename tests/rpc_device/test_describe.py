"""Tests of the machine's description of itself."""

from __future__ import annotations

import dataclasses
import os
import platform

import pytest

from farrier_device import describe
from farrier_device.arch import riscv
from tests.rpc_device import boards
from tests.rpc_device.boards import Board, Cluster, Pretended


def test_this_machine():
    machine = describe.describe()
    assert machine.arch == platform.machine()
    assert machine.cores == len(os.sched_getaffinity(0))
    assert machine.memory_bytes > 64 << 20
    assert list(machine.features) == sorted(set(machine.features))
    assert machine.features
    if machine.arch == "aarch64":
        assert {"fp", "asimd"} <= set(machine.features)


@pytest.fixture
def this(tmp_path, monkeypatch):
    return Pretended(tmp_path, monkeypatch)


class TestBoards:
    @pytest.mark.parametrize(
        ("board", "cpu", "cores", "caches"),
        [
            (boards.RPI4, "cortex-a72", 4, (32, 1024, 0)),
            (boards.RPI5, "cortex-a76", 4, (64, 512, 2048)),
            (boards.RK3588, "cortex-a76", 4, (64, 512, 3072)),
            (boards.GRAVITON3, "neoverse-v1", 16, (64, 1024, 32768)),
        ],
        ids=["rpi4", "rpi5", "rk3588", "graviton3"],
    )
    def test_described(self, this, board, cpu, cores, caches):
        this.be(board)
        machine = describe.describe()
        assert (machine.arch, machine.cpu, machine.cores) == ("aarch64", cpu, cores)
        assert machine.features == tuple(sorted(board.features.split()))
        sizes = (machine.l1_bytes, machine.l2_bytes, machine.l3_bytes)
        assert sizes == tuple(size << 10 for size in caches)

    def test_extensions_are_those_of_the_processor_that_executes(self, this):
        """Under qemu-user the file is the host's."""
        this.be(boards.RPI4)
        this.write_cpuinfo("processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: sse avx2\n\n")
        machine = describe.describe()
        assert (machine.arch, machine.cpu) == ("aarch64", "aarch64")
        assert machine.features == ("asimd", "cpuid", "crc32", "evtstrm", "fp")

    def test_without_the_auxiliary_vector_the_file_tells(self, this):
        this.be(dataclasses.replace(boards.RPI5, hwcaps=(0, 0)))
        assert "asimddp" in describe.describe().features

    def test_a_part_number_means_something_beside_its_implementer(self, this):
        qualcomm = Cluster(0xD0B, 2, implementer=0x51)
        this.be(Board([qualcomm], "fp asimd", (3, 0)))
        assert describe.describe().cpu == "implementer 0x51 part 0xd0b"

    def test_one_of_riscv(self, this):
        this.be(boards.VISIONFIVE2)
        machine = describe.describe()
        assert (machine.arch, machine.cpu, machine.cores) == ("riscv64", "sifive-u74", 4)
        assert {"i", "m", "a", "f", "d", "c", "zba", "zbb", "zicsr"} <= set(machine.features)
        assert "v" not in machine.features
        assert (machine.l1_bytes, machine.l2_bytes) == (32 << 10, 2048 << 10)

    def test_one_of_riscv_whose_file_is_another_machines(self, this):
        """As under an old qemu-user: the kernel's call describes the emulated processor."""
        this.be(boards.VISIONFIVE2)
        this.write_cpuinfo("processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: sse avx2\n\n")
        machine = describe.describe()
        assert (machine.arch, machine.cpu) == ("riscv64", "riscv64")
        assert machine.features == ("a", "c", "d", "f", "i", "m", "zba", "zbb")

    def test_one_of_riscv_says_how_wide_its_vectors_are(self, this, monkeypatch):
        base, extensions = boards.VISIONFIVE2.hwcaps
        this.be(dataclasses.replace(boards.VISIONFIVE2, hwcaps=(base, extensions | 1 << 2)))
        monkeypatch.setattr(riscv, "vector_bytes", lambda: 32)
        features = describe.describe().features
        assert {name for name in features if name.startswith(("v", "zvl"))} == {
            *("v", "zvl128b", "zvl256b")
        }

    def test_a_32_bit_system_is_one(self, this):
        this.be(boards.RPI4_IN_32_BITS, bits=32)
        machine = describe.describe()
        assert (machine.arch, machine.cpu) == ("armv7l", "cortex-a72")
        assert "neon" in machine.features

    def test_a_32_bit_program_on_a_64_bit_kernel_is_one(self, this):
        this.be(boards.RPI4, bits=32)
        assert describe.describe().arch == "armv8l"


class TestBigCores:
    """Four Cortex-A55, numbers 0 to 3, next to four Cortex-A76."""

    def test_threads_go_to_big_cores(self, this):
        this.be(boards.RK3588)
        assert describe.cores() == 4
        assert describe.available_cpus() == (4, 5, 6, 7)

    def test_of_those_that_are_allowed(self, this):
        this.be(boards.RK3588)
        this.allow([1, 2, 6])
        assert describe.available_cpus() == (6,)
        this.allow([1, 2])
        assert describe.available_cpus() == (1, 2)
        assert (describe.describe().cpu, describe.describe().l2_bytes) == ("cortex-a55", 128 << 10)

    def test_without_capacities_parts_tell(self, this):
        clusters = [
            dataclasses.replace(cluster, capacity=None) for cluster in boards.RK3588.clusters
        ]
        this.be(dataclasses.replace(boards.RK3588, clusters=clusters))
        assert describe.available_cpus() == (4, 5, 6, 7)
        assert describe.describe().cpu == "cortex-a76"

    def test_little_cores_alone_all_count(self, this):
        this.be(Board([Cluster(0xD03, 4, capacity=None)], "fp asimd", (3, 0)))
        assert describe.cores() == 4

    def test_the_largest_of_three_kinds_has_company(self, this):
        """A Cortex-X1 alone would be one thread."""
        kinds = ((0xD05, 4, 325), (0xD41, 3, 871), (0xD44, 1, 1024))
        clusters = [Cluster(part, cores, capacity=speed) for part, cores, speed in kinds]
        this.be(Board(clusters, "fp asimd", (3, 0)))
        assert describe.available_cpus() == (4, 5, 6, 7)


@pytest.mark.parametrize(
    ("text", "size"), [("48K", 48 << 10), ("2M", 2 << 20), ("1G", 1 << 30), ("512", 512), ("", 0)]
)
def test_sizes(text, size):
    assert describe.parse_size(text) == size


def test_cpus_are_those_of_this_process():
    assert sorted(describe.available_cpus()) == sorted(os.sched_getaffinity(0))


def test_siblings_come_last(tmp_path, monkeypatch):
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    for cpu, text in siblings.items():
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
    monkeypatch.setattr(describe, "_CPUS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 1, 0, 2})
    assert describe.available_cpus() == (0, 1, 2, 3)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 2, 0})
    assert describe.available_cpus() == (0, 3, 2)
