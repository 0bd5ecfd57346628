"""A machine with Python, numpy and Farrier's wheel runs artifacts, with nothing of the compiler."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import farrier
artifact = farrier.load(sys.argv[2])
np.save(sys.argv[4], artifact.run({"x": np.load(sys.argv[3])})["y"])
import json
print(json.dumps(sorted({m.partition(".")[0] for m in sys.modules})))
"""


@pytest.fixture
def site(tmp_path):
    """The wheel's files beside numpy's."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("farrier-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    installed = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (installed / name).exists():
            (site / name).symlink_to(installed / name)
    return site


def test_the_base_install_runs_an_artifact_with_numpy_alone(site, tmp_path):
    generator = np.random.default_rng(2)
    w = generator.standard_normal((23, 7), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 23])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 7])],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    farrier.compile(model).save(tmp_path / "net.farrier")
    x = generator.standard_normal((3, 23), np.float32)
    np.save(tmp_path / "x.npy", x)
    words = [site, *(tmp_path / name for name in ("net.farrier", "x.npy", "y.npy"))]
    # -I -S: no environment, no site-packages but the folder that is given.
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.tanh(x @ w), atol=1e-5)
    imported = set(json.loads(done.stdout))
    assert {"farrier", "farrier_device", "numpy"} <= imported
    assert not imported & {"onnx", "llvmlite", "typer", "rich", "httpx", "grpc", "redis"}


def test_the_wheel_carries_what_the_roles_read_beside_their_code(site):
    packages = {p.name for p in site.iterdir() if p.is_dir() and not p.is_symlink()}
    assert {
        "farrier",
        "farrier_farm",
        "farrier_server",
        "farrier_worker",
        "farrier_device",
    } <= packages
    for data in ("farrier_farm/leases.lua", "farrier_farm/devices.lua"):
        assert (site / data).is_file()
