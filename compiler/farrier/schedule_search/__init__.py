"""The search for the fastest schedule of every task of a model."""

from farrier.schedule_search.evolution import EvolutionarySearch
from farrier.schedule_search.scheduler import TaskScheduler
from farrier.schedule_search.trial import Measurer, Trial
from farrier.schedule_search.tune import TuningTask, tune

__all__ = ["EvolutionarySearch", "Measurer", "TaskScheduler", "Trial", "TuningTask", "tune"]
