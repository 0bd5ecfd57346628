"""The area of an accelerator on an ECP5 FPGA before placement, as synthesized by yosys."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from importlib import resources
from pathlib import Path

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.rtl.emit import TOP, rtlil, yosys

_MULTIPLIERS = 156  # The 18 × 18 bit multipliers of an ECP5-85.


@dataclasses.dataclass(frozen=True, slots=True)
class Cells:
    """The cells of an ECP5: 4-input LUTs, flip-flops, 18 × 18 bit multipliers, and 18 Kibit block
    RAMs."""

    lut: int
    ff: int
    dsp: int
    ram: int


def cells(accelerator: Accelerator) -> Cells:
    """Return the number of cells that an accelerator needs. Raises UsageError if a tool is missing
    or fails."""
    text = rtlil(accelerator)
    # Products that exceed the multipliers of the largest ECP5 are built from LUTs.
    products = accelerator.matrix.inner * accelerator.matrix.outer + 4 * accelerator.vector.lanes
    without = " -nodsp" if products > _MULTIPLIERS else ""
    with tempfile.TemporaryDirectory(prefix="farrier-area-") as name:
        folder = Path(name)
        (folder / "core.il").write_text(text)
        (folder / "ram.v").write_text((resources.files(__package__) / "ram.v").read_text())
        steps = (
            "read_rtlil core.il",
            "read_verilog ram.v",
            f"synth_ecp5 -top {TOP}{without}",
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
