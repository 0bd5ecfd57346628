"""An adapter for ONNX Runtime with the CPU execution provider and default settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Arrays = dict[str, npt.NDArray[Any]]


def load(
    model: str, inputs: Arrays, threads: int
) -> tuple[Callable[[], Any], Callable[[Any], Arrays]]:
    """Load a model with its symbolic dims fixed to those of the inputs, so that ONNX Runtime
    optimizes for these shapes."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    sizes = symbols(session, inputs)
    if sizes:
        for dim, size in sizes.items():
            options.add_free_dimension_override_by_name(dim, size)
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [spec.name for spec in session.get_outputs()]
    return lambda: session.run(None, inputs), lambda arrays: dict(zip(names, arrays, strict=True))


def symbols(session: Any, inputs: Arrays) -> dict[str, int]:
    """Return the value of each symbolic dim of the model, from the shapes of the inputs."""
    sizes: dict[str, set[int]] = {}
    for spec in session.get_inputs():
        for dim, size in zip(spec.shape, inputs[spec.name].shape, strict=True):
            if isinstance(dim, str):
                sizes.setdefault(dim, set()).add(size)
    # Exporters write "?" for any unknown dim: a name that stands for two sizes is none.
    return {dim: values.pop() for dim, values in sizes.items() if len(values) == 1}
