"""seccomp for a process that works with files and processes of its own: what it may not call.

A deny-list, beside the allow-list of `seccomp`: the process opens files and starts others as it
likes (`landlock` says which files), but makes no socket other than a pair, looks into no other
process, leaves neither its session nor its namespaces, and gets at no part of the kernel that goes
around a filter (io_uring) or changes the machine. A denied call fails with EPERM.

Source: the call tables of Linux for x86-64 and arm64, and `include/uapi/linux/sched.h`.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator

from farrier_device import bpf
from farrier_device.describe import arch

# Name: its number on each architecture, in the order of `bpf.AUDIT_ARCH`.
_DENIED = {
    # Networks, and sockets by name: Redis on a unix socket is reached in no other way.
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    # Other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "perf_event_open": (298, 241),
    # The group by which its keeper measures and ends it.
    "setsid": (112, 157),
    "setpgid": (109, 154),
    # Ways around the filter and around paths.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Namespaces and mounts.
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # The machine, for who runs as root.
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
}
# Other processes altogether: what is denied in addition to one that is to be alone.
_DENIED_ALONE = {
    "fork": (57,),
    "vfork": (58,),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}
_CLONE3 = (435, 435)  # its flags are out of a filter's sight: "no such call" has libc use clone

# Calls that are denied where any of these bits of an argument is set: number, argument, bits.
_CLONE_NAMESPACES = 0x7E020000
_ANY = 0xFFFFFFFF
_DENIED_WHERE = {
    "clone": ((56, 220), 0, _CLONE_NAMESPACES),
    "prlimit64": ((302, 261), 0, _ANY),  # the limits of a process by its number; 0 is its own
}

_CLONE, _CLONE_THREAD = (56, 220), 0x10000
_TGKILL = (234, 131)  # abort()
_FCNTL, _NAMES_A_RECEIVER = (72, 25), (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX

_DENY = (bpf.RETURN, 0, 0, bpf.RET_ERRNO | errno.EPERM)


def restrict(libc: ctypes.CDLL) -> bool:
    """Install the filter on this thread and all that it will start; False where it cannot.

    `no_new_privs` must be set. False also on an architecture without a call table here.
    """
    machine = arch()
    return machine in bpf.AUDIT_ARCH and bpf.install(libc, _filter(machine))


def restrict_alone(libc: ctypes.CDLL) -> bool:
    """As `restrict`, of a process that starts threads and no process, and signals none."""
    machine = arch()
    return restrict(libc) and bpf.install(libc, _filter_alone(machine, os.getpid()))


def _filter(machine: str) -> Iterator[bpf.Instruction]:
    table = list(bpf.AUDIT_ARCH).index(machine)
    yield from bpf.native_calls(machine, _DENY)
    for numbers in _DENIED.values():
        yield bpf.IF_EQUAL, 0, 1, numbers[table]
        yield _DENY
    yield bpf.IF_EQUAL, 0, 1, _CLONE3[table]
    yield bpf.RETURN, 0, 0, bpf.RET_ERRNO | errno.ENOSYS
    for numbers, argument, bits in _DENIED_WHERE.values():
        yield bpf.IF_EQUAL, 0, 4, numbers[table]
        yield bpf.LOAD, 0, 0, bpf.ARGUMENTS_AT + 8 * argument
        yield bpf.IF_ANY_BIT, 0, 1, bits
        yield _DENY
        yield bpf.LOAD, 0, 0, bpf.NUMBER_AT
    yield bpf.RETURN, 0, 0, bpf.RET_ALLOW


def _filter_alone(machine: str, pid: int) -> Iterator[bpf.Instruction]:
    table = list(bpf.AUDIT_ARCH).index(machine)
    yield from bpf.native_calls(machine, _DENY)
    for numbers in _DENIED_ALONE.values():
        if table < len(numbers):
            yield bpf.IF_EQUAL, 0, 1, numbers[table]
            yield _DENY
    yield bpf.IF_EQUAL, 0, 4, _CLONE[table]
    yield bpf.LOAD, 0, 0, bpf.ARGUMENTS_AT
    yield bpf.IF_ANY_BIT, 1, 0, _CLONE_THREAD
    yield _DENY
    yield bpf.RETURN, 0, 0, bpf.RET_ALLOW
    yield bpf.IF_EQUAL, 0, 4, _TGKILL[table]
    yield bpf.LOAD, 0, 0, bpf.ARGUMENTS_AT
    yield bpf.IF_EQUAL, 1, 0, pid
    yield _DENY
    yield bpf.RETURN, 0, 0, bpf.RET_ALLOW
    yield bpf.IF_EQUAL, 0, 1 + 2 * len(_NAMES_A_RECEIVER), _FCNTL[table]
    yield bpf.LOAD, 0, 0, bpf.ARGUMENTS_AT + 8
    for command in _NAMES_A_RECEIVER:
        yield bpf.IF_EQUAL, 0, 1, command
        yield _DENY
    yield bpf.RETURN, 0, 0, bpf.RET_ALLOW
