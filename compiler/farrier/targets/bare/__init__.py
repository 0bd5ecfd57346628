"""The backend for microcontrollers: machines without an operating system, on which a C program
calls a model."""

from __future__ import annotations

from farrier.targets.bare.backend import BACKEND, BareBackend, BareTarget

__all__ = ["BACKEND", "BareBackend", "BareTarget"]
