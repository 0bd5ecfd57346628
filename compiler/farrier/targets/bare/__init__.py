"""Microcontrollers: machines without an operating system, which a C program calls a model on."""

from __future__ import annotations

from farrier.targets.bare.backend import BACKEND, BareBackend, BareTarget

__all__ = ["BACKEND", "BareBackend", "BareTarget"]
