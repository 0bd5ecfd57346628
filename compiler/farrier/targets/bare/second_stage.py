"""The second stage of a boot loader that cannot read a board's flash by itself, as the RP2040's.

The loader copies the first 256 bytes of flash to RAM, and calls them if their last four are the
checksum of the others (RP2040 datasheet, 2.8.1). They make the flash readable at its addresses, and
start the program (`firmware/second_stage.S`).
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from farrier.errors import CompilerError
from farrier.targets.bare.c_compiler import FIRMWARE, compile_c
from farrier.targets.bare.cores import CORES
from farrier.targets.bare.elf import contents

STAGE_BYTES = 256
"""The bytes of a second stage, with its checksum."""

_POLYNOMIAL, _CHECKSUM_BYTES = 0x04C1_1DB7, 4


@functools.cache
def second_stage(core: str, vectors: int) -> bytes:
    """Return the 256 bytes of the second stage, which starts the program whose vector table is at
    the address `vectors`. Raises CompilerError."""
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        compile_c(Path(at), CORES[core], FIRMWARE / "second_stage.S", {"VECTORS": vectors})
        code = contents((Path(at) / "second_stage.o").read_bytes(), ".second_stage")
    most = STAGE_BYTES - _CHECKSUM_BYTES
    if len(code) > most:
        raise CompilerError(f"the second stage has {len(code)} bytes, and its place {most}")
    padded = code.ljust(most, b"\0")
    return padded + checksum(padded).to_bytes(_CHECKSUM_BYTES, "little")


def checksum(content: bytes) -> int:
    """Return the CRC of 32 bits that the loader compares: the polynomial 0x04C11DB7, the highest
    bit of each byte first, all bits set at the beginning, and nothing inverted at the end."""
    remainder = 0xFFFF_FFFF
    for byte in content:
        remainder ^= byte << 24
        for _ in range(8):
            remainder = (remainder << 1) ^ (_POLYNOMIAL if remainder >> 31 else 0)
            remainder &= 0xFFFF_FFFF
    return remainder
