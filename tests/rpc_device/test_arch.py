"""The files of architectures: system-call tables, and the one place that names any of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import farrier_device
from farrier_device import arch
from farrier_device.arch import riscv

_ROOT = Path(farrier_device.__file__).parent
_NAMES = re.compile(r"x86|i[3-6]86|amd64|aarch64|\barm(v\d|64)?\b|risc-?v|rv64", re.IGNORECASE)
_CALLS = pytest.mark.parametrize(
    ("header", "architecture"),
    [
        ("x86_64-linux-gnu/asm/unistd_64.h", arch.X86),
        ("asm-generic/unistd.h", arch.ARM),
        ("asm-generic/unistd.h", arch.RISCV),
    ],
    ids=lambda value: getattr(value, "name", ""),
)


# Other engines, and what keeps them to a level, name those of x86-64 (`baseline/limit.py`); images
# for boards are moved by the instructions in them (`boards/image.py`).
_APART = ("arch", "baseline", "boards", "engines")


def test_no_other_file_names_an_architecture():
    """Other engines have names of their own for levels of x86-64."""
    files = [path for path in _ROOT.rglob("*.py") if path.parent.name not in _APART]
    assert len(files) > 40
    named = {
        f"{path.relative_to(_ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _NAMES.search(line)
    }
    assert named == set()


@_CALLS
def test_numbers_of_system_calls(header, architecture):
    """Compare with the kernel's own headers, which may be older than the newest calls."""
    path = Path("/usr/include") / header
    if not path.exists():
        pytest.skip("no kernel headers here")
    in_header = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text()))
    in_header.setdefault("newfstatat", in_header.get("fstatat"))
    for name, number in architecture.calls.numbers.items():
        if name in in_header:
            assert in_header[name] == str(number), name
    assert not architecture.calls.absent & in_header.keys()
    assert len(architecture.calls.numbers.keys() & in_header.keys()) > 80


def test_names_of_systems():
    assert arch.of("i686") is arch.of("x86_64") is arch.X86
    assert arch.in_64_bits("armv7l") == "aarch64"
    assert arch.in_64_bits("aarch64") == arch.in_64_bits("ppc64le") == ""
    assert arch.calls_of("armv7l") is arch.calls_of("ppc64le") is None
    assert arch.of("ppc64le").features({"flags": "altivec"}) == ["altivec"]


@pytest.mark.parametrize(
    ("isa", "extensions"),
    [
        ("rv64imafdc", ["i", "m", "a", "f", "d", "c"]),
        ("rv64imac_zicsr_zba", ["i", "m", "a", "c", "zicsr", "zba"]),
        ("", []),
    ],
)
def test_extensions_of_an_isa_string(isa, extensions):
    assert riscv.extensions(isa) == extensions
