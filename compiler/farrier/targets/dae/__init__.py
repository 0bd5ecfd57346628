"""Accelerators of one's own: declared, compiled for, and simulated."""

from farrier.targets.dae.backend import BACKEND

__all__ = ["BACKEND"]
