"""The common part of the backends for devices that a host drives, such as GPUs: the target with its
host, the plan of a model, its code, and the loading of the code.

Kernels that the device cannot run are compiled by the host's backend. An interpreter
(`farrier_device.interpreter`) runs the model's driver program of copies, launches and calls, on
both the host and the device.
"""
