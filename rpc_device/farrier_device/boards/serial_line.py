"""A line over a serial port of this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
import time

from farrier_device.boards.line import LineGoneError

_BITS_A_BYTE = 10  # A start bit, eight bits, a stop bit.
_RESET_S, _START_S = 0.1, 0.5  # To hold the reset of a board, and for its program to begin.
_WRITE_S = 10.0  # For the port to take more bytes.
_DTR = struct.pack("I", termios.TIOCM_DTR)


class SerialLine:
    """A `Line` over a serial port. A reset is a pulse on DTR, which the debuggers of many boards
    forward, and a break signal, which some programs treat as a reset."""

    def __init__(self, path: str, baud: int) -> None:
        """Open the port. Raises LineGoneError if the port is missing, or another process uses
        it."""
        self.name = f"the board on {path}"
        self.bytes_a_second = baud / _BITS_A_BYTE
        self._path = path
        self._speed = getattr(termios, f"B{baud}", termios.B0)
        if self._speed == termios.B0:  # That speed hangs up.
            raise LineGoneError(
                f"a serial port does not support a speed of {baud} baud; most boards use 115200"
            )
        self._port = -1
        self._open()

    def _open(self) -> None:
        try:
            self._port = os.open(self._path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(self._port, termios.TIOCEXCL)
            _, _, _, _, _, _, characters = termios.tcgetattr(self._port)
            control = termios.CS8 | termios.CREAD | termios.CLOCAL
            attributes = [0, 0, control, 0, self._speed, self._speed, characters]
            termios.tcsetattr(self._port, termios.TCSANOW, attributes)
        except (OSError, termios.error) as error:
            why = error.strerror if isinstance(error, OSError) else error.args[-1]
            self.close()
            raise LineGoneError(f"cannot use the serial port {self._path}: {why}") from None

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._check()
            if not select.select((), (self._port,), (), _WRITE_S)[1]:
                return  # Nobody takes the bytes: the answer that does not come says so.
            try:
                view = view[os.write(self._port, view) :]
            except OSError as error:
                raise self._gone(error) from None

    def read(self, within_s: float) -> bytes:
        self._check()
        if not select.select((self._port,), (), (), within_s)[0]:
            return b""
        try:
            data = os.read(self._port, 4096)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise self._gone(error) from None
        if not data:
            raise self._gone(None)
        return data

    def reset(self) -> None:
        if self._port < 0:
            self._open()
        with contextlib.suppress(OSError, termios.error):  # A port of USB may have neither.
            fcntl.ioctl(self._port, termios.TIOCMBIC, _DTR)
            termios.tcsendbreak(self._port, 0)
            time.sleep(_RESET_S)
            fcntl.ioctl(self._port, termios.TIOCMBIS, _DTR)
        time.sleep(_START_S)
        with contextlib.suppress(OSError, termios.error):
            termios.tcflush(self._port, termios.TCIOFLUSH)

    def close(self) -> None:
        if self._port >= 0:
            os.close(self._port)
            self._port = -1

    def _check(self) -> None:
        if self._port < 0:
            raise self._gone(None)

    def _gone(self, error: OSError | None) -> LineGoneError:
        self.close()
        why = error.strerror if error is not None else "the connection is lost"
        return LineGoneError(f"{self.name} is unplugged or switched off: {why}")
