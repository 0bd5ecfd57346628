"""The named boards: the addresses of their memories, and how they are emulated.

For boards without an emulator, the memory addresses are not yet checked against the cited data
sheets.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

from farrier.targets.bare.cores import CORES, Core

_K, _M = 1 << 10, 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """A region of memory: its address, and its size in bytes."""

    address: int
    nbytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Emulator:
    """A qemu machine that emulates a board. `counter` is the address of the machine's tick counter,
    or 0 for the core's own counter. With `shift`, each instruction takes 2^shift ns of emulated
    time; `tick_ns` is the emulated time between two ticks of the counter."""

    program: str
    package: str  # The Debian package that contains the program.
    machine: str
    counter: int
    shift: int
    tick_ns: int
    options: tuple[str, ...] = ()
    counter_kind: str = "COUNTER"  # The macro of `firmware/ticks.h` that has the address.

    def instructions(self, ticks: int) -> int:
        """Return the number of instructions executed in `ticks` ticks of the counter."""
        return ticks * self.tick_ns >> self.shift


class Uart(enum.IntEnum):
    """The kinds of UART for which `firmware/line.h` has drivers."""

    CMSDK = 1
    NS16550 = 2
    NRF = 3
    STM32F4 = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """The serial line to the resident firmware: the kind of UART, its address, and the core clock
    in kHz that the firmware runs at. RISC-V boards also have a timer: its address in the core-local
    interruptor (`timer`), and its clock (`timer_khz`)."""

    uart: Uart
    address: int
    khz: int
    timer: int = 0
    timer_khz: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """The properties of a board that appears as a USB disk and is programmed by a UF2 file for its
    `family`. `boot` are the words after the vector table by which its boot loader recognizes a
    program. `second_stage` is the address of the second stage (`second_stage.py`) if its boot
    loader needs one, else None."""

    family: int
    boot: tuple[int, ...] = ()
    second_stage: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Board:
    """A microcontroller board. Code and parameters are placed in `flash`, a model's arena and the
    stack in `ram`. `vectors` is the address of the vector table if that is outside `flash`."""

    core: str
    flash: Region
    ram: Region
    source: str
    vectors: int | None = None
    emulator: Emulator | None = None
    line: Line | None = None
    disk: Disk | None = None


def _arm(machine: str, counter: int, tick_ns: int = 40) -> Emulator:
    """Return the description of an Arm machine in qemu. `tick_ns` is 40 for its older boards, whose
    counter runs at 25 MHz, and 50 for those at 20 MHz."""
    return Emulator("qemu-system-arm", "qemu-system-arm", machine, counter, 5, tick_ns)


# The memories of the machine are properties of its nRF51 (qemu's `hw/arm/nrf51_soc.c`), and its
# first timer counts at 8 MHz.
_MICROBIT = Emulator(
    "qemu-system-arm",
    "qemu-system-arm",
    "microbit",
    counter=0x4000_8000,
    shift=5,
    tick_ns=125,
    options=(
        *("-global", "nrf51-soc.flash-size=1048576"),
        *("-global", "nrf51-soc.sram-size=1048576"),
    ),
    counter_kind="NRF_TIMER",
)
_RISCV = Emulator(
    "qemu-system-riscv32",
    "qemu-system-misc",
    "virt",
    counter=0,
    shift=0,
    tick_ns=1,
    options=("-bios", "none"),
)
# The machine's UART, and its core-local interruptor: qemu's `hw/riscv/virt.c`.
_RISCV_LINE = Line(Uart.NS16550, 0x1000_0000, 1_000_000, timer=0x0200_4000, timer_khz=10_000)
_MPS2_LINE = Line(Uart.CMSDK, 0x4000_4000, 25_000)
# RP2350 datasheet, 5.5.3 and 5.9.5.1: the UF2 family of secure programs for the Arm cores, and the
# block that marks a program as such.
_RP2350_DISK = Disk(0xE48B_FF59, (0xFFFF_DED3, 0x1021_0142, 0x0000_01FF, 0x0000_0000, 0xAB12_3579))
# RP2040 datasheet, 2.8.1 and 2.8.4.2: the second stage at the start of flash, and the UF2 family.
_RP2040_DISK = Disk(0xE48B_FF56, second_stage=0x1000_0000)
_FLASH = Region(0x0, 4 * _M)
_RAM = Region(0x2000_0000, 4 * _M)

# The addresses and sizes of emulated boards are from the Arm application notes that they are named
# after, and from qemu's `hw/arm/mps2.c`, `mps2-tz.c` and `hw/riscv/virt.c`.
BOARDS: Mapping[str, Board] = {
    "qemu-m0": Board(
        "cortex-m0plus",
        Region(0x0, _M),
        Region(0x2000_0000, _M),
        "qemu's machine `microbit`, a Cortex-M0 of nRF51, with more memory than that has",
        emulator=_MICROBIT,
    ),
    "mps2-an385": Board(
        "cortex-m3",
        _FLASH,
        _RAM,
        "Arm Application Note AN385, Cortex-M3 on MPS2",
        emulator=_arm("mps2-an385", 0x4002_8018),
        line=_MPS2_LINE,
    ),
    "mps2-an386": Board(
        "cortex-m4",
        _FLASH,
        _RAM,
        "Arm Application Note AN386, Cortex-M4 on MPS2",
        emulator=_arm("mps2-an386", 0x4002_8018),
        line=_MPS2_LINE,
    ),
    "mps2-an500": Board(
        "cortex-m7",
        _FLASH,
        _RAM,
        "Arm Application Note AN500, Cortex-M7 on MPS2",
        emulator=_arm("mps2-an500", 0x4002_8018),
        line=_MPS2_LINE,
    ),
    "mps2-an505": Board(
        "cortex-m33",
        Region(0x1000_0000, 4 * _M),
        Region(0x3800_0000, 4 * _M),
        "Arm Application Note AN505, Cortex-M33 on MPS2",
        emulator=_arm("mps2-an505", 0x5030_2018, tick_ns=50),
        line=Line(Uart.CMSDK, 0x5020_0000, 20_000),
    ),
    "mps3-an547": Board(
        "cortex-m55",
        Region(0x1100_0000, 2 * _M),
        Region(0x3100_0000, 4 * _M),
        "Arm Application Note AN547, Cortex-M55 on MPS3",
        vectors=0x1000_0000,
        emulator=_arm("mps3-an547", 0x4930_2018, tick_ns=50),
        line=Line(Uart.CMSDK, 0x5930_3000, 32_000),
    ),
    "nrf52840": Board(
        "cortex-m4",
        Region(0x0, _M),
        Region(0x2000_0000, 256 * _K),
        "Nordic nRF52840 Product Specification: 64 MHz, 1 MB of flash, 256 KB of RAM",
        line=Line(Uart.NRF, 0x4000_2000, 64_000),
    ),
    "stm32f411": Board(
        "cortex-m4",
        Region(0x0800_0000, 512 * _K),
        Region(0x2000_0000, 128 * _K),
        "STMicroelectronics STM32F411xE datasheet: 100 MHz, 512 KB of flash, 128 KB of SRAM",
        line=Line(Uart.STM32F4, 0x4000_4400, 16_000),
    ),
    "stm32h743": Board(
        "cortex-m7",
        Region(0x0800_0000, 2 * _M),
        Region(0x2400_0000, 512 * _K),
        "STMicroelectronics STM32H743 datasheet: 480 MHz, 2 MB of flash, 512 KB of AXI SRAM",
    ),
    # The first 256 bytes of flash are for the second stage of its boot loader.
    "rp2040": Board(
        "cortex-m0plus",
        Region(0x1000_0100, 2 * _M - 256),
        Region(0x2000_0000, 264 * _K),
        "Raspberry Pi RP2040 datasheet: 133 MHz, 264 KB of SRAM; the 2 MB of flash of a Pico",
        disk=_RP2040_DISK,
    ),
    "rp2350": Board(
        "cortex-m33",
        Region(0x1000_0000, 4 * _M),
        Region(0x2000_0000, 512 * _K),
        "Raspberry Pi RP2350 datasheet: 150 MHz, 512 KB of SRAM; the 4 MB of flash of a Pico 2",
        disk=_RP2350_DISK,
    ),
    "esp32-c3": Board(
        "rv32imac",
        Region(0x4200_0000, 4 * _M),
        Region(0x3FC8_0000, 320 * _K),
        "Espressif ESP32-C3 datasheet: 160 MHz, rv32imc, 400 KB of SRAM of which 80 KB are others'",
    ),
    "hifive1": Board(
        "rv32imac",
        Region(0x2001_0000, 4 * _M - 64 * _K),
        Region(0x8000_0000, 16 * _K),
        "SiFive FE310-G002 manual: 320 MHz, rv32imac, 16 KB of data memory; the HiFive1 Rev B has "
        "4 MB of flash, of which its boot loader takes 64 KB",
    ),
    "qemu-rv32": Board(
        "rv32imafc",
        Region(0x8000_0000, 32 * _M),
        Region(0x8200_0000, 32 * _M),
        "qemu's machine `virt` with a core of 32 bits",
        emulator=_RISCV,
        line=_RISCV_LINE,
    ),
    "qemu-rv32imac": Board(
        "rv32imac",
        Region(0x8000_0000, 32 * _M),
        Region(0x8200_0000, 32 * _M),
        "qemu's machine `virt` with a core of 32 bits and no floats",
        emulator=_RISCV,
        line=_RISCV_LINE,
    ),
}


def emulated_board(core: Core) -> Board:
    """Return the emulated board that has the given core."""
    return next(board for board in BOARDS.values() if CORES[board.core] == core and board.emulator)
