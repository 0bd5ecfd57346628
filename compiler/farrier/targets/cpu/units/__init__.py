"""The building blocks of schedule rules for CPUs: contractions, register tiles, and the analytic
cost model."""
