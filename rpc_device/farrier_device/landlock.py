"""Landlock: the kernel's own access control that needs no privilege (Linux 5.13 and later).

A ruleset that handles every right and allows none: after `restrict` this thread and the threads it
starts can open no file, bind or connect no TCP port and, where the kernel knows those, reach no
abstract socket and signal no process outside. Descriptors that are open stay usable.

Source: Linux `include/uapi/linux/landlock.h`.
"""

from __future__ import annotations

import ctypes
import struct

_CREATE_RULESET = 444  # the same numbers on every architecture
_RESTRICT_SELF = 446
_ASK_VERSION = 1

# Rights over files by the version of the interface that brought the last of them.
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NET_SINCE, _NET_RIGHTS = 4, 2
_SCOPE_SINCE, _SCOPES = 6, 2


def restrict(libc: ctypes.CDLL) -> bool:
    """Closes the file system and TCP to this thread for good; False where the kernel cannot.

    `no_new_privs` must be set.
    """
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    if version < 1:
        return False
    ruleset = _ruleset(version)
    descriptor = libc.syscall(_CREATE_RULESET, ruleset, ctypes.c_size_t(len(ruleset)), 0)
    if descriptor < 0:
        return False
    restricted: bool = libc.syscall(_RESTRICT_SELF, descriptor, 0) == 0
    libc.close(descriptor)
    return restricted


def _ruleset(version: int) -> bytes:
    """`struct landlock_ruleset_attr`, as long as this version of it is."""
    words = [_all(_FS_RIGHTS[min(version, max(_FS_RIGHTS))])]
    if version >= _NET_SINCE:
        words.append(_all(_NET_RIGHTS))
    if version >= _SCOPE_SINCE:
        words.append(_all(_SCOPES))
    return struct.pack(f"={len(words)}Q", *words)


def _all(bits: int) -> int:
    return (1 << bits) - 1
