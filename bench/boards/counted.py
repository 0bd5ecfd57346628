"""The program that `bench.boards.count` runs under qemu's plugin: it performs two inferences and
sets three marks.

    python -m bench.boards.counted farrier|onnxruntime MODEL INPUTS

The plugin prints its counters at every call of getppid; the inference between the last two calls is
counted. The program also prints the address of the artifact's code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.boards import arrays

_LIBRARY = "memfd:farrier-library"


def main() -> None:
    engine, model, inputs = sys.argv[1:]
    run = {"farrier": _farrier, "onnxruntime": _onnxruntime}[engine](model)
    inputs_by_name = arrays.load(Path(inputs))
    for _ in range(2):
        os.getppid()
        run(inputs_by_name)
    os.getppid()


def _farrier(model: str) -> Callable[[dict[str, Any]], Any]:
    import farrier

    session = farrier.load(model).session()
    for line in Path("/proc/self/maps").read_text().splitlines():
        if _LIBRARY in line:  # The first of its mappings contains its headers.
            print("code", line.partition("-")[0], file=sys.stderr, flush=True)
            break
    return session.run


def _onnxruntime(model: str) -> Callable[[dict[str, Any]], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


if __name__ == "__main__":
    main()
