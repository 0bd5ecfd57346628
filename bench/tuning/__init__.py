"""How good the tuner is at choosing schedules: a fixed set of tasks, what is known of them on this
class of machine, and the figures of every way to rank candidates (docs/tuning/tuning.md)."""
