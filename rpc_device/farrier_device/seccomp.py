"""seccomp: the system calls that a measurement child may make; every other one fails with EPERM.

An allow-list of what a running Python interpreter, the dynamic loader and a pool of threads need.
With it the child starts no process, opens nothing for writing, makes no socket, traces nobody,
and signals, moves and disturbs nobody but itself. A call that can reach beyond the process, by one
of its arguments, is allowed for the arguments alone that do not.

Source: the call tables of Linux for x86-64 and arm64, and for the arguments
`include/uapi/{linux/{fcntl,futex,sched},asm-generic/{fcntl,mman-common}}.h`.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Iterator
from typing import NamedTuple

from farrier_device import bpf
from farrier_device.describe import arch

# Name: its number on each architecture, in the order of `bpf.AUDIT_ARCH`.
_ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "newfstatat": (262, 79),
    "lseek": (8, 62),
    "pread64": (17, 67),
    "writev": (20, 66),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
    "membarrier": (324, 283),
    "sched_yield": (24, 124),
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
_CLONE3 = (435, 435)  # its flags are out of a filter's sight: "no such call" has libc use clone

# Commands of fcntl: dup, and what a descriptor is. Left out are those that name who gets a signal
# (F_SETOWN, F_SETSIG; F_SETFL with O_ASYNC, with which it is sent) or watch and lock files.
_DUPFD, _GETFD, _SETFD, _GETFL, _DUPFD_CLOEXEC = 0, 1, 2, 3, 1030

# Advice on memory: normal, random, sequential, willneed, dontneed, free, (no) huge pages, guards.
# Left out is what a privileged process does to a page of memory for all who share it: HWPOISON.
_ADVICE = (0, 1, 2, 3, 4, 8, 14, 15, 102, 103)

# Operations on a futex: wait, wake, requeue, by bits or not. Left out are those that pass on a
# priority: they name a thread, of any process.
_FUTEX_OPERATION = 0x7F  # without the flags "private" and "by the real-time clock"
_FUTEX = (0, 1, 3, 4, 5, 9, 10)

_CLONE_THREAD = 0x10000
_CLONE_NAMESPACES = 0x7E020000
_TMPFILE = 0o20000000
_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_APPEND | _TMPFILE
_REQUEST_PERMISSION = 0x1023  # ARCH_REQ_XCOMP_PERM: asks for tile registers

_WHOLE = 0xFFFFFFFF
_OWN = 0xFFFFFFFE  # stands for the number of the process itself: no process has it, nor a call
_PR_GET_SECCOMP = 21


class _Rule(NamedTuple):
    """A call that is allowed where the low word of one argument, masked, is one of some values."""

    numbers: tuple[int, ...]  # on each architecture, in the order of `bpf.AUDIT_ARCH`
    argument: int
    values: tuple[int, ...]
    mask: int = _WHOLE


def _rules(pid: int) -> dict[str, _Rule]:
    """By name; `pid` is the process itself. All these arguments are of 32 bits, or flags whose
    upper half the kernel ignores."""
    return {
        "futex": _Rule((202, 98), 1, _FUTEX, _FUTEX_OPERATION),
        "madvise": _Rule((28, 233), 2, _ADVICE),
        "fcntl": _Rule((72, 25), 1, (_DUPFD, _GETFD, _SETFD, _GETFL, _DUPFD_CLOEXEC)),
        # A filter cannot tell the process's threads from others: a thread binds itself.
        "sched_setaffinity": _Rule((203, 122), 0, (0, pid)),
        "tgkill": _Rule((234, 131), 0, (pid,)),  # abort()
        "clone": _Rule((56, 220), 0, (_CLONE_THREAD,), _CLONE_THREAD | _CLONE_NAMESPACES),
        "openat": _Rule((257, 56), 2, (os.O_RDONLY,), _WRITING),
        "arch_prctl": _Rule((158,), 0, (_REQUEST_PERMISSION,)),
    }


_DENY = (bpf.RETURN, 0, 0, bpf.RET_ERRNO | errno.EPERM)
_ALLOW = (bpf.RETURN, 0, 0, bpf.RET_ALLOW)


def restrict(libc: ctypes.CDLL) -> bool:
    """Install the filter on this thread and those it will start; False where it cannot.

    `no_new_privs` must be set. False also on an architecture without a call table here.
    """
    if not is_possible(libc):
        return False
    pid = os.getpid()
    steps = ((a, b, c, pid if d == _OWN else d) for a, b, c, d in _steps(arch()))
    return bpf.install(libc, steps)


def is_possible(libc: ctypes.CDLL) -> bool:
    """Return whether this kernel has filters, and this architecture a call table here."""
    return arch() in bpf.AUDIT_ARCH and libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


@functools.cache
def _steps(machine: str) -> list[bpf.Instruction]:
    """Return the filter of every process of a machine, which says `_OWN` where its number goes."""
    return list(_filter(machine, _OWN))


def _filter(machine: str, pid: int) -> Iterator[bpf.Instruction]:
    table = list(bpf.AUDIT_ARCH).index(machine)
    yield from bpf.native_calls(machine, _DENY)
    # First what the kernel asks the filter each time, futexes above all: it remembers which calls
    # are allowed by their number alone.
    for rule in _rules(pid).values():
        if table < len(rule.numbers):
            yield from _allow_where(rule, rule.numbers[table])
    for numbers in _ALLOWED.values():
        yield bpf.IF_EQUAL, 0, 1, numbers[table]
        yield _ALLOW
    yield bpf.IF_EQUAL, 0, 1, _CLONE3[table]
    yield bpf.RETURN, 0, 0, bpf.RET_ERRNO | errno.ENOSYS
    yield _DENY


def _allow_where(rule: _Rule, number: int) -> Iterator[bpf.Instruction]:
    """Skipped by other calls; ends the filter for this one."""
    tests = len(rule.values)
    yield bpf.IF_EQUAL, 0, tests + 4, number
    yield bpf.LOAD, 0, 0, bpf.ARGUMENTS_AT + 8 * rule.argument
    yield bpf.AND, 0, 0, rule.mask
    for index, value in enumerate(rule.values):
        yield bpf.IF_EQUAL, tests - index, 0, value
    yield _DENY
    yield _ALLOW
