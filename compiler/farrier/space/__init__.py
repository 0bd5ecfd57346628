"""Schedule spaces: which ways there are to compute a task, and how fast each should be."""

from farrier.space.features import Features
from farrier.space.joined import JoinedSpace
from farrier.space.space import PANEL, Columns, Decisions, Estimate, Knob, Population, Space

__all__ = [
    "PANEL",
    "Columns",
    "Decisions",
    "Estimate",
    "Features",
    "JoinedSpace",
    "Knob",
    "Population",
    "Space",
]
