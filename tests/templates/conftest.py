"""Packages with templates as Python finds them once they are installed, and models for them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.packages import install, run_python

EXAMPLES = Path(__file__).parents[2] / "examples"


def installed(folder, site):
    """The folders by which Python finds the package in `folder`, installed."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name, version, points = (project[key] for key in ("name", "version", "entry-points"))
    return install(folder, site, name, version, points)


@pytest.fixture
def python(tmp_path):
    """Run Python where packages are installed; give what it prints."""

    def run(code, *words, packages=(), status=0):
        folders = [
            path
            for at, folder in enumerate(packages)
            for path in installed(folder, tmp_path / f"site{at}")
        ]
        return run_python(code, *words, folders=folders, cwd=tmp_path, status=status)

    return run


def product(path, dtype, rows, steps, columns, *, relu=False):
    """Write the model y = x @ w, and x.npy in the same folder; return y."""
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in ((rows, steps), (steps, columns)))
    kind = TensorProto.FLOAT if dtype == np.float32 else TensorProto.DOUBLE
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h" if relu else "y"])]
    nodes += [helper.make_node("Relu", ["h"], ["y"])] if relu else []
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, (rows, columns))],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    np.save(path.parent / "x.npy", x)
    return np.maximum(x @ w, 0) if relu else x @ w
