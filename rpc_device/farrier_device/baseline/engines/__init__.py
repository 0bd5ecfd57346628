"""The inference engines that Farrier races with, each with an adapter module.

An adapter is a module with one function:

    load(model, inputs, threads) -> (run, named)

`model` is the path of the ONNX file, and `inputs` are C-contiguous arrays by name. `run()` executes
one inference in the way a user of the engine would; `named` converts the result of `run` to a dict
of outputs by name. For an engine with several precisions, the precision is the last argument. The
module imports numpy and the packages of the engine but nothing of Farrier, because an engine may be
installed in an environment of its own.

Only `load` imports an engine and numpy, in a process that was started for the engine
(`baseline/process.py`). An agent checks which engines are installed without importing them.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from pathlib import Path

from farrier_device.baseline.limit import Limit

_HERE = Path(__file__).parent
_F32 = ("f32",)
_HALVES = ("f32", "f16")


@dataclasses.dataclass(frozen=True, slots=True)
class Engine:
    """An inference engine, with the module of its adapter.

    `packages` must be importable; they are imported before the loading time is measured. `limits`
    maps an x86-64 level (such as v3) to the means that restrict the engine to its instructions;
    other levels are not supported. An engine with `on_devices` starts no other process, so it can
    run in a device's sandbox. An engine with an `accelerator`, such as "cuda", runs models there,
    and other engines on the processor.
    """

    adapter: Path
    distribution: str  # The version is that of this distribution.
    packages: tuple[str, ...]
    precisions: tuple[str, ...] = _F32
    limits: Mapping[str, Limit] = dataclasses.field(default_factory=dict)
    on_devices: bool = False
    accelerator: str = ""

    def missing(self) -> list[str]:
        """Return the names of the engine's packages that this environment lacks."""
        return [name for name in self.packages if not _is_installed(name)]


# Code for f32 has no use for more than x86-64-v4.
ENGINES: Mapping[str, Engine] = {
    "inductor": Engine(_HERE / "inductor.py", "torch", ("torch", "onnx2torch", "onnx")),
    "inductor-cuda": Engine(
        _HERE / "inductor_cuda.py",
        "torch",
        ("torch", "onnx2torch", "onnx"),
        precisions=_HALVES,
        accelerator="cuda",
    ),
    "iree": Engine(
        _HERE / "iree.py", "iree-base-compiler", ("iree.compiler.tools", "iree.runtime", "onnx")
    ),
    "onnxruntime": Engine(
        _HERE / "onnxruntime.py",
        "onnxruntime",
        ("onnxruntime",),
        limits={
            "x86-64-v3": Limit(libraries=("capi/onnxruntime_pybind11_state*.so",)),
            "x86-64-v4": Limit(),
        },
        on_devices=True,
    ),
    "onnxruntime-cuda": Engine(
        _HERE / "onnxruntime_cuda.py",
        "onnxruntime-gpu",
        ("onnxruntime", "onnx"),
        precisions=_HALVES,
        accelerator="cuda",
    ),
    "openvino": Engine(
        _HERE / "openvino.py",
        "openvino",
        ("openvino",),
        precisions=("f32", "bf16"),
        limits={
            "x86-64-v3": Limit(
                environment={"ONEDNN_MAX_CPU_ISA": "AVX2"},
                libraries=("libs/libopenvino_intel_cpu_plugin.so", "libs/libopenvino.so.*"),
            ),
            "x86-64-v4": Limit(),
        },
        on_devices=True,
    ),
    "tensorrt": Engine(
        _HERE / "tensorrt.py",
        "tensorrt",
        ("onnxruntime", "tensorrt", "onnx"),
        precisions=_HALVES,
        accelerator="cuda",
    ),
    "tvm": Engine(_HERE / "tvm.py", "apache-tvm", ("tvm", "tvm.relax.frontend.onnx", "onnx")),
}
NAMES = tuple(name for name, engine in ENGINES.items() if engine.on_devices)


def installed() -> dict[str, str]:
    """Return the versions, by engine, of the engines for devices that are installed here."""
    versions = {}
    for name in NAMES:
        try:
            versions[name] = importlib.metadata.version(ENGINES[name].distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # The package that would hold it is not installed.
        return False
