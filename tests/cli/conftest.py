"""The `farrier` command as users run it, and models to give it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def farrier(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `farrier WORDS` in `tmp_path`, with a home there and none of the user's settings.

    Whatever its arguments are, it ends by itself and shows no traceback.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FARRIER_", "REDIS_"))}
    environment = {**clean, "FARRIER_HOME": str(tmp_path / "home")}

    def run(
        *words: str | Path,
        timeout_s: float = 240,  # A busy machine starts processes slowly.
        before: Callable[[], None] | None = None,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "farrier.cli", *map(str, words)],
            cwd=tmp_path,
            env={**environment, **env},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            preexec_fn=before,
        )
        assert "Traceback" not in done.stderr + done.stdout, done.stderr
        return done

    return run


def save_model(
    path: Path,
    nodes: list[onnx.NodeProto],
    shape: list[int | str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 17,
) -> Path:
    """A model from `x` f32[shape] to `y`."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.fixture
def save() -> Callable[..., Path]:
    return save_model


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    """f32[n, 37] → f32[n, 11], in two layers."""
    generator = np.random.default_rng(5)
    constants = {
        name: generator.standard_normal(shape, np.float32)
        for name, shape in {"w": (37, 29), "b": (29,), "v": (29, 11)}.items()
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    return save_model(tmp_path / "mlp.onnx", nodes, ["n", 37], constants)
