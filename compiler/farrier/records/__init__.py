"""What was measured, kept for good: tuning records and the stores that hold them."""

from farrier.records.definition import TaskDefinition, TaskStore
from farrier.records.file_store import Damage, FileRecords
from farrier.records.record import Context, RuleId, TuningRecord
from farrier.records.store import MemoryRecords, RecordStore, best, latest, usable

__all__ = [
    "Context",
    "Damage",
    "FileRecords",
    "MemoryRecords",
    "RecordStore",
    "RuleId",
    "TaskDefinition",
    "TaskStore",
    "TuningRecord",
    "best",
    "latest",
    "usable",
]
