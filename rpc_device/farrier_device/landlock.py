"""Landlock, the kernel's access control for unprivileged processes (Linux 5.13 and later).

`restrict` installs a ruleset that denies every right except on the paths that it allows. Afterwards
this thread, and the threads and processes that it starts, can open no other file, bind or connect
no TCP port and, on newer kernels, connect to no abstract socket and signal no process outside of
the sandbox; nor can they trace such a process, or read its memory and environment. Open descriptors
stay usable.

Source: Linux `include/uapi/linux/landlock.h`.
"""

from __future__ import annotations

import ctypes
import enum
import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path

_CREATE_RULESET = 444  # These numbers are the same on every architecture.
_ADD_RULE = 445
_RESTRICT_SELF = 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

# The number of file rights by version of the interface.
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NET_SINCE, _NET_RIGHTS = 4, 2
_SCOPE_SINCE, _SCOPES = 6, 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE = 1 << 4 | 1 << 5  # directories, files
_MAKE = 1 << 7 | 1 << 8  # directories, regular files
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
# A rule for one file may allow these.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


class Access(enum.IntFlag):
    """The rights on a path and on all paths below it."""

    LIST = _READ_DIR
    READ = _READ_DIR | _READ_FILE | _EXECUTE
    WRITE = _READ_DIR | _READ_FILE | _WRITE_FILE | _REMOVE | _MAKE | _REFER | _TRUNCATE
    DEVICE = _READ_DIR | _READ_FILE | _WRITE_FILE | _IOCTL_DEV


def restrict(libc: ctypes.CDLL, allowed: Mapping[Path, Access] | None = None) -> bool:
    """Permanently deny this thread TCP and the file system, except for the `allowed` paths. A path
    that does not exist is skipped. Return False if the kernel does not support Landlock.

    The flag `no_new_privs` must be set.
    """
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    if version < 1:
        return False
    handled = _all(_FS_RIGHTS[min(version, max(_FS_RIGHTS))])
    ruleset = _ruleset(version, handled)
    descriptor = libc.syscall(_CREATE_RULESET, ruleset, ctypes.c_size_t(len(ruleset)), 0)
    if descriptor < 0:
        return False
    try:
        for path, access in (allowed or {}).items():
            if not _allow(libc, descriptor, path, access & handled):
                return False
        return bool(libc.syscall(_RESTRICT_SELF, descriptor, 0) == 0)
    finally:
        os.close(descriptor)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> bool:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # The path does not exist, or cannot be reached without a rule.
        return True
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        if not rights:
            return True
        rule = struct.pack("=Qi", rights, place)  # struct landlock_path_beneath_attr
        return bool(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) == 0)
    finally:
        os.close(place)


def _ruleset(version: int, handled: int) -> bytes:
    """Return a `struct landlock_ruleset_attr` as bytes, of the length that this version of Landlock
    expects."""
    words = [handled]
    if version >= _NET_SINCE:
        words.append(_all(_NET_RIGHTS))
    if version >= _SCOPE_SINCE:
        words.append(_all(_SCOPES))
    return struct.pack(f"={len(words)}Q", *words)


def _all(bits: int) -> int:
    return (1 << bits) - 1
