"""A seccomp filter that denies certain system calls to a process which works with files and child
processes.

This is a deny-list, unlike the allow-list of `seccomp`: the process may open files and start
processes (`landlock` restricts the files), but it cannot create sockets other than a socket pair,
access other processes, leave its session or namespaces, bypass a filter (with io_uring) or change
the machine. A denied call fails with EPERM.

`arch` lists the numbers of the calls; a call that the architecture lacks needs no denial.

Source: Linux `include/uapi/linux/sched.h`.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence

from farrier_device import arch, bpf, describe
from farrier_device.arch import SystemCalls

_DENIED = (
    # Networks, and sockets by name, which are the only way to reach Redis on a Unix socket.
    "socket",
    "connect",
    "bind",
    "listen",
    "accept",
    "accept4",
    # Other processes.
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "pidfd_getfd",
    "kcmp",
    "move_pages",
    "migrate_pages",
    "perf_event_open",
    # The process group by which the keeper measures and ends it.
    "setsid",
    "setpgid",
    # Ways around the filter and around paths.
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "open_by_handle_at",
    "userfaultfd",
    "bpf",
    "add_key",
    "request_key",
    "keyctl",
    # Namespaces and mounts.
    "unshare",
    "setns",
    "chroot",
    "pivot_root",
    "mount",
    "umount2",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsmount",
    "fspick",
    "mount_setattr",
    # Changes to the machine, in case it runs as root.
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "reboot",
    "swapon",
    "swapoff",
)
# Calls that start or affect other processes, denied in addition to a process that runs alone.
_DENIED_ALONE = (
    "fork",
    "vfork",
    "execve",
    "execveat",
    "kill",
    "tkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "pidfd_open",
    "pidfd_send_signal",
    "setpriority",
    "ioprio_set",
    "sched_setscheduler",
    "sched_setparam",
    "sched_setattr",
)
_CLONE3 = "clone3"  # Its flags are out of a filter's sight: "no such call" has libc use clone.

# Calls that are denied where any of these bits of an argument is set: name, argument, bits.
_CLONE_NAMESPACES = 0x7E020000
_ANY = 0xFFFFFFFF
_DENIED_WHERE = (
    ("clone", 0, _CLONE_NAMESPACES),
    ("prlimit64", 0, _ANY),  # The limits of a process by its number; 0 is the process itself.
)

_CLONE_THREAD = 0x10000
_NAMES_A_RECEIVER = (8, 10, 15)  # These commands of fcntl are F_SETOWN, F_SETSIG, F_SETOWN_EX.

_DENY = (bpf.RETURN, 0, 0, bpf.RET_ERRNO | errno.EPERM)


def restrict(libc: ctypes.CDLL) -> bool:
    """Install the filter on this thread, and on the threads and processes that it will start.
    Return False if the kernel does not support filters, or if `arch` has no call table for this
    architecture.

    The flag `no_new_privs` must be set.
    """
    calls = arch.calls_of(describe.arch())
    return calls is not None and bpf.install(libc, program(calls))


def restrict_alone(libc: ctypes.CDLL) -> bool:
    """Install the filter of `restrict`, and a second filter that also denies to start processes and
    to signal other processes; threads are still allowed. Return False if the filters cannot be
    installed."""
    calls = arch.calls_of(describe.arch())
    return (
        calls is not None
        and restrict(libc)
        and bpf.install(libc, program_alone(calls, os.getpid()))
    )


def program(calls: SystemCalls) -> Iterator[bpf.Instruction]:
    """Return the filter for an architecture with these system calls."""
    yield from bpf.native_calls(calls, _DENY)
    yield from _denied(calls, _DENIED)
    yield bpf.IF_EQUAL, 0, 1, calls.numbers[_CLONE3]
    yield bpf.RETURN, 0, 0, bpf.RET_ERRNO | errno.ENOSYS
    for name, argument, bits in _DENIED_WHERE:
        yield bpf.IF_EQUAL, 0, 4, calls.numbers[name]
        yield bpf.LOAD, 0, 0, bpf.ARGUMENTS_AT + 8 * argument
        yield bpf.IF_ANY_BIT, 0, 1, bits
        yield _DENY
        yield bpf.LOAD, 0, 0, bpf.NUMBER_AT
    yield bpf.RETURN, 0, 0, bpf.RET_ALLOW


def program_alone(calls: SystemCalls, pid: int) -> Iterator[bpf.Instruction]:
    """Return the second filter of `restrict_alone`, for the process with the id `pid`."""
    yield from bpf.native_calls(calls, _DENY)
    yield from _denied(calls, _DENIED_ALONE)
    yield bpf.IF_EQUAL, 0, 4, calls.numbers["clone"]
    yield bpf.LOAD, 0, 0, bpf.ARGUMENTS_AT
    yield bpf.IF_ANY_BIT, 1, 0, _CLONE_THREAD
    yield _DENY
    yield bpf.RETURN, 0, 0, bpf.RET_ALLOW
    yield bpf.IF_EQUAL, 0, 4, calls.numbers["tgkill"]  # `abort()` calls it.
    yield bpf.LOAD, 0, 0, bpf.ARGUMENTS_AT
    yield bpf.IF_EQUAL, 1, 0, pid
    yield _DENY
    yield bpf.RETURN, 0, 0, bpf.RET_ALLOW
    yield bpf.IF_EQUAL, 0, 1 + 2 * len(_NAMES_A_RECEIVER), calls.numbers["fcntl"]
    yield bpf.LOAD, 0, 0, bpf.ARGUMENTS_AT + 8
    for command in _NAMES_A_RECEIVER:
        yield bpf.IF_EQUAL, 0, 1, command
        yield _DENY
    yield bpf.RETURN, 0, 0, bpf.RET_ALLOW


def _denied(calls: SystemCalls, names: Sequence[str]) -> Iterator[bpf.Instruction]:
    for name in names:
        if (number := calls.number(name)) is not None:
            yield bpf.IF_EQUAL, 0, 1, number
            yield _DENY
