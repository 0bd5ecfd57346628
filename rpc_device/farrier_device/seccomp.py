"""seccomp: a filter of the system calls that a measurement child may make; all others fail with
EPERM.

The filter is an allow-list of the calls that a running Python interpreter, the dynamic loader and a
pool of threads need. With the filter the child starts no process, opens no file for writing,
creates no socket, traces no process, and signals, moves and disturbs only itself. A call that can
affect other processes is allowed only with arguments that do not.

`arch` lists the numbers of the calls, and the calls that only one architecture has.

Source: Linux `include/uapi/{linux/{fcntl,futex,sched},asm-generic/{fcntl,mman-common}}.h`.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Iterator

from farrier_device import arch, bpf, describe
from farrier_device.arch import ArgumentRule, SystemCalls
from farrier_device.profiles import HOST, Profile

_ALLOWED = (
    "read",
    "write",
    "close",
    "fstat",
    "newfstatat",
    "lseek",
    "pread64",
    "writev",
    "sendto",
    "recvfrom",
    "recvmsg",
    "mmap",
    "mprotect",
    "munmap",
    "mremap",
    "brk",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "restart_syscall",
    "set_robust_list",
    "rseq",
    "membarrier",
    "sched_yield",
    "sched_getaffinity",
    "clock_gettime",
    "clock_getres",
    "clock_nanosleep",
    "nanosleep",
    "getrandom",
    "getpid",
    "gettid",
    "getcpu",
    "exit",
    "exit_group",
)
# Its flags are in memory, which a filter cannot read: "no such call" makes libc use clone.
_CLONE3 = "clone3"

# Allowed commands of fcntl duplicate a descriptor or read its properties. Commands that set the
# receiver of a signal (F_SETOWN, F_SETSIG; F_SETFL with O_ASYNC, which sends it) or watch and lock
# files are left out.
_DUPFD, _GETFD, _SETFD, _GETFL, _DUPFD_CLOEXEC = 0, 1, 2, 3, 1030

# Allowed advice on memory: normal, random, sequential, willneed, dontneed, free, (no) huge pages,
# guards. HWPOISON is left out: a privileged process affects a page for all who share it.
_ADVICE = (0, 1, 2, 3, 4, 8, 14, 15, 102, 103)

# Allowed operations on a futex: wait, wake, requeue, by bits or not. Operations that pass on a
# priority are left out: they name a thread of any process.
_FUTEX_OPERATION = 0x7F  # Without the flags "private" and "by the real-time clock".
_FUTEX = (0, 1, 3, 4, 5, 9, 10)

_CLONE_THREAD = 0x10000
_CLONE_NAMESPACES = 0x7E020000
_TMPFILE = 0o20000000
_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_APPEND | _TMPFILE

_OWN = 0xFFFFFFFE  # Stands for the number of the process itself, which no process or call has.
_PR_GET_SECCOMP = 21


def _added(profile: Profile) -> tuple[str, ...]:
    """Return the additional system calls of a profile. `landlock` restricts `ioctl` to the
    profile's files."""
    return (*profile.calls, "ioctl") if profile.files else profile.calls


def _rules(pid: int, profile: Profile) -> dict[str, ArgumentRule]:
    """Return the rules for arguments, by the name of the call; `pid` is the process id of this
    process. All these arguments have 32 bits, or are flags whose upper half the kernel ignores."""
    modes = (os.O_RDONLY, os.O_RDWR) if profile.files else (os.O_RDONLY,)
    return {
        "futex": ArgumentRule(1, _FUTEX, _FUTEX_OPERATION),
        "madvise": ArgumentRule(2, _ADVICE),
        "fcntl": ArgumentRule(1, (_DUPFD, _GETFD, _SETFD, _GETFL, _DUPFD_CLOEXEC)),
        # A filter cannot distinguish the process's threads from others, so a thread may only bind
        # itself.
        "sched_setaffinity": ArgumentRule(0, (0, pid)),
        "tgkill": ArgumentRule(0, (pid,)),  # `abort()` calls it.
        "clone": ArgumentRule(0, (_CLONE_THREAD,), _CLONE_THREAD | _CLONE_NAMESPACES),
        "openat": ArgumentRule(2, modes, _WRITING),
    }


_DENY = (bpf.RETURN, 0, 0, bpf.RET_ERRNO | errno.EPERM)
_ALLOW = (bpf.RETURN, 0, 0, bpf.RET_ALLOW)


def restrict(libc: ctypes.CDLL, profile: Profile = HOST) -> bool:
    """Install the filter on this thread and the threads that it will start. `profile` contains the
    additions for a device. Return False if the kernel does not support filters, or if `arch` has no
    call table for this architecture.

    The flag `no_new_privs` must be set.
    """
    calls = arch.calls_of(describe.arch())
    if calls is None or not is_possible(libc):
        return False
    pid = os.getpid()
    steps = _steps(profile)
    return bpf.install(libc, ((a, b, c, pid if d == _OWN else d) for a, b, c, d in steps))


def is_possible(libc: ctypes.CDLL) -> bool:
    """Return whether this kernel supports filters, and `arch` has a call table for this
    architecture."""
    has_calls = arch.calls_of(describe.arch()) is not None
    return has_calls and bool(libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0)


@functools.cache
def _steps(profile: Profile) -> list[bpf.Instruction]:
    """Return the filter for a profile. It is shared by all processes of the profile, so it contains
    the placeholder `_OWN` in place of a process id."""
    calls = arch.calls_of(describe.arch())
    assert calls is not None
    return list(program(calls, _OWN, profile))


def program(calls: SystemCalls, pid: int, profile: Profile = HOST) -> Iterator[bpf.Instruction]:
    """Return the filter for the process `pid` on an architecture with these system calls."""
    yield from bpf.native_calls(calls, _DENY)
    # Calls with argument rules come first, above all futexes, because the kernel runs the filter
    # for them each time: it caches calls that are allowed by number alone.
    for name, rule in {**_rules(pid, profile), **calls.rules}.items():
        yield from _allow_where(rule, calls.numbers[name])
    for name in (*_ALLOWED, *calls.allowed, *_added(profile)):
        yield bpf.IF_EQUAL, 0, 1, calls.numbers[name]
        yield _ALLOW
    yield bpf.IF_EQUAL, 0, 1, calls.numbers[_CLONE3]
    yield bpf.RETURN, 0, 0, bpf.RET_ERRNO | errno.ENOSYS
    yield _DENY


def _allow_where(rule: ArgumentRule, number: int) -> Iterator[bpf.Instruction]:
    """Yield the filter instructions that allow or deny the system call `number` according to the
    rule for its argument. For any other call, they continue with the instruction after them."""
    tests = len(rule.values)
    yield bpf.IF_EQUAL, 0, tests + 4, number
    yield bpf.LOAD, 0, 0, bpf.ARGUMENTS_AT + 8 * rule.argument
    yield bpf.AND, 0, 0, rule.mask
    for index, value in enumerate(rule.values):
        yield bpf.IF_EQUAL, tests - index, 0, value
    yield _DENY
    yield _ALLOW
