"""Other engines that run ONNX models, one file each: what a device may race a compiled model with.

    PACKAGES      what must be importable; imported before the clock of loading starts
    DISTRIBUTION  whose version is told
    LIMITS        by x86-64 level, how `farrier bench` keeps the engine to it
    PRECISIONS    what it can be asked to multiply in; not there: f32
    load(model, inputs, threads) -> (run, named); where there are PRECISIONS, one of them comes last

`model` is the path of the file, `inputs` C-contiguous arrays by name. `run()` is one inference as a
user of the engine calls it; `named` makes of its result the outputs by name.

An engine and numpy are imported by `load` alone, which runs in a process that was started for the
engine (`rival.py`). The agent looks up what is installed, and imports none of it.
"""

from __future__ import annotations

import importlib.metadata

NAMES = ("onnxruntime", "openvino")  # each the name of its distribution, too
# What their inputs and outputs may be, as numpy calls it: what every numpy has.
DTYPES = {
    "bool": "?", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8", "u8": "u1", "u16": "<u2",
    "u32": "<u4", "u64": "<u8", "f16": "<f2", "f32": "<f4", "f64": "<f8",
}  # fmt: skip


def installed() -> dict[str, str]:
    """The engines that are installed beside this program, with their versions."""
    found = {}
    for name in NAMES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
