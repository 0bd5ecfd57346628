"""`python -m bench.first_output [MODEL …]`: the time from a model's path to its first output.

Each figure is the median over several processes, in milliseconds, from the call of
`InferenceSession(path)` to the end of the first `run`, without imports and with a warm page cache.
`compiled` is a single process with an empty cache, `cached` are later processes; `onnxruntime`
loads the same file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import models

_PROGRAM = """
import sys, time
import numpy as np
if sys.argv[1] == "farrier":
    import farrier.onnxruntime as runtime
else:
    import onnxruntime as runtime
path, shape = sys.argv[2], tuple(map(int, sys.argv[3].split(",")))
x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
start = time.perf_counter()
session = runtime.InferenceSession(path)
session.run(None, {session.get_inputs()[0].name: x})
print((time.perf_counter() - start) * 1e3)
"""
_SHAPE = "1,3,224,224"
_PROCESSES = 7


def measured(engine: str, path: Path, cache: Path) -> float:
    """Return the milliseconds to the first output in a new process."""
    command = [sys.executable, "-c", _PROGRAM, engine, str(path), _SHAPE]
    environment = {**os.environ, "FARRIER_CACHE": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=["resnet50"], help="of images of 224²")
    table = Table("model", "compiled ms", "cached ms", "onnxruntime ms", box=None, pad_edge=False)
    with tempfile.TemporaryDirectory(prefix="farrier-bench-") as folder:
        cache = Path(folder) / "cache"
        for name in parser.parse_args().models:
            path = Path(folder) / f"{name}.onnx"
            path.write_bytes(models.build(name))
            first = measured("farrier", path, cache)
            medians = [
                statistics.median(measured(engine, path, cache) for _ in range(_PROCESSES))
                for engine in ("farrier", "onnxruntime")
            ]
            table.add_row(name, *(f"{value:.1f}" for value in (first, *medians)))
    Console(highlight=False, soft_wrap=True).print(table)


if __name__ == "__main__":
    main()
