"""The protocol between a device and the broker: `device.proto`, the code generated from it, and
signatures.

`python -m farrier_device.protocol.generate` regenerates the code.
"""
