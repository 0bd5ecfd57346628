"""Packages with templates as Python finds them once they are installed, and models for them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

EXAMPLES = Path(__file__).parents[2] / "examples"
MAIN = "from farrier.cli.main import main; main()"


def install(folder, site):
    """Writes what `pip install` writes of the package in `folder`, whose modules stay there; gives
    the folders by which Python finds it."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    about = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (about / "entry_points.txt").write_text("".join(f"{line}\n" for line in lines))
    return [str(folder), str(site)]


@pytest.fixture
def python(tmp_path):
    """Runs Python where packages are installed; gives what it prints."""

    def run(code, *words, packages=(), status=0):
        folders = [
            path
            for at, folder in enumerate(packages)
            for path in install(folder, tmp_path / f"site{at}")
        ]
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def product(path, dtype, rows, steps, columns, *, relu=False):
    """Writes the model y = x @ w, and x.npy beside it; gives y."""
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
