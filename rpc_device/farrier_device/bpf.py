"""Classic BPF as seccomp uses it: the instructions of a filter, and its installation.

A filter reads the number of a system call, its architecture and its arguments, and returns the
action to take. An instruction is a tuple: the code, the number of instructions to skip if its test
is true, the number to skip if the test is false, and the operand.

Source: Linux `include/uapi/linux/{seccomp,filter}.h`.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Iterable, Iterator

from farrier_device.arch import SystemCalls

# Opcodes: load a word of `struct seccomp_data`; keep some bits; jump if equal, if not less, if any
# bit is set; return.
LOAD, AND, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARGUMENTS_AT = 0, 16
_ARCH_AT = 4

RET_ALLOW = 0x7FFF0000
RET_ERRNO = 0x00050000
RET_KILL = 0x80000000

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2

Instruction = tuple[int, int, int, int]


def native_calls(calls: SystemCalls, deny: Instruction) -> Iterator[Instruction]:
    """Yield the first instructions of a filter, which load the number of a system call made under
    the architecture of `calls`. A call made under another architecture kills the process, or is
    denied if `deny` is set."""
    yield LOAD, 0, 0, _ARCH_AT
    yield IF_EQUAL, 1, 0, calls.audit_arch
    yield RETURN, 0, 0, RET_KILL
    yield LOAD, 0, 0, NUMBER_AT
    if calls.second_table_at is not None:
        yield IF_AT_LEAST, 0, 1, calls.second_table_at
        yield deny


def install(libc: ctypes.CDLL, steps: Iterable[Instruction]) -> bool:
    """Install a filter on this thread and the threads that it will start; return False if the
    kernel rejects the filter."""
    program = list(steps)
    code = struct.pack("=" + "HBBI" * len(program), *itertools.chain.from_iterable(program))
    text = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(program), ctypes.addressof(text))  # struct sock_fprog
    return bool(libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), head, 0, 0) == 0)
