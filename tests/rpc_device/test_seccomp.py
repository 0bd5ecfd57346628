"""The filter of system calls alone, without the layers beside it: what it refuses, and what it
leaves to a process that measures."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from farrier_device import bpf, seccomp

EPERM, ENOSYS = (bpf.RET_ERRNO | code for code in (errno.EPERM, errno.ENOSYS))
ALLOW, KILL = bpf.RET_ALLOW, bpf.RET_KILL
PID = 4711

# Runs enclosed, with the process to attack as an argument; prints what each call failed with.
ATTACK = """
import ctypes, fcntl, json, os, signal, socket, sys
from farrier_device import bpf, seccomp
libc = ctypes.CDLL(None, use_errno=True)
victim = int(sys.argv[1])
near, far = socket.socketpair()
cpus = (ctypes.c_uint64 * 16)(1 << min(os.sched_getaffinity(0)))
owner = (ctypes.c_int * 2)(1, victim)  # struct f_owner_ex: F_OWNER_PID
assert libc.prctl(38, 1, 0, 0, 0) == 0 and seccomp.restrict(libc)

def code_of(result):
    return 0 if result >= 0 else ctypes.get_errno()

print(json.dumps({
    "F_SETOWN": code_of(libc.fcntl(near.fileno(), fcntl.F_SETOWN, victim)),
    "F_SETOWN_EX": code_of(libc.fcntl(near.fileno(), 15, owner)),
    "F_SETSIG": code_of(libc.fcntl(near.fileno(), 10, signal.SIGKILL)),
    "O_ASYNC": code_of(libc.fcntl(near.fileno(), fcntl.F_SETFL, os.O_ASYNC)),
    "signalled": code_of(0 if far.send(b"x") else -1),
    "sched_setaffinity": code_of(libc.sched_setaffinity(victim, 128, cpus)),
}))
"""

# Loads a library by its descriptor, as the child does; prints the CPUs of the pool's helper.
POOL = """
import ctypes, os, sys
from farrier_device import native, seccomp
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and seccomp.restrict(libc)
with native.Library(f"/proc/self/fd/{sys.argv[1]}") as library:
    cpus = sorted(os.sched_getaffinity(0))
    pin = (cpus[0], cpus[-1])
    os.sched_setaffinity(0, {pin[0]})
    with native.Pool(library, 2, pin) as pool:
        buffers = [native.aligned_buffer(8192) for _ in range(2)]
        args = native.pointers([buffer.address for buffer in buffers])
        native.call(library.entry("right_in_parallel"), args, pool)
        (helper,) = pool._helpers
        print(os.sched_getaffinity(helper.native_id) == {pin[1]})
