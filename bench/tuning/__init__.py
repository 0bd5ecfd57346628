"""The quality of the tuner's choices: a fixed set of tasks, their known candidates on this class of
machine, and the figures of every way to rank candidates (docs/tuning/tuning.md)."""
