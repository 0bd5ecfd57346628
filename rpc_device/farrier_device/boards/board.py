"""A board with the resident program: reads and writes of its memory, and calls of code in that
memory."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from farrier_device import codec
from farrier_device.boards.link import Link, RefusedError
from farrier_device.describe import MachineDescription

VERSION = 1
MOST_REPEATS, MOST_ARGUMENTS = 64, 128  # As `targets/bare/firmware/resident.h` has them.
_HELLO = struct.Struct("<BHII")  # The version, the most bytes of a body, the free memory.
_PLACE = struct.Struct("<II")  # An address, and bytes or milliseconds.
_CALL = struct.Struct("<IIHH")
_ENDING = struct.Struct("<BI")
_RETURNED, _FAULTED, _HUNG = range(3)
_ADDRESSES = 1 << 32  # An address has 32 bits.
_BYTES_A_SECOND = 1e6  # That the slowest board clears or sums up.
# Free memory begins at such an address, so that code moves there by whole steps (`image`).
ALIGNMENT = 1 << 16


class FaultError(Exception):
    """Code on the board has raised a processor fault."""


class HungError(Exception):
    """Code on the board has not returned within its time limit."""


class UnfitError(Exception):
    """The device at the other end of the line is not a board that this version can measure with."""


@dataclasses.dataclass(frozen=True, slots=True)
class Description:
    """The resident program's description of its board. A tick is a clock cycle, or an instruction
    on an emulator; `tick_ns` is the duration of a tick in nanoseconds, at the clock rate of the
    core."""

    machine: MachineDescription
    core: str
    tick_ns: float
    counts: str


class Board:
    """A board at the other end of a link, with methods that read and write its memory and call code
    in it."""

    def __init__(self, link: Link) -> None:
        """Read the board's description over the link. Raises UnfitError, SilentError,
        LineGoneError."""
        self.link = link
        self.greet()

    def greet(self) -> None:
        """Read the board's description again, as is necessary after a reset."""
        try:
            body = self.link.ask("H")
            version, self._most, self.begin, self.nbytes = _HELLO.unpack_from(body)
            text = body[_HELLO.size :].decode()
            self.description = codec.loads(Description, text, name="its description")
        except (RefusedError, struct.error, ValueError) as error:
            name = self.link.line.name
            raise UnfitError(
                f"{name} does not run Farrier's program: {error}; flash the "
                "program that `farrier firmware` writes"
            ) from None
        if version != VERSION:
            raise UnfitError(
                f"the program on {self.link.line.name} has version {version}, but this agent "
                f"needs version {VERSION}; flash the program that `farrier firmware` writes"
            )
        if self.begin % ALIGNMENT or self.begin + self.nbytes > _ADDRESSES:
            raise UnfitError(f"{self.link.line.name} reports free memory at an unsupported address")
        if self._most <= _PLACE.size:
            raise UnfitError(
                f"{self.link.line.name} accepts at most {self._most} bytes in "
                "a message, which is too few"
            )

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Write bytes to the board's memory at an address, unless it contains them already."""
        if self.checksum(address, len(data)) == zlib.crc32(data):
            return
        step = self._most - 4
        for at in range(0, len(data), step):
            self.link.ask("W", struct.pack("<I", address + at) + bytes(data[at : at + step]))

    def clear(self, address: int, nbytes: int) -> None:
        self.link.ask("Z", _PLACE.pack(address, nbytes), nbytes / _BYTES_A_SECOND)

    def checksum(self, address: int, nbytes: int) -> int:
        """Return the CRC-32 of `nbytes` of the board's memory at an address."""
        body = self.link.ask("S", _PLACE.pack(address, nbytes), nbytes / _BYTES_A_SECOND)
        return int(_unpacked("<I", body)[0])

    def read(self, address: int, nbytes: int) -> bytes:
        parts = []
        for at in range(0, nbytes, self._most):
            count = min(self._most, nbytes - at)
            part = self.link.ask("R", _PLACE.pack(address + at, count))
            if len(part) != count:
                raise RefusedError(f"the board sent {len(part)} bytes, but {count} were requested")
            parts.append(part)
        return b"".join(parts)

    def call(
        self, entry: int, arguments: Sequence[int], repeats: int, limit_s: float
    ) -> tuple[int, tuple[int, ...]]:
        """Call the function at the address `entry` of the board `repeats` times, with the addresses
        of its arguments. Return its return code, and the ticks of each call up to the first that
        failed. Raises FaultError, HungError."""
        milliseconds = max(1, round(1000 * limit_s))
        head = _CALL.pack(entry, milliseconds, repeats, len(arguments))
        body = self.link.ask("C", head + struct.pack(f"<{len(arguments)}I", *arguments), limit_s)
        ending, code = _unpacked("<BI", body[: _ENDING.size])
        rest = body[_ENDING.size :]
        if ending == _HUNG:
            raise HungError(f"did not return within {limit_s:g} s")
        if ending == _FAULTED:
            (at,) = _unpacked("<I", rest)
            place = f" at {at:#x}" if at else ""
            raise FaultError(f"the processor took the exception {code}{place}")
        ticks = _unpacked(f"<{len(rest) // 4}I", rest)
        if ending != _RETURNED or not 0 < len(ticks) <= repeats:
            raise RefusedError(f"the board sent {len(ticks)} times for {repeats} calls")
        return (code ^ 1 << 31) - (1 << 31), ticks  # The code has a sign.


def _unpacked(form: str, body: bytes) -> tuple[Any, ...]:
    try:
        return struct.unpack(form, body)
    except struct.error:
        raise RefusedError(
            f"the board sent {len(body)} bytes, which are not a valid answer"
        ) from None
