"""The parts of the ECP5 family that accelerators are placed on."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Cells:
    """The cells of an ECP5: 4-input LUTs, flip-flops, 18 × 18 bit multipliers, and 18 Kibit block
    RAMs."""

    lut: int
    ff: int
    dsp: int
    ram: int


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """An FPGA of the ECP5 family: its name, the cells that it has, and nextpnr's options that
    select it.

    Its multipliers and block RAMs lie in rows of tiles, four of either kind from each of `columns`
    on."""

    name: str
    has: Cells
    options: tuple[str, ...]
    columns: tuple[int, ...]
    multiplier_rows: tuple[int, ...]
    ram_rows: tuple[int, ...]

    def lacks(self, cells: Cells) -> list[str]:
        """Return the cells of which the part has too few, as clauses."""
        wanted, there = dataclasses.asdict(cells), dataclasses.asdict(self.has)
        return [
            f"{count:,} {name} of {there[name]:,}"
            for name, count in wanted.items()
            if count > there[name]
        ]

    def fullness(self, cells: Cells) -> float:
        """Return the share of the part's cells of the scarcest kind."""
        wanted, there = dataclasses.asdict(cells), dataclasses.asdict(self.has)
        return max(float(wanted[name] / there[name]) for name in there)


# Lattice, ECP5 and ECP5-5G family data sheet: what each part has. Project Trellis, tilegrid.json:
# where it lies.
PARTS = (
    Part(
        "ECP5-25",
        Cells(24_288, 24_288, 28, 56),
        ("--25k", "--package", "CABGA381"),
        columns=(4, 13, 22, 33, 42, 51, 60),
        multiplier_rows=(13,),
        ram_rows=(25, 37),
    ),
    Part(
        "ECP5-45",
        Cells(43_848, 43_848, 72, 108),
        ("--45k", "--package", "CABGA554"),
        columns=(4, 13, 22, 31, 42, 51, 60, 69, 78),
        multiplier_rows=(22, 46),
        ram_rows=(10, 34, 58),
    ),
    Part(
        "ECP5-85",
        Cells(83_640, 83_640, 156, 208),
        ("--85k", "--package", "CABGA756"),
        columns=(4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114),
        multiplier_rows=(10, 34, 58),
        ram_rows=(22, 46, 70, 82),
    ),
)


# On a part that has hardly any other cell of a kind, wires crowd around them.
_ROOMY = 0.85


def part_for(cells: Cells) -> Part | None:
    """Return the smallest part with room to route these cells, or else the largest part with enough
    cells. Return None if no part has enough."""
    able = [part for part in PARTS if not part.lacks(cells)]
    roomy = [part for part in able if part.fullness(cells) <= _ROOMY]
    return (*roomy[:1], *able[-1:], None)[0]
