"""The backend for aarch64 boards and servers with NEON."""

from __future__ import annotations

from farrier.targets.arm.backend import BACKEND, ArmBackend, ArmTarget

__all__ = ["BACKEND", "ArmBackend", "ArmTarget"]
