"""What was measured, kept for good: tuning records and the stores that hold them."""

from farrier.records.file_store import Damage, FileRecords
from farrier.records.record import SCHEDULE_VERSION, Context, TuningRecord
from farrier.records.store import MemoryRecords, RecordStore, best, latest, usable

__all__ = [
    "SCHEDULE_VERSION",
    "Context",
    "Damage",
    "FileRecords",
    "MemoryRecords",
    "RecordStore",
    "TuningRecord",
    "best",
    "latest",
    "usable",
]
