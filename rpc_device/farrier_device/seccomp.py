"""seccomp: the system calls that a measurement child may make; every other one fails with EPERM.

An allow-list of what a running Python interpreter, the dynamic loader and a pool of threads need.
With it the child starts no process, opens nothing for writing, makes no socket, traces nobody and
signals nobody but itself.

Source: Linux `include/uapi/linux/{seccomp,filter,audit}.h` and the call tables of x86-64 and arm64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator

from farrier_device.describe import arch

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000  # x86-64's second, 32-bit call table

# Name: its number on each architecture, in the order of `_AUDIT_ARCH`.
_ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "newfstatat": (262, 79),
    "lseek": (8, 62),
    "pread64": (17, 67),
    "writev": (20, 66),
    "fcntl": (72, 25),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "futex": (202, 98),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
    "membarrier": (324, 283),
    "sched_yield": (24, 124),
    "sched_setaffinity": (203, 122),
    "sched_getaffinity": (204, 123),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getcpu": (309, 168),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
_CLONE = (56, 220)  # allowed for threads
_CLONE3 = (
    435,
    435,
)  # its flags are out of a filter's sight: "not implemented" makes libc use clone
_OPENAT = (257, 56)  # allowed for reading
_ARCH_PRCTL = 158  # of x86-64; allowed for asking for tile registers
_REQUEST_PERMISSION = 0x1023  # ARCH_REQ_XCOMP_PERM
_TGKILL = (234, 131)  # allowed on the process itself: abort()

_CLONE_THREAD = 0x10000
_TMPFILE = 0o20000000
_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_APPEND | _TMPFILE

_RET_ALLOW = 0x7FFF0000
_RET_ERRNO = 0x00050000
_RET_KILL = 0x80000000

_DENY = _RET_ERRNO | errno.EPERM

# Classic BPF: load a word of `struct seccomp_data`; jump if equal, not less, any bit set; return.
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16

_Instruction = tuple[int, int, int, int]  # code, steps to skip if true, if false, operand


def restrict(libc: ctypes.CDLL) -> bool:
    """Installs the filter on this thread and those it will start; False where it cannot.

    `no_new_privs` must be set. False also on an architecture without a call table here.
    """
    machine = arch()
    if machine not in _AUDIT_ARCH:
        return False
    program = list(_filter(machine, os.getpid()))
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    text = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(program), ctypes.addressof(text))  # struct sock_fprog
    return bool(libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), head, 0, 0) == 0)


def _filter(machine: str, pid: int) -> Iterator[_Instruction]:
    table = list(_AUDIT_ARCH).index(machine)
    yield _LOAD, 0, 0, _ARCH_AT
    yield _IF_EQUAL, 1, 0, _AUDIT_ARCH[machine]
    yield _RETURN, 0, 0, _RET_KILL
    yield _LOAD, 0, 0, _NUMBER_AT
    if machine == "x86_64":
        yield _IF_AT_LEAST, 0, 1, _X32_BIT
        yield _RETURN, 0, 0, _DENY
    for numbers in _ALLOWED.values():
        yield _IF_EQUAL, 0, 1, numbers[table]
        yield _RETURN, 0, 0, _RET_ALLOW
    yield _IF_EQUAL, 0, 1, _CLONE3[table]
    yield _RETURN, 0, 0, _RET_ERRNO | errno.ENOSYS
    yield from _allow_if(_CLONE[table], 0, (_IF_ANY_BIT, 0, 1, _CLONE_THREAD))
    yield from _allow_if(_OPENAT[table], 2, (_IF_ANY_BIT, 1, 0, _WRITING))
    yield from _allow_if(_TGKILL[table], 0, (_IF_EQUAL, 0, 1, pid))
    if machine == "x86_64":
        yield from _allow_if(_ARCH_PRCTL, 0, (_IF_EQUAL, 0, 1, _REQUEST_PERMISSION))
    yield _RETURN, 0, 0, _DENY


def _allow_if(number: int, argument: int, test: _Instruction) -> Iterator[_Instruction]:
    """Allows a call if the test of its argument's low word falls through; it skips one to deny."""
    yield _IF_EQUAL, 0, 4, number
    yield _LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument
    yield test
    yield _RETURN, 0, 0, _RET_ALLOW
    yield _RETURN, 0, 0, _DENY
