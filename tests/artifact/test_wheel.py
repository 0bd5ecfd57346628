"""Tests of the wheel that people install, built from the source archive: with numpy it runs
artifacts."""

import email
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from tests.artifact.wheels import ROOT, build

PACKAGES = {
    "farrier": "compiler",
    "farrier_farm": "farm",
    "farrier_server": "server",
    "farrier_worker": "worker",
    "farrier_device": "rpc_device",
}
MOST_BYTES = 4_000_000
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import farrier
artifact = farrier.load(sys.argv[2])
np.save(sys.argv[4], artifact.run({"x": np.load(sys.argv[3])})["y"])
(y,) = farrier.InferenceSession(sys.argv[2]).run(None, {"x": np.load(sys.argv[3])})
assert np.array_equal(y, np.load(sys.argv[4]))
import json
print(json.dumps(sorted({m.partition(".")[0] for m in sys.modules})))
"""
CALL = "import sys; sys.path.insert(0, sys.argv.pop(1)); "


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def site(built, tmp_path_factory):
    """A folder with the files of the wheel and of numpy."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built[1]) as archive:
        archive.extractall(site)
    installed = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (installed / name).exists():
            (site / name).symlink_to(installed / name)
    return site


def python(program, *words):
    """-I -S: no environment, no site-packages but the folder that is given."""
    command = [sys.executable, "-I", "-S", "-c", program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))


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
    done = python(RUN, site, *(tmp_path / name for name in ("net.farrier", "x.npy", "y.npy")))
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.tanh(x @ w), atol=1e-5)
    imported = set(json.loads(done.stdout))
    assert {"farrier", "farrier_device", "numpy"} <= imported
    assert not imported & {"onnx", "llvmlite", "typer", "rich", "httpx", "grpc", "redis"}


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("from farrier.cli.main import main; main()", "compiler"),
        ("from farrier_device.main import main; main()", "device"),
        (
            "import farrier\n"
            "try: farrier.compile(b'')\n"
            "except farrier.FarrierError as e: sys.stderr.write(str(e)); sys.exit(e.exit_code)",
            "compiler",
        ),
        (
            "import farrier\n"
            "options = [('CPUExecutionProvider', {'cache': False})]\n"
            "try: farrier.InferenceSession(b'm', providers=options)\n"
            "except farrier.FarrierError as e: sys.stderr.write(str(e)); sys.exit(e.exit_code)",
            "compiler",
        ),
    ],
)
def test_what_the_base_install_lacks_is_named_with_its_extra(site, call, extra):
    done = python(CALL + call, site)
    assert done.returncode == 2
    assert "which is not installed" in done.stderr
    assert f"pip install 'farrier[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_wheel_has_the_packages_whole_and_nothing_else(site):
    packaged = {p.name for p in site.iterdir() if p.is_dir() and not p.is_symlink()}
    assert packaged == {*PACKAGES, "farrier-0.1.0.dist-info"}
    for package, folder in PACKAGES.items():
        packed, here = site / package, ROOT / folder / package
        assert files(packed) == files(here)
        assert all(
            (packed / name).read_bytes() == (here / name).read_bytes() for name in files(here)
        )
    data = {Path(name).suffix for package in PACKAGES for name in files(site / package)}
    assert {".lua", ".ll", ".proto", ".html", ".css", ".js", ".mjs"} <= data


def files(folder):
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_what_the_wheel_says_of_itself(built, site):
    """Without extras it needs only numpy, and is small compared with it, so a separate runtime
    package is not needed."""
    wheel = built[1]
    assert wheel.stat().st_size < MOST_BYTES
    about = email.message_from_string((site / "farrier-0.1.0.dist-info/METADATA").read_text())
    always = [text for text in about.get_all("Requires-Dist") if "extra ==" not in text]
    assert [text.partition(">")[0] for text in always] == ["numpy"]
    assert set(about.get_all("Provides-Extra")) >= {"all", "bench", "compiler", "device", "server"}
    assert about["License-Expression"] == "Apache-2.0"
    assert (site / "farrier-0.1.0.dist-info/licenses/LICENSE").read_text() == (
        ROOT / "LICENSE"
    ).read_text()
    points = (site / "farrier-0.1.0.dist-info/entry_points.txt").read_text()
    assert "farrier = farrier.cli.main:main" in points
    assert "farrier-device = farrier_device.main:main" in points


def test_the_source_archive_has_the_license_and_the_tests(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "Makefile"} <= names
    assert any(name.startswith("tests/") for name in names)
