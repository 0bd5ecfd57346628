"""The deny-list of a process that works with files and processes of its own, by itself.

`tests/worker/test_confinement.py` has all walls of a job's process together."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from farrier_device import denials

TRIES = """
import ctypes, os, resource, socket, subprocess, sys, threading
from farrier_device import denials
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
if not denials.restrict(libc):
    print("no seccomp")
    sys.exit()

def denied(act):
    try:
        return act() == -1 and ctypes.get_errno() == 1
    except PermissionError:
        return True

one, other = socket.socketpair()
one.send(b"x")
threading.Thread(target=other.recv, args=(1,)).start()
subprocess.run([sys.executable, "-c", "import threading; threading.Thread(target=print).start()"],
    check=True, stdout=subprocess.DEVNULL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
assert denied(socket.socket)
assert denied(os.setsid)
assert denied(lambda: libc.unshare(0x10000000))
assert denied(lambda: libc.ptrace(0, 0, 0, 0))
assert denied(lambda: libc.process_vm_readv(os.getppid(), None, 0, None, 0, 0))
assert denied(lambda: libc.prlimit(os.getppid(), 7, None, None))
assert denied(lambda: libc.syscall(425, 1, None))  # io_uring_setup
child = "import socket; socket.socket()"
assert subprocess.run([sys.executable, "-c", child], stderr=subprocess.DEVNULL).returncode == 1
print("denied")
"""


def test_what_is_denied_and_what_is_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRIES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("denied", "no seccomp")


# arm64's calls have the numbers of the kernel's generic table.
HEADERS = ("x86_64-linux-gnu/asm/unistd_64.h", "asm-generic/unistd.h")


@pytest.mark.parametrize("column", [0, 1], ids=["x86_64", "aarch64"])
def test_numbers_of_system_calls(column: int) -> None:
    """Against the kernel's own headers."""
    header = Path("/usr/include") / HEADERS[column]
    if not header.exists():
        pytest.skip("no kernel headers here")
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
    where = {name: numbers for name, (numbers, _, _) in denials._DENIED_WHERE.items()}
    for name, numbers in (denials._DENIED | where | {"clone3": denials._CLONE3}).items():
        if name in known:  # headers may be older
            assert known[name] == str(numbers[column]), name
