"""Tuning in the background: an artifact that is usable at once, and is replaced by better
versions.
"""

from farrier.background.begin import begin
from farrier.background.tuning import State, Tuning, Version

__all__ = ["State", "Tuning", "Version", "begin"]
