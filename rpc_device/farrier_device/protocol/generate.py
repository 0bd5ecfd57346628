"""Write the Python code that protoc generates from `device.proto`.

    python -m farrier_device.protocol.generate

This needs the package grpcio-tools. The generated code requires grpcio and protobuf versions at
least as new as the tools that generated it, so the lower bounds in pyproject.toml must match them.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PROTO = "farrier_device/protocol/device.proto"
FILES = ("device_pb2.py", "device_pb2.pyi", "device_pb2_grpc.py")


def generate(target: Path) -> None:
    """Write the generated files FILES to `target`/farrier_device/protocol. Raises RuntimeError if
    protoc fails."""
    import grpc_tools
    from grpc_tools import protoc

    root = Path(__file__).parents[2]
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    code = protoc.main(["protoc", f"-I{root}", f"-I{well_known}", *outputs, str(root / _PROTO)])
    if code != 0:
        raise RuntimeError(f"protoc failed with code {code}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2])
