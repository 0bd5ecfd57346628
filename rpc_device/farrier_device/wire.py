"""What a runner and its measurement child say to each other over a socket pair.

A frame is four bytes of length (little-endian) and that much JSON text. Open files follow a frame
that announces them: the child, which can open nothing itself, gets every blob as a descriptor. A
job's process and its supervisor speak in the same way.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("<I")
MAX_FRAME = 64 << 20  # bytes; a longer one is nonsense
_FILES_A_MESSAGE = 64  # the kernel takes up to 253


class WireError(Exception):
    """The other side sent something that is no frame."""


class ClosedError(Exception):
    """The other side is gone."""


def send(sock: socket.socket, message: dict[str, Any]) -> None:
    """Raises ClosedError, and TimeoutError under the socket's timeout."""
    text = json.dumps(message, separators=(",", ":")).encode()
    try:
        sock.sendall(_LENGTH.pack(len(text)) + text)
    except (BrokenPipeError, ConnectionResetError):
        raise ClosedError from None


def receive(sock: socket.socket, most: int = MAX_FRAME) -> dict[str, Any]:
    """The next frame, of at most so many bytes. Raises ClosedError, WireError, and the socket's
    TimeoutError."""
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    if length > most:
        raise WireError(f"a frame of {length} bytes, of which {most} are the most")
    text = _exactly(sock, length)
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise WireError("a frame that is not JSON") from None
    if not isinstance(message, dict):
        raise WireError("a frame that is not an object")
    return message


def send_files(sock: socket.socket, files: Sequence[int]) -> None:
    """Hands over open descriptors; the sender's stay open. Raises ClosedError."""
    for start in range(0, len(files), _FILES_A_MESSAGE):
        part = files[start : start + _FILES_A_MESSAGE]
        try:
            socket.send_fds(sock, [b"f"], part)
        except (BrokenPipeError, ConnectionResetError):
            raise ClosedError from None


def receive_files(sock: socket.socket, count: int) -> list[int]:
    """Takes `count` descriptors. Raises ClosedError, WireError."""
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


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        try:
            part = sock.recv(min(count - len(data), 1 << 20))
        except ConnectionResetError:
            part = b""
        if not part:
            raise ClosedError
        data += part
    return bytes(data)
