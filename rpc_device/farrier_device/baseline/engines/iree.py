"""An adapter for IREE, which compiles the model for this CPU when loading it, and runs it with its
task scheduler.

pip install 'iree-base-compiler[onnx]' iree-base-runtime
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

_OPSET = "17"  # The importer wants a model of at least this opset.
_FLAGS = ("--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3")


def load(
    model: str, inputs: Arrays, threads: int
) -> tuple[Callable[[], Any], Callable[[Any], Arrays]]:
    """Load a model. Each run copies the inputs to IREE's buffers and the outputs back, as IREE's
    Python interface does."""
    import iree.runtime as rt
    import onnx

    proto = onnx.load(model)
    outputs = [output.name for output in proto.graph.output]
    constants = {value.name for value in proto.graph.initializer}
    order = [value.name for value in proto.graph.input if value.name not in constants]
    with tempfile.TemporaryDirectory(prefix="farrier-iree-") as folder:
        code = _compile(proto, inputs, Path(folder))
    rt.flags.parse_flags(f"--task_topology_group_count={threads}")
    module = rt.load_vm_flatbuffer(code, driver="local-task")
    names = [
        name
        for name in module.vm_module.function_names
        if not name.startswith("__") and not name.endswith("$async")
    ]
    function = module[names[0]]
    arrays = [inputs[name] for name in order]

    def run() -> list[npt.NDArray[Any]]:
        results = function(*arrays)
        results = results if isinstance(results, list | tuple) else [results]
        return [np.asarray(result.to_host()) for result in results]

    return run, lambda results: dict(zip(outputs, results, strict=True))


def _compile(proto: Any, inputs: Arrays, folder: Path) -> bytes:
    """Return the compiled module for inputs of these shapes."""
    import iree.compiler.tools as tools
    import onnx

    for value in proto.graph.input:
        if value.name in inputs:
            sizes = inputs[value.name].shape
            for dim, size in zip(value.type.tensor_type.shape.dim, sizes, strict=True):
                dim.dim_value = size
    onnx.save(proto, folder / "model.onnx")
    command = [sys.executable, "-m", "iree.compiler.tools.import_onnx", "model.onnx"]
    command += ["--opset-version", _OPSET, "-o", "model.mlir"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    code: bytes = tools.compile_file(
        str(folder / "model.mlir"),
        input_type="onnx",
        target_backends=["llvm-cpu"],
        extra_args=list(_FLAGS),
    )
    return code
