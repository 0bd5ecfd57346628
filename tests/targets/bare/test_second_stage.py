"""The second stage of the RP2040's boot loader: it starts a model's program from a UF2 file.

The core is emulated by Unicorn. The ROM, the SSI that reads flash and the flash chip are models in
this file, which follow the RP2040 datasheet: what they leave out, as clocks and pads, is not shown.
"""

from __future__ import annotations

import importlib.util
import struct
import zlib

import numpy as np
import pytest

import farrier
from farrier.targets.bare.boards import BOARDS
from farrier.targets.bare.second_stage import STAGE_BYTES, checksum
from tests.targets.bare.test_passes import images

pytestmark = pytest.mark.long
needs_unicorn = pytest.mark.skipif(
    importlib.util.find_spec("unicorn") is None, reason="the package unicorn is not installed"
)
FLASH, STAGE_AT, RAM, RAM_BYTES = 0x1000_0000, 0x2004_1F00, 0x2000_0000, 0x4_2000
SSI, SYSTEM = 0x1800_0000, 0xE000_E000
VTOR = 0xE000_ED08
BREAKPOINT = 7  # The exception's number in qemu, which Unicorn shares.


def stated_checksum(content):
    """Return the CRC by zlib's, whose bits are the other way around and inverted at the end."""

    def mirrored(number, bits):
        return int(f"{number:0{bits}b}"[::-1], 2)

    bits = zlib.crc32(bytes(mirrored(byte, 8) for byte in content)) ^ 0xFFFF_FFFF
    return mirrored(bits, 32)


def flash_of(blocks):
    """Return the flash that the loader writes from a UF2 file, from its first address."""
    content, pages = bytearray(), len(blocks) // 512
    for number in range(pages):
        block = blocks[512 * number : 512 * (number + 1)]
        first, second, flags, address, size, index, count, family = struct.unpack_from("<8I", block)
        assert (first, second, block[508:]) == (0x0A32_4655, 0x9E5D_5157, b"\x30\x6f\xb1\x0a")
        assert (flags, size, index, count, family) == (0x2000, 256, number, pages, 0xE48B_FF56)
        assert address == FLASH + len(content)
        content += block[32 : 32 + size]
    return bytes(content)


class Chip:
    """A flash chip that knows the command 03h alone."""

    def __init__(self, content):
        self._content = content

    def read(self, sent, count):
        command, address = sent[0], int.from_bytes(sent[1:], "big")
        assert (command, len(sent)) == (0x03, 4)
        return self._content[address : address + count]


