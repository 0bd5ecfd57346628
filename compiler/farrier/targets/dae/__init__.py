"""The backend for custom accelerators of the decoupled access-execute (DAE) kind: described by
users, compiled for, and simulated."""

from farrier.targets.dae.backend import BACKEND

__all__ = ["BACKEND"]
