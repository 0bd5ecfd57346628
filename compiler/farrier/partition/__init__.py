"""Graph of kernels → distinct tasks, and the calls that use them."""

from farrier.partition.canonical import canonical_region
from farrier.partition.extract import Call, Task, extract_tasks
from farrier.partition.naming import task_name

__all__ = ["Call", "Task", "canonical_region", "extract_tasks", "task_name"]
