"""The modules of Farrier that run compiled native code on a machine.

This package is the bottom layer. It needs only the standard library, except that `protocol/` and
the agent need grpcio and protobuf. The compiler measures and runs code through the same modules as
a device of the farm.
"""
