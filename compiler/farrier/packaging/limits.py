"""The limits of the reference, for those who bound it from outside and load no compiler."""

from __future__ import annotations

REFERENCE_S = 300.0
VARIABLE = "FARRIER_REFERENCE_S"
MOST_TIMES = 4.0
"""A model of many operations extends the time to so many times the setting."""
