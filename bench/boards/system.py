"""A complete arm64 machine: qemu-system-aarch64 boots Debian's kernel, with the root folder as
initramfs.

Under qemu-user, system calls go to this machine's kernel, which rejects Landlock and seccomp for an
emulated process. Here the sandbox runs on an aarch64 kernel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.boards import cpio
from bench.boards.root import (
    HOME,
    INSIDE,
    REPOSITORY,
    SOURCES,
    NoRootError,
    Root,
    environment,
    find_tools,
    last_words,
    said,
)
from bench.boards.suite import LEVEL

FILES = (
    "tests/rpc_device/test_sandbox.py",
    "tests/rpc_device/test_seccomp.py",
    "tests/rpc_device/test_describe.py",
)

_KERNEL = "linux-image-cloud-arm64"  # The package that depends on the newest kernel.
_TOOLS = {
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "qemu-system-aarch64": "qemu-system-arm",
}
_MACHINE = ("-M", "virt", "-cpu", "neoverse-n1", "-smp", "2", "-m", "4G")
_TIMEOUT_S = 1200.0
_LAST = "farrier: pytest ended with "
# Of the root: mounts, and what the tests do not read.
_WITHOUT = frozenset(
    {
        *("proc", "sys", "dev", "tmp", "run", INSIDE.strip("/")),
        *("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt"),
        *("var/cache/python-outside", "opt/wheels/onnxruntime", "opt/wheels/ziglang/lib"),
    }
)
_CONSOLE = (5, 1)
# Packages for arm64 without a word of it in this machine's own state.
_APT = """APT::Architecture "arm64";
APT::Architectures "arm64";
APT::Sandbox::User "root";
Dir::State "{0}/state";
Dir::State::status "{0}/status";
Dir::Cache "{0}/cache";
"""
_INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
export {variables}
cd {inside}
uname -srm
python3 -c '{level}'
python3 -m pytest -p no:cacheprovider --color=no {tests}
echo "{last}$?"
echo o > /proc/sysrq-trigger
sleep 60
"""


def run(root: Root, tests: Sequence[str], say: Callable[[str], None]) -> bool:
    """Run tests on the emulated machine; return whether they pass. Raises NoRootError if it cannot
    boot."""
    find_tools(_TOOLS, "a machine with an arm64 kernel")
    home = HOME / "system"
    kernel = _kernel(home, say)
    memory = home / "memory.cpio"
    _write_memory(memory, root, tests)
    say("booting; an emulated machine takes minutes")
    words = ["qemu-system-aarch64", *_MACHINE, "-nographic", "-no-reboot", "-nic", "none"]
    words += ["-kernel", str(kernel), "-initrd", str(memory)]
    words += ["-append", "console=ttyAMA0 rdinit=/init quiet panic=-1"]
    machine = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    ending = threading.Timer(_TIMEOUT_S, machine.kill)
    ending.start()
    try:
        code = _watched(machine, say)
    finally:
        ending.cancel()
        machine.kill()
        machine.wait()
    if code is None:
        raise NoRootError(f"the arm64 machine ended before its tests, or took {_TIMEOUT_S:g} s")
    return code == 0


def _watched(machine: subprocess.Popen[str], say: Callable[[str], None]) -> int | None:
    """Print the machine's output; return pytest's exit code, or None if it did not finish."""
    assert machine.stdout is not None
    code = None
    for line in machine.stdout:
        text = line.rstrip()
        if text.startswith(_LAST):
            code = int(text.removeprefix(_LAST))
        elif text and code is None:
            say(text)
    return code


def _kernel(home: Path, say: Callable[[str], None]) -> Path:
    """Return the path of Debian's arm64 kernel, downloaded if it does not exist."""
    kernel = home / "vmlinuz"
    if kernel.exists():
        return kernel
    say("downloading an arm64 kernel")
    shutil.rmtree(home, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial", "unpacked"):
        (home / name).mkdir(parents=True)
    (home / "status").touch()
    (home / "apt.conf").write_text(_APT.format(home))
    _apt(home, "apt-get", "--quiet", "update")
    depends = _apt(home, "apt-cache", "depends", "--important", _KERNEL)
    names = [line.split()[-1] for line in depends.splitlines() if "Depends: linux-image-" in line]
    if not names:
        raise NoRootError(f"apt knows no {_KERNEL}: {last_words(depends)}")
    _apt(home, "apt-get", "--quiet", "download", names[0])
    (package,) = home.glob("*.deb")
    unpacked = home / "unpacked"
    subprocess.run(["dpkg-deb", "-x", str(package), str(unpacked)], check=True)
    (image,) = unpacked.glob("boot/vmlinuz-*")
    image.rename(kernel)
    shutil.rmtree(unpacked)
    return kernel


def _apt(home: Path, *words: str) -> str:
    variables = {**os.environ, "APT_CONFIG": str(home / "apt.conf"), "LC_ALL": "C"}
    done = said(words, env=variables, cwd=home)
    if done.returncode:
        raise NoRootError(f"{' '.join(words)} failed: {last_words(done.stdout)}")
    return done.stdout


def _write_memory(path: Path, root: Root, tests: Sequence[str]) -> None:
    """Write the initramfs: the root folder, this repository, and the script that runs the tests."""
    variables = environment()
    init = _INIT.format(
        variables=" ".join(f"{name}={value}" for name, value in variables.items()),
        inside=INSIDE,
        level=LEVEL,
        tests=" ".join(tests),
        last=_LAST,
    )
    with path.open("wb") as file:
        archive = cpio.Writer(file)
        archive.tree(root.folder, without=_WITHOUT)
        for name in ("proc", "sys", "dev", "tmp", "run", INSIDE.strip("/")):
            archive.folder(name)
        for name in (*filter(None, SOURCES), "bench", "tests"):
            archive.tree(REPOSITORY / name, f"{INSIDE}/{name}".lstrip("/"), _CACHES)
        archive.text(
            f"{INSIDE}/pyproject.toml".lstrip("/"), (REPOSITORY / "pyproject.toml").read_text()
        )
        archive.device("dev/console", *_CONSOLE)
        archive.text("init", init, 0o755)
        archive.end()


_CACHES = frozenset({"__pycache__"})