class Ssi:
    """The registers of the SSI, and the serial transfer that they make of a read (4.10.13)."""

    CTRLR0, CTRLR1, SSIENR, SER, BAUDR, SPI_CTRLR0 = 0x00, 0x04, 0x08, 0x10, 0x14, 0xF4

    def __init__(self, chip):
        self._chip = chip
        self._registers = {self.SSIENR: 1}  # The ROM leaves it on.

    def write(self, uc, offset, size, value, _):
        assert size == 4
        if offset != self.SSIENR:
            assert not self._registers[self.SSIENR], f"{offset:#x} changes while the SSI is on"
        self._registers[offset] = value

    def word(self, address):
        """Return the 32 bits at a 24-bit address of the chip."""
        registers = self._registers
        assert registers[self.SSIENR] == registers[self.SER] == 1
        assert registers[self.CTRLR1] == 0
        frames, reading = registers[self.CTRLR0], registers[self.SPI_CTRLR0]
        is_serial, bits, mode = frames >> 21 & 3 == 0, (frames >> 16 & 31) + 1, frames >> 8 & 3
        assert (is_serial, bits, mode) == (True, 32, 3)
        command_bits, address_bits = (0, 4, 8, 16)[reading >> 8 & 3], 4 * (reading >> 2 & 15)
        waits, lines = reading >> 11 & 31, reading & 3
        assert (command_bits, address_bits, waits, lines) == (8, 24, 0, 0)
        assert 133 / registers[self.BAUDR] <= 50  # MHz
        return self._chip.read(bytes([reading >> 24]) + address.to_bytes(3, "big"), bits // 8)


class Board:
    """An RP2040 after its ROM has copied the second stage to RAM. Flash cannot be read before the
    SSI can. A debugger serves semihosting."""

    def __init__(self, flash, inputs):
        import unicorn

        self._names = unicorn.arm_const
        mode = unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS
        self._uc = unicorn.Uc(unicorn.UC_ARCH_ARM, mode)
        self._uc.ctl_set_cpu_model(unicorn.arm_const.UC_CPU_ARM_CORTEX_M0)
        self._flash, self._ssi = flash, Ssi(Chip(flash))
        self._inputs = inputs
        self.outputs, self.code = b"", None
        self._uc.mem_map(RAM, RAM_BYTES)
        self._uc.mem_map(SYSTEM, 0x1000)
        self._uc.mmio_map(SSI, 0x1000, None, None, self._ssi.write, None)
        self._uc.mem_write(STAGE_AT, flash[:STAGE_BYTES])
        self._uc.hook_add(unicorn.UC_HOOK_MEM_READ_UNMAPPED, self._read_flash)
        self._uc.hook_add(unicorn.UC_HOOK_INTR, self._interrupt)

    def run(self, until=0xFFFF_FFFE):
        self._uc.emu_start(STAGE_AT | 1, until)

    def register(self, name):
        return self._uc.reg_read(getattr(self._names, f"UC_ARM_REG_{name}"))

    def word(self, address):
        return int.from_bytes(self._uc.mem_read(address, 4), "little")

    def _read_flash(self, uc, access, address, size, value, _):
        """Serve the first read of flash by the SSI, and the others by memory, as code is there."""
        assert address >> 24 == FLASH >> 24
        uc.mem_map(FLASH, 0x20_0000)
        uc.mem_write(FLASH, self._flash)
        at = address - FLASH
        assert self._ssi.word(at) == self._flash[at : at + 4]
        return True

    def _interrupt(self, uc, number, _):
        assert number == BREAKPOINT, f"exception {number} at {self.register('PC'):#x}"
        operation, block = self.register("R0"), self.register("R1")
        words = struct.unpack("<3I", uc.mem_read(block, 12)) if operation != 4 else ()
        result = 0
        match operation:
            case 1:  # SYS_OPEN
                result = 1 if uc.mem_read(words[0], words[2]) == b"inputs" else 2
            case 5:  # SYS_WRITE
                self.outputs += uc.mem_read(words[1], words[2])
            case 6:  # SYS_READ
                uc.mem_write(words[1], self._inputs[: words[2]])
                self._inputs = self._inputs[words[2] :]
            case 32:  # SYS_EXIT_EXTENDED
                self.code = words[1]
                uc.emu_stop()
        uc.reg_write(self._names.UC_ARM_REG_R0, result)
        uc.reg_write(self._names.UC_ARM_REG_PC, self.register("PC") + 2 | 1)


@pytest.fixture(scope="module")
def exported():
    artifact = farrier.compile(images(12, 8), target="rp2040", verify=False)
    [blocks] = artifact.export("uf2", "rp2040").files.values()
    return artifact, flash_of(blocks)


def test_the_checksum_is_the_one_that_the_loader_compares(exported):
    assert checksum(b"123456789") == stated_checksum(b"123456789") == 0x0376_E6E7
    _, flash = exported
    stated = int.from_bytes(flash[252:256], "little")
    assert stated_checksum(flash[:252]) == stated


@needs_unicorn
def test_the_second_stage_makes_flash_readable_and_starts_the_program(exported):
    _, flash = exported
    stack, reset = struct.unpack_from("<2I", flash, 256)
    board = Board(flash, b"")
    board.run(until=reset & ~1)
    assert board.register("PC") == reset & ~1
    assert board.register("SP") == stack == RAM + BOARDS["rp2040"].ram.nbytes
    assert board.word(VTOR) == BOARDS["rp2040"].flash.address == FLASH + STAGE_BYTES


@needs_unicorn
def test_the_program_computes_what_the_model_does_elsewhere(exported):
    _, flash = exported
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, 12, 8)).astype(np.int8)
    expected = farrier.compile(images(12, 8), verify=False).run({"x": x})["y"]
    board = Board(flash, x.tobytes())
    board.run()
    code, _, stack_bytes = struct.unpack_from("<3I", board.outputs)
    assert (board.code, code) == (0, 0)
    assert stack_bytes > 0
    assert board.outputs[12:] == expected.tobytes()
