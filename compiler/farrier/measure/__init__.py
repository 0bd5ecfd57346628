"""Measure candidates on a device: build a batch of native code from decisions, and interpret the
results.
"""

from farrier.measure.batch import Batch, BatchBuilder
from farrier.measure.floor import floor_of_run
from farrier.measure.local import LocalDevice
from farrier.measure.measurer import TaskMeasurer
from farrier.measure.noted import NotedRunner
from farrier.measure.runner import Blobs, Runner, measure_by
from farrier.measure.sizes import sizes_argument

__all__ = [
    "Batch",
    "BatchBuilder",
    "Blobs",
    "LocalDevice",
    "NotedRunner",
    "Runner",
    "TaskMeasurer",
    "floor_of_run",
    "measure_by",
    "sizes_argument",
]
