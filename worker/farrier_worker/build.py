"""The compiling process of a builder, which compiles kernel modules of one job, one after another,
until the builder ends it. `python -m farrier_worker.build`.

The modules were generated from a stranger's model, so the process has the sandbox and limits of a
job's process, and communicates with the builder only. Its start is described in
`sandboxed_entry.py`; then

    builder → process   {"build": <message>}
    process → builder   {"built": <answer>}

Message and answer are texts defined in `farrier.compile_pool.helper`.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Sequence

from farrier_device import wire
from farrier_worker.sandboxed_entry import enclosed


def main(argv: Sequence[str]) -> int:
    """Run the process. `argv` contains the descriptor of the socket."""
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
