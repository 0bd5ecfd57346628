"""The search for the fastest schedule of every task."""

from farrier.search.evolution import EvolutionarySearch
from farrier.search.scheduler import TaskScheduler
from farrier.search.trial import Measurer, Trial
from farrier.search.tune import TuningTask, tune

__all__ = ["EvolutionarySearch", "Measurer", "TaskScheduler", "Trial", "TuningTask", "tune"]
