"""The parts that the backends of all devices share which a host drives: a target with a host, the
plan of a model, its code, and the way to run it.

Kernels that the device cannot run are compiled by the backend of the host. A program of copies,
launches and calls (`farrier_device.interpreter`) drives both.
"""
