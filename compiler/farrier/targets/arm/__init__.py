"""aarch64: boards and servers with NEON."""

from __future__ import annotations

from farrier.targets.arm.backend import ArmBackend

BACKEND = ArmBackend()

__all__ = ["BACKEND", "ArmBackend"]
