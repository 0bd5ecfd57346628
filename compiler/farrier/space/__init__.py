"""Schedule spaces: the possible schedules of a task, and the predicted time of each."""

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
