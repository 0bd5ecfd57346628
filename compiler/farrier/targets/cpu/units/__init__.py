"""The parts of schedule rules for CPUs: contractions, register tiles, the analytic model."""
