"""How many operands the emitter holds in registers, beside a tile's sums: as many as those leave
but for `SPARE_REGISTERS`, and `FEWEST_HELD` at least. The analytic model counts loads by it.
"""

from __future__ import annotations

SPARE_REGISTERS = 2  # left to temporaries
# A step's three vectors, the broadcast in use, and the one before, which it takes the register of.
FEWEST_HELD = 5
