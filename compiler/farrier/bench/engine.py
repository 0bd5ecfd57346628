"""One engine in one process:

    python -P engine.py ENGINE MODEL INPUTS OUTPUTS THREADS TARGET PRECISION

ENGINE is the file of one of the engines. It loads the model, runs it once on the arrays of INPUTS
(.npz), writes the outputs to OUTPUTS (.npz) and answers with a line of JSON, `{"version": …,
"limited": …, "load_s": …}`. TARGET is `host`, or an x86-64 level that the engine is kept to;
PRECISION is what it multiplies in, one of its PRECISIONS (f32, where it declares none). Then for
each line `M N` on standard input it runs the model M times to warm up and N times by the clock, and
answers with the list of the nanoseconds. Ends with standard input, and dies with the process that
started it.

Run as a file and not as a module, so that the Python of another environment can do it too.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    file, model, inputs_path, outputs_path, threads, target, precision = arguments
    # A process that was stopped between its rounds would outlive its parent for ever.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints is no answer
    folder = Path(__file__).parent
    engine = runpy.run_path(file)
    limited = ""
    if target != "host":
        limit = runpy.run_path(str(folder / "limit.py"))["limit"]
        copies = Path(outputs_path).with_suffix(f".{target}")
        limited = limit(engine["PACKAGES"][0], engine["LIMITS"][target], copies)
    files = runpy.run_path(str(folder.parent / "files/arrays.py"))
    inputs = {key: _aligned(array) for key, array in files["load_arrays"](inputs_path).items()}
    for package in engine["PACKAGES"]:
        importlib.import_module(package)
    start = time.perf_counter()
    chosen = {"precision": precision} if "PRECISIONS" in engine else {}
    run, named = engine["load"](model, inputs, int(threads), **chosen)
    arrays = named(run())
    seconds = time.perf_counter() - start
    files["save_arrays"](outputs_path, arrays)
    version = importlib.metadata.version(engine["DISTRIBUTION"])
    answer = {"version": version, "limited": limited, "load_s": seconds}
    print(json.dumps(answer), file=answers, flush=True)
    for line in sys.stdin:
        warmup, count = map(int, line.split())
        for _ in range(warmup):
            run()
        samples = []
        for _ in range(count):
            begin = time.perf_counter_ns()
            run()
            samples.append(time.perf_counter_ns() - begin)
        print(json.dumps(samples), file=answers, flush=True)


def _aligned(array: Any) -> Any:
    """A copy that starts on a cache line: no engine gets a worse place by chance."""
    flat = np.empty(array.nbytes + 64, np.uint8)
    start = -flat.ctypes.data % 64
    copy = flat[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


if __name__ == "__main__":
    main(sys.argv[1:])
