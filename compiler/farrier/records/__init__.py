"""Tuning records: persistent measurements of candidates, and the stores that hold them."""

from farrier.records.definition import TaskDefinition, TaskStore
from farrier.records.file_store import FileRecords
from farrier.records.lines import (
    LONGEST_LINE,
    Damage,
    malformed,
    numbered_lines,
    read_lines,
    record_of,
)
from farrier.records.pruning import Pruning
from farrier.records.record import Context, RuleId, TuningRecord
from farrier.records.selection import ALL, Selection
from farrier.records.store import MemoryRecords, RecordStore, best, latest, usable
from farrier.records.summary import KnownSchedule, RuleSummary, fastest, summarize

__all__ = [
    "ALL",
    "LONGEST_LINE",
    "Context",
    "Damage",
    "FileRecords",
    "KnownSchedule",
    "MemoryRecords",
    "Pruning",
    "RecordStore",
    "RuleId",
    "RuleSummary",
    "Selection",
    "TaskDefinition",
    "TaskStore",
    "TuningRecord",
    "best",
    "fastest",
    "latest",
    "malformed",
    "numbered_lines",
    "read_lines",
    "record_of",
    "summarize",
    "usable",
]
