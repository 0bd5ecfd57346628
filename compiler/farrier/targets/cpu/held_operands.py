"""The number of operands that the emitter keeps in registers while it sums a tile: all registers
but those of the tile's sums and `SPARE_REGISTERS`, and at least `FEWEST_HELD`. The analytic cost
model uses the same number to count loads."""

from __future__ import annotations

SPARE_REGISTERS = 2  # Registers left for temporaries.
# The three vectors of a step, the broadcast in use, and the preceding one, whose register is
# reused.
FEWEST_HELD = 5
