"""The protocol between a device and the broker: `device.proto`, its generated code, signatures.

`python -m farrier_device.protocol.generate` writes the generated files anew.
"""
