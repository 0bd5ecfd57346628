"""Schedules: primitives that rearrange loop nests without changing the results that they
compute.
"""

from farrier.schedule.errors import ScheduleError
from farrier.schedule.schedule import Schedule, replay
from farrier.schedule.trace import Step, Trace

__all__ = ["Schedule", "ScheduleError", "Step", "Trace", "replay"]
