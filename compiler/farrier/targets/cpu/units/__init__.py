"""What schedule rules for CPUs are made of: contractions, register tiles, the analytic model."""
