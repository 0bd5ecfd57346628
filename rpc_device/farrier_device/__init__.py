"""Everything of Farrier that runs compiled native code on a machine.

The bottom layer: standard library only, but for `protocol/` and the agent, which need grpcio and
protobuf. The compiler measures and runs through the same modules as a device of the farm.
"""
