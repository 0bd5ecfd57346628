"""Tuning in the background: an artifact at once, and better code for it as it is found."""

from farrier.background.begin import begin
from farrier.background.tuning import State, Tuning, Version

__all__ = ["State", "Tuning", "Version", "begin"]
