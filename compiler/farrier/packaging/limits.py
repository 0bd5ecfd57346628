"""The time limits of the reference, in a module that does not import the compiler."""

from __future__ import annotations

REFERENCE_S = 300.0
VARIABLE = "FARRIER_REFERENCE_S"
MOST_TIMES = 4.0
"""A model of many operations extends the time to so many times the setting."""
