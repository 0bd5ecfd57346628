"""The number of operands that the emitter keeps in registers while it sums a tile: all registers
but those of the tile's sums and `SPARE_REGISTERS`, and at least `FEWEST_HELD`. The analytic cost
model uses the same number to count loads."""

from __future__ import annotations

SPARE_REGISTERS = 2  # Left for temporaries.
# A step's three vectors, the broadcast in use, and the one before, whose register it reuses.
FEWEST_HELD = 5
