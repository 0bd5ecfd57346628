"""Graph of kernels → distinct tasks, and the program that calls them."""

from farrier.partition.canonical import canonical_region
from farrier.partition.extract import Task, extract_tasks, task_key
from farrier.partition.naming import task_name
from farrier.partition.program import Call, DriverProgram

__all__ = [
    "Call",
    "DriverProgram",
    "Task",
    "canonical_region",
    "extract_tasks",
    "task_key",
    "task_name",
]
