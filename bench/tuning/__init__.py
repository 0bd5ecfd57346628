"""A benchmark of the tuner: a fixed set of tasks, measured candidates on this class of machines,
and figures for each way to rank candidates (docs/tuning/tuning.md)."""
