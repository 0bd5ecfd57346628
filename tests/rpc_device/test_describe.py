"""What the machine says of itself."""

from __future__ import annotations

import os
import platform

import pytest

from farrier_device import describe

CORTEX_A72 = """processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU part\t: 0xd08

processor\t: 1
Features\t: none
"""


def test_this_machine():
    machine = describe.describe()
    assert machine.arch == platform.machine()
    assert machine.cores == len(os.sched_getaffinity(0))
    assert machine.memory_bytes > 64 << 20
    assert list(machine.features) == sorted(set(machine.features))
    assert machine.features


def test_arm_cores_are_named_by_their_part():
    fields = describe.parse_cpuinfo(CORTEX_A72)
    assert fields["Features"].split() == ["fp", "asimd", "evtstrm", "crc32", "cpuid"]
    assert describe._cpu_name(fields) == "cortex-a72"


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
