"""What a device and the broker say to each other: `device.proto`, its generated code, signatures.

`python -m farrier_device.protocol.generate` writes the generated files anew.
"""
