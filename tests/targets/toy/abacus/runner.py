"""Measure by running: beads neither crash nor hang."""

from __future__ import annotations

from abacus.devices import Table
from farrier_device.runners import in_process


class InProcessRunner(in_process.InProcessRunner):
    """Runs on the table."""

    def __init__(self):
        super().__init__(Table)

    def name_of(self, device):
        return "beads"
