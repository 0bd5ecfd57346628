"""Partition a graph of kernels into distinct tasks, and the driver program that calls them."""

from farrier.partition.canonical import canonical_region
from farrier.partition.extract import extract_tasks
from farrier.partition.naming import task_name
from farrier.partition.program import Call, DriverProgram
from farrier.partition.task import Task, task_key

__all__ = [
    "Call",
    "DriverProgram",
    "Task",
    "canonical_region",
    "extract_tasks",
    "task_key",
    "task_name",
]