"""


def run(script: str, *words: str, pass_fds: tuple[int, ...] = ()) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        pass_fds=pass_fds,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout


class TestEnclosed:
    """Real calls, behind a filter that this kernel must have."""

    def test_another_process_is_neither_signalled_nor_moved(self):
        victim = subprocess.Popen(["sleep", "100"])
        try:
            before = os.sched_getaffinity(victim.pid)
            codes = json.loads(run(ATTACK, str(victim.pid)))
            assert os.sched_getaffinity(victim.pid) == before
        finally:
            victim.terminate()
            end = victim.wait()
        assert end == -signal.SIGTERM  # a SIGKILL that was on its way would have come first
        assert codes.pop("signalled") == 0
        assert set(codes.values()) == {errno.EPERM}, codes

    def test_helpers_of_a_pool_are_bound_within(self, library):
        file = os.memfd_create("library")
        try:
            os.write(file, library)
            assert run(POOL, str(file), pass_fds=(file,)) == "True\n"
        finally:
            os.close(file)


# What arm64 says cannot be run here: the filter's own program is, step by step.


def verdict(machine: str, name: str, *arguments: int) -> int:
    """What the filter of an architecture returns for a call."""
    table = list(bpf.AUDIT_ARCH).index(machine)
    rule = seccomp._rules(PID).get(name)
    numbers = seccomp._ALLOWED[name] if rule is None else rule.numbers
    return evaluate(machine, bpf.AUDIT_ARCH[machine], numbers[table], *arguments)


def evaluate(machine: str, audit_arch: int, number: int, *arguments: int) -> int:
    """`struct seccomp_data`, run through a program of classic BPF."""
    words = {0: number, 4: audit_arch}
    for index in range(6):
        value = arguments[index] if index < len(arguments) else 0
        words[16 + 8 * index] = value & 0xFFFFFFFF
    program = list(seccomp._filter(machine, PID))
    at = word = 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        match code:
            case bpf.LOAD:
                word = words[operand]
            case bpf.AND:
                word &= operand
            case bpf.IF_EQUAL:
                at += if_true if word == operand else if_false
            case bpf.IF_AT_LEAST:
                at += if_true if word >= operand else if_false
            case bpf.RETURN:
                return operand
            case _:
                raise AssertionError(f"no instruction {code:#x}")


MACHINES = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])


@MACHINES
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read", (0,)),
        ("fcntl", (5, 0)),  # F_DUPFD
        ("fcntl", (5, 2, 1)),  # F_SETFD
        ("fcntl", (5, 1030, 0)),  # F_DUPFD_CLOEXEC
        ("madvise", (1 << 40, 4096, 4)),  # MADV_DONTNEED
        ("madvise", (1 << 40, 4096, 14)),  # MADV_HUGEPAGE
        ("futex", (1 << 40, 0 | 128)),  # FUTEX_WAIT_PRIVATE
        ("futex", (1 << 40, 9 | 128 | 256)),  # FUTEX_WAIT_BITSET_PRIVATE, real-time clock
        ("futex", (1 << 40, 1)),  # FUTEX_WAKE, as the kernel's end of a thread is waited for
        ("sched_setaffinity", (0,)),
        ("sched_setaffinity", (PID,)),
        ("tgkill", (PID, PID, 6)),
        ("clone", (0x3D0F00,)),  # glibc's threads
        ("clone", (0x7D0F00,)),  # musl's
        ("openat", (0, 0, os.O_RDONLY | os.O_CLOEXEC)),
    ],
)
def test_allowed(machine, name, arguments):
    assert verdict(machine, name, *arguments) == ALLOW


@MACHINES
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("fcntl", (5, command)) for command in (4, 5, 6, 7, 8, 10, 15, 1024, 1026, 1031, 1033)),
        ("fcntl", (5, 8 | 1 << 32)),  # the kernel drops the upper half
        ("madvise", (1 << 40, 4096, 100)),  # MADV_HWPOISON
        ("madvise", (1 << 40, 4096, 101)),  # MADV_SOFT_OFFLINE
        ("madvise", (1 << 40, 4096, 12)),  # MADV_MERGEABLE: pages that others have, too
        *(("futex", (1 << 40, operation | 128)) for operation in (6, 7, 8, 11, 12, 13)),
        ("sched_setaffinity", (PID - 1,)),
        ("sched_setaffinity", (PID + 1,)),  # a thread of the process as well: it binds itself
        ("tgkill", (PID - 1, PID - 1, 9)),
        ("clone", (17,)),  # SIGCHLD: a process
        ("clone", (0x3D0F00 | 0x20000,)),  # CLONE_NEWNS
        ("clone", (0x3D0F00 | 0x40000000,)),  # CLONE_NEWNET
        ("openat", (0, 0, os.O_RDWR)),
        ("openat", (0, 0, os.O_CREAT)),
    ],
)
def test_denied(machine, name, arguments):
    assert verdict(machine, name, *arguments) == EPERM


@MACHINES
def test_unlisted_calls_and_other_tables(machine):
    """By number: ioctl, with which a descriptor's owner is set too, kill, prlimit64, io_uring_setup
    and process_madvise."""
    table = list(bpf.AUDIT_ARCH).index(machine)
    arch = bpf.AUDIT_ARCH[machine]
    for numbers in ((16, 29), (62, 129), (302, 261), (425, 425), (440, 440)):
        assert evaluate(machine, arch, numbers[table]) == EPERM
    assert evaluate(machine, arch, seccomp._CLONE3[table]) == ENOSYS
    assert evaluate(machine, 0x40000003, 1) == KILL  # i386
    if machine == "x86_64":
        assert evaluate(machine, arch, 0x40000000 | 0) == EPERM  # x32
        assert verdict(machine, "arch_prctl", 0x1023) == ALLOW
        assert verdict(machine, "arch_prctl", 0x1002) == EPERM  # ARCH_SET_FS


# arm64's calls have the numbers of the kernel's generic table.
HEADERS = ("x86_64-linux-gnu/asm/unistd_64.h", "asm-generic/unistd.h")


@pytest.mark.parametrize("column", [0, 1], ids=["x86_64", "aarch64"])
def test_numbers_of_system_calls(column):
    """Against the kernel's own headers."""
    header = Path("/usr/include") / HEADERS[column]
    if not header.exists():
        pytest.skip("no kernel headers here")
    text = header.read_text()
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text))
    renamed = {"newfstatat": "fstatat"} if column else {}
    rules = {name: rule.numbers for name, rule in seccomp._rules(PID).items()}
    for name, numbers in (seccomp._ALLOWED | rules | {"clone3": seccomp._CLONE3}).items():
        if column < len(numbers):
            assert known[renamed.get(name, name)] == str(numbers[column]), name
