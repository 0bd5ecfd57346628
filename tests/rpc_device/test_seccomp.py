"""Tests of the filter of system calls alone, without other layers: the calls that it refuses, and
the calls that a measuring process needs."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from farrier_device import arch, bpf, denials, seccomp
from farrier_device.profiles import HOST, Profile

EPERM, ENOSYS = (bpf.RET_ERRNO | code for code in (errno.EPERM, errno.ENOSYS))
ALLOW, KILL = bpf.RET_ALLOW, bpf.RET_KILL
PID = 4711
GOLDEN = Path(__file__).parents[1] / "golden" / "filters"

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
        assert end == -signal.SIGTERM  # A pending SIGKILL would have come first.
        assert codes.pop("signalled") == 0
        assert set(codes.values()) == {errno.EPERM}, codes

    def test_helpers_of_a_pool_are_bound_within(self, library):
        file = os.memfd_create("library")
        try:
            os.write(file, library)
            assert run(POOL, str(file), pass_fds=(file,)) == "True\n"
        finally:
            os.close(file)


# The filters of other architectures cannot be installed here; their programs are run, step by step.


def verdict(machine: str, name: str, *arguments: int) -> int:
    """Return the result of an architecture's filter for a call."""
    calls = arch.calls_of(machine)
    return evaluate(machine, calls.audit_arch, calls.numbers[name], *arguments)


def evaluate(
    machine: str, audit_arch: int, number: int, *arguments: int, profile: Profile = HOST
) -> int:
    """`struct seccomp_data`, run through a program of classic BPF."""
    words = {0: number, 4: audit_arch}
    for index in range(6):
        value = arguments[index] if index < len(arguments) else 0
        words[16 + 8 * index] = value & 0xFFFFFFFF
    program = list(seccomp.program(arch.calls_of(machine), PID, profile))
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


MACHINES = pytest.mark.parametrize("machine", [machine_arch.name for machine_arch in arch.ALL])


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
        ("fcntl", (5, 8 | 1 << 32)),  # The kernel drops the upper half.
        ("madvise", (1 << 40, 4096, 100)),  # MADV_HWPOISON
        ("madvise", (1 << 40, 4096, 101)),  # MADV_SOFT_OFFLINE
        ("madvise", (1 << 40, 4096, 12)),  # MADV_MERGEABLE: pages that others have, too
        *(("futex", (1 << 40, operation | 128)) for operation in (6, 7, 8, 11, 12, 13)),
        ("sched_setaffinity", (PID - 1,)),
        ("sched_setaffinity", (PID + 1,)),  # A thread of the process may only bind itself as well.
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
    """ioctl is unlisted because it sets the owner of a descriptor, too."""
    calls = arch.calls_of(machine)
    for name in ("ioctl", "kill", "prlimit64", "io_uring_setup", "process_madvise"):
        assert evaluate(machine, calls.audit_arch, calls.numbers[name]) == EPERM
    assert evaluate(machine, calls.audit_arch, calls.numbers["clone3"]) == ENOSYS
    assert evaluate(machine, 0x40000003, 1) == KILL  # i386
    if machine == "x86_64":
        assert evaluate(machine, calls.audit_arch, 0x40000000 | 0) == EPERM  # x32
        assert verdict(machine, "arch_prctl", 0x1023) == ALLOW
        assert verdict(machine, "arch_prctl", 0x1002) == EPERM  # ARCH_SET_FS


@MACHINES
def test_programs_of_filters(machine, update_golden):
    """Each step of each filter: code, steps to skip if its test is true, if false, operand."""
    calls = arch.calls_of(machine)
    programs = {
        "measurement child": seccomp.program(calls, PID),
        "denials": denials.program(calls),
        "denials to a process that is to be alone": denials.program_alone(calls, PID),
    }
    lines = []
    for name, steps in programs.items():
        lines += [f"# {name}", *(f"{a:#04x} {b} {c} {d:#x}" for a, b, c, d in steps)]
    text = "".join(f"{line}\n" for line in lines)
    golden = GOLDEN / f"{machine}.txt"
    if update_golden:
        golden.write_text(text)
    assert golden.read_text() == text
