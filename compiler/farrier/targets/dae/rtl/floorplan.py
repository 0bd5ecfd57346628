"""The floorplan of an accelerator on an ECP5: multipliers and block RAMs are fixed to sites.

An output of the matrix unit adds up the products of some multipliers. Multipliers and block RAMs
are far apart on an ECP5, and a placer that starts from wires alone mixes those of all outputs, so
that their wires cross the part. Here each output has its own region of the part, with

    its multipliers, its slices of the weights, and its slices of all copies of the sums

Regions lie in bands, each a row of tiles with multipliers and one with block RAMs. They are spread
over the whole part, as wires are what a design has too few of. nextpnr places all other cells.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from farrier.targets.dae.rtl.parts import Part

_GROUP = 4  # Multipliers, or block RAMs, in a group of columns.
_PITCH = 9  # Columns from a group of sites to the next one.
# Offsets of columns and names of the sites in a group, as nextpnr has them.
_SITES = {
    "MULT18X18D": tuple((n, f"MULT18_{n}") for n in (0, 1, 4, 5)),
    "DP16KD": tuple((2 * n, f"EBR{n}") for n in range(_GROUP)),
}
_MULTIPLIER = re.compile(r"compute\.matrix\.multiplier(\d+)_\d+\b")
_SLICE = re.compile(r"(weights|sums\.\w+)\.ram\.content\.\d+\.(\d+)$")


@dataclasses.dataclass(frozen=True, slots=True)
class _Site:
    column: int
    row: int
    name: str

    def distance(self, column: float, row: float) -> float:
        # A row of tiles is long: its far sites are better than those of another row.
        return abs(self.column - column) + 2 * abs(self.row - row)


def fix(module: Mapping[str, Any], outputs: int, part: Part) -> None:
    """Fix the multipliers and block RAMs of an accelerator to sites of a part. `module` is the top
    module of yosys's JSON, whose cells get the attribute BEL; `outputs` is the number of outputs of
    the matrix unit."""
    owned = dict(_owned(module, outputs))
    kinds = {name: module["cells"][name]["type"] for name in owned}
    free = {kind: list(_sites(part, kind)) for kind in _SITES}
    centers = _centers(outputs, part)
    # The slices of sums are the most, and so the last to choose.
    for name in sorted(owned, key=lambda name: (name.startswith("sums"), owned[name], name)):
        sites = free[kinds[name]]
        nearest = min(sites, key=lambda site: site.distance(*centers[owned[name]]))
        sites.remove(nearest)
        bel = f"X{nearest.column}/Y{nearest.row}/{nearest.name}"
        module["cells"][name].setdefault("attributes", {})["BEL"] = bel


def _owned(module: Mapping[str, Any], outputs: int) -> Iterator[tuple[str, int]]:
    """Yield the name of each cell to fix, and the number of the output that it belongs to."""
    slices = {}
    for name, cell in module["cells"].items():
        if cell["type"] not in _SITES:
            continue
        if match := _MULTIPLIER.match(name):
            yield name, int(match[1])
        elif match := _SLICE.match(name):
            slices[name] = match[1], int(match[2])
    counts: Counter[str] = Counter()
    for memory, number in slices.values():
        counts[memory] = max(counts[memory], number + 1)
    for name, (memory, number) in slices.items():
        yield name, number * outputs // counts[memory]


def _sites(part: Part, kind: str) -> Iterator[_Site]:
    for row in part.ram_rows if kind == "DP16KD" else part.multiplier_rows:
        for column in part.columns:
            for offset, name in _SITES[kind]:
                yield _Site(column + offset, row, name)


def _centers(outputs: int, part: Part) -> list[tuple[float, float]]:
    """Return the column and the row of tiles at the center of each output's region."""
    width, bands = part.columns[-1] + _PITCH - part.columns[0], len(part.multiplier_rows)
    centers = []
    for band, row in enumerate(part.multiplier_rows):
        ram = min(part.ram_rows, key=lambda each: (abs(each - row), -each))
        count = sum(output * bands // outputs == band for output in range(outputs))
        for n in range(count):
            centers.append((part.columns[0] + width * (n + 0.5) / count, (row + ram) / 2))
    return centers
