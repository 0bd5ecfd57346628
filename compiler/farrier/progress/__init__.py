"""What a compilation tells while it runs, and the clock it is held to."""

from __future__ import annotations

from farrier.progress.events import (
    Event,
    Listener,
    Raced,
    RolledBack,
    SizesSettled,
    StageFinished,
    StageStarted,
    TaskSchedule,
    TasksFound,
    TasksScheduled,
    TimeSpent,
    TrialsMeasured,
    TuningStarted,
    VariantsCompared,
    Verified,
    VersionAdded,
    Warned,
    from_dict,
    ignore,
    to_dict,
)

__all__ = [
    "Event",
    "Listener",
    "Raced",
    "RolledBack",
    "SizesSettled",
    "StageFinished",
    "StageStarted",
    "TaskSchedule",
    "TasksFound",
    "TasksScheduled",
    "TimeSpent",
    "TrialsMeasured",
    "TuningStarted",
    "VariantsCompared",
    "Verified",
    "VersionAdded",
    "Warned",
    "from_dict",
    "ignore",
    "to_dict",
]
