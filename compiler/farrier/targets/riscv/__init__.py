"""The backend for riscv64 boards, with vectors (RVV) of known width or without."""

from __future__ import annotations

from farrier.targets.riscv.backend import BACKEND, RiscvBackend, RiscvTarget

__all__ = ["BACKEND", "RiscvBackend", "RiscvTarget"]
