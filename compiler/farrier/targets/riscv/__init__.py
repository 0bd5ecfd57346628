"""riscv64: boards with scalar cores, whose floats go one at a time."""

from __future__ import annotations

from farrier.targets.riscv.backend import BACKEND, RiscvBackend, RiscvTarget

__all__ = ["BACKEND", "RiscvBackend", "RiscvTarget"]
