"""The frames that a runner and its measurement child exchange over a socket pair.

A frame is a length of four bytes (little-endian), followed by that number of bytes of JSON text. A
frame may announce open files, which follow it: the child cannot open files, so it receives every
blob as a descriptor. A job's process and its supervisor use the same frames.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("<I")
_CREDENTIALS = struct.Struct("=iII")  # The `struct ucred`: process, user, group.
MAX_FRAME = 64 << 20  # Bytes; a longer frame is malformed.
_FILES_A_MESSAGE = 64  # The kernel takes up to 253.


class WireError(Exception):
    """The other side sent a malformed frame."""


class TooLongError(WireError):
    """The other side announced a longer frame than allowed."""


class ClosedError(Exception):
    """The other side has closed the socket."""


def send(sock: socket.socket, message: dict[str, Any]) -> None:
    """Send a message as a frame. Raises ClosedError, and TimeoutError after the socket's
    timeout."""
    text = json.dumps(message, separators=(",", ":")).encode()
    try:
        sock.sendall(_LENGTH.pack(len(text)) + text)
    except (BrokenPipeError, ConnectionResetError):
        raise ClosedError from None


def receive(
    sock: socket.socket, most: int = MAX_FRAME, within_s: float | None = None
) -> dict[str, Any]:
    """Receive the next frame and return its message. Raises ClosedError, WireError, and
    TimeoutError.

    A frame of more than `most` bytes raises TooLongError before any of it is read or allocated.
    `within_s` limits the time for the whole frame, however slowly it arrives; without `within_s`,
    the socket's timeout limits the time of each read.
    """
    deadline = None if within_s is None else time.monotonic() + within_s
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size, deadline))
    if length > most:
        raise TooLongError(f"a frame of {length} bytes is longer than the limit of {most} bytes")
    text = _exactly(sock, length, deadline)
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise WireError("a frame that is not JSON") from None
    if not isinstance(message, dict):
        raise WireError("a frame that is not an object")
    return message


def send_files(sock: socket.socket, files: Sequence[int]) -> None:
    """Send open descriptors; they stay open in this process. Raises ClosedError."""
    for start in range(0, len(files), _FILES_A_MESSAGE):
        part = files[start : start + _FILES_A_MESSAGE]
        try:
            socket.send_fds(sock, [b"f"], part)
        except (BrokenPipeError, ConnectionResetError):
            raise ClosedError from None


def receive_files(sock: socket.socket, count: int) -> list[int]:
    """Receive `count` descriptors and return them. Raises ClosedError, WireError."""
    files: list[int] = []
    try:
        while len(files) < count:
            data, part, _, _ = socket.recv_fds(sock, 1, _FILES_A_MESSAGE)
            files += part
            if not data:
                raise ClosedError
            if not part:
                raise WireError("a descriptor is missing")
        if len(files) > count:
            raise WireError("a descriptor too many")
    except BaseException:
        for file in files:
            os.close(file)
        raise
    return files


def ask_for_senders(sock: socket.socket) -> None:
    """Have the kernel report the sending process of all data that arrives over a socket from now
    on, for `sender`."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


def sender(sock: socket.socket, within_s: float) -> int:
    """Wait for a byte without consuming it; return the process id of its sender, 0 if the kernel
    does not report it.

    The id is that in the PID namespace of this process, whichever namespace the sender is in.
    Raises ClosedError and TimeoutError.
    """
    sock.settimeout(within_s)
    try:
        data, notes, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size), socket.MSG_PEEK)
    except ConnectionResetError:
        raise ClosedError from None
    if not data:
        raise ClosedError
    for level, kind, note in notes:
        if (level, kind, len(note)) == (
            socket.SOL_SOCKET,
            socket.SCM_CREDENTIALS,
            _CREDENTIALS.size,
        ):
            pid: int = _CREDENTIALS.unpack(note)[0]
            return pid
    return 0


def _exactly(sock: socket.socket, count: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        if deadline is not None:
            sock.settimeout(_left_s(deadline))
        try:
            part = sock.recv(min(count - len(data), 1 << 20))
        except ConnectionResetError:
            part = b""
        if not part:
            raise ClosedError
        data += part
    return bytes(data)


def _left_s(deadline: float) -> float:
    """Return the seconds until a deadline of the monotonic clock. Raises TimeoutError if it has
    passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
