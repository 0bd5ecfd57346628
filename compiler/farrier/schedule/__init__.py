"""Schedules: primitives that rearrange loop nests and keep their results."""

from farrier.schedule.errors import ScheduleError
from farrier.schedule.schedule import Schedule, replay
from farrier.schedule.trace import Step, Trace

__all__ = ["Schedule", "ScheduleError", "Step", "Trace", "replay"]
