"""aarch64: boards and servers with NEON."""

from __future__ import annotations

from farrier.targets.arm.backend import ArmBackend

ARM = ArmBackend()

__all__ = ["ARM", "ArmBackend"]
