"""The compiling process of a builder: modules of kernels of one job, one after the other, until the
builder ends it. `python -m farrier_worker.build`.

What it compiles was made of a stranger's model, so it has the walls and limits of a job's process,
and speaks with the builder alone. It begins as `sandboxed_entry.py` says; then

    builder → process   {"build": <message>}
    process → builder   {"built": <answer>}

Message and answer are texts of `farrier.compile_pool.helper`."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Sequence

from farrier_device import wire
from farrier_worker.sandboxed_entry import enclosed


def main(argv: Sequence[str]) -> int:
    """`argv`: the descriptor of the socket."""
    with enclosed(argv) as (sock, level):
        from farrier.compile_pool.helper import build

        gc.disable()  # IR is made of trees, and counted references free it
        wire.send(sock, {"ready": level})
        while True:
            message = wire.receive(sock)["build"]
            wire.send(sock, {"built": json.dumps(build(json.loads(message)))})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
