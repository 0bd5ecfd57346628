"""The number of operands that the emitter keeps in registers, in addition to a tile's sums: the
rest of the registers except `SPARE_REGISTERS`, and at least `FEWEST_HELD`. The analytic model
counts loads by it.
"""

from __future__ import annotations

SPARE_REGISTERS = 2  # Left for temporaries.
# A step's three vectors, the broadcast in use, and the one before, whose register it reuses.
FEWEST_HELD = 5
