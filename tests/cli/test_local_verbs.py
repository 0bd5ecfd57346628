"""compile, run, bench and opt: the files they leave, and what they refuse."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier import compile
from farrier.ir.constants import beside
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from tests.loops import ENDLESS, loop
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def kept():
    """The artifact's bytes, compiled by the first test that wants them."""
    return {}


@pytest.fixture
def compiled(farrier, mlp, kept):
    path = mlp.with_suffix(".farrier")
    if not kept:
        done = farrier("compile", mlp, "--shape", "x=4,37", "--cores", "1", "-o", "mlp.farrier")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "mlp.farrier"
        assert "verified on local: error" in done.stderr
        kept["bytes"] = path.read_bytes()
    path.write_bytes(kept["bytes"])
    return path


def _given(folder, name="x", shape=(4, 37), dtype=np.float32):
    array = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    np.save(folder / f"{name}.npy", array)
    return array


def test_run_gives_what_onnx_runtime_gives(farrier, compiled, mlp, tmp_path):
    x = _given(tmp_path)
    done = farrier("run", compiled, "--input", "x=x.npy", "-o", "out.npz", "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("y: float32[4, 11] [")
    (expected,) = onnxruntime.InferenceSession(mlp).run(None, {"x": x})
    with np.load(tmp_path / "out.npz") as out:
        np.testing.assert_allclose(out["y"], expected, atol=1e-4)


def test_run_takes_what_npy_keeps_of_a_bfloat16(farrier, tmp_path):
    kinds = TensorProto.BFLOAT16, TensorProto.INT4
    info = helper.make_tensor_value_info("x", kinds[0], [5])
    node = helper.make_node("Cast", ["x"], ["y"], to=kinds[1])
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    compile(model, verify=False).save(tmp_path / "cast.farrier")
    np.save(tmp_path / "x.npy", np.array([-3, -1.5, 0, 2, 6.5], ml_dtypes.bfloat16))
    done = farrier("run", "cast.farrier", "--input", "x=x.npy", "-o", "out.npz")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "y: int4[5] [-3, 6]"
    with np.load(tmp_path / "out.npz") as out:
        assert out["y"].view(ml_dtypes.int4).tolist() == [-3, -1, 0, 2, 6]


def test_run_heeds_how_much_memory_values_may_ask_for(farrier, tmp_path):
    info = helper.make_tensor_value_info("x", TensorProto.INT64, [1])
    node = helper.make_node("ConstantOfShape", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    compile(model, verify=False).save(tmp_path / "filled.farrier")
    np.save(tmp_path / "x.npy", np.array([10_000]))
    least = farrier("run", "filled.farrier", "--input", "x=x.npy", "--memory-bytes", "20000")
    assert least.returncode == 16
    assert "it may have 20000" in least.stderr
    done = farrier("run", "filled.farrier", "--input", "x=x.npy", "--memory-bytes", "50000")
    assert done.stdout.strip() == "y: float32[10000] [0, 0]", done.stderr


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [((4, 36), np.float32, "float32[4, 36]"), ((4, 37), np.float64, "float64[4, 37]")],
)
def test_run_refuses_another_shape_or_dtype(farrier, compiled, tmp_path, shape, dtype, words):
    _given(tmp_path, shape=shape, dtype=dtype)
    done = farrier("run", compiled, "--input", "x=x.npy")
    assert done.returncode == 6
    assert words in done.stderr
    assert "the model takes float32[4, 37]" in done.stderr


def test_run_refuses_two_arrays_for_one_input(farrier, compiled, tmp_path):
    _given(tmp_path)
    done = farrier("run", compiled, "--input", "x=x.npy", "--input", "x=x.npy")
    assert (done.returncode, "two arrays are given for 'x'" in done.stderr) == (2, True)


def test_run_names_the_inputs_that_it_lacks(farrier, compiled):
    done = farrier("run", compiled)
    assert (done.returncode, "takes the inputs x; given: none" in done.stderr) == (6, True)


@pytest.mark.parametrize(
    ("damage", "code"), [(lambda data: data[:-500], 7), (lambda data: b"PK" + bytes(300), 7)]
)
def test_run_refuses_a_damaged_artifact(farrier, compiled, tmp_path, damage, code):
    _given(tmp_path)
    compiled.write_bytes(damage(compiled.read_bytes()))
    done = farrier("run", compiled, "--input", "x=x.npy")
    assert done.returncode == code
    assert "mlp.farrier" in done.stderr


def test_run_refuses_a_directory(farrier, tmp_path):
    done = farrier("run", tmp_path)
    assert (done.returncode, f"{tmp_path} is a directory" in done.stderr) == (7, True)


def test_run_refuses_files_that_hold_no_array(farrier, compiled, mlp, tmp_path):
    done = farrier("run", compiled, "--input", f"x={mlp}")
    assert (done.returncode, "does not contain NumPy arrays" in done.stderr) == (6, True)
    done = farrier("run", compiled, "--input", "x=nothing.npy")
    assert (done.returncode, "no such file: nothing.npy" in done.stderr) == (2, True)


def test_bench_races_others_on_the_model_beside_the_artifact(farrier, compiled):
    done = farrier("bench", compiled, "--against", "onnxruntime", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    ours, theirs = json.loads(done.stdout)
    assert (ours["label"], theirs["label"]) == ("farrier", "onnxruntime")
    assert ours["ratio"] == 1
    assert 0 < theirs["median_ms"] < 1000
    assert theirs["max_error"] < 1e-5


def test_bench_races_a_quantized_model_beside_its_float_form(farrier, tmp_path):
    model = tmp_path / "quantized.onnx"
    scalars = [numpy_helper.from_array(np.array(0.1, np.float32), "s")]
    weights = numpy_helper.from_array(np.eye(32, dtype=np.int8), "w")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]
    ends = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (64, 32)) for name in "xy")
    graph = helper.make_graph(nodes, "g", *([end] for end in ends), [*scalars, weights])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), model)
    done = farrier("bench", model, "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    ours, floats = json.loads(done.stdout)
    assert (ours["label"], floats["label"]) == ("farrier", "farrier:floats")
    assert 0 < floats["max_error"] < 0.05  # Half of a step.


@pytest.mark.long
def test_weights_in_a_file_of_their_own_are_found_by_path(farrier, mlp, tmp_path):
    place = tmp_path / "models"
    place.mkdir()
    keys = {"save_as_external_data": True, "location": "m.onnx.data", "size_threshold": 0}
    onnx.save(onnx.load(mlp), place / "m.onnx", **keys)
    words = ("--shape", "x=4,37", "--against", "onnxruntime", "--rounds", "1", "--json")
    done = farrier("bench", place / "m.onnx", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[1]["max_error"] < 1e-5
    done = farrier("compile", place / "m.onnx", "--shape", "x=4,37")
    assert done.returncode == 0, done.stderr
    assert (place / "m.farrier").exists()


def test_bench_refuses_what_cannot_run(farrier, compiled):
    done = farrier("bench", compiled, "--threads", "99")
    assert (done.returncode, "compile it with --threads 99" in done.stderr) == (2, True)


def test_bench_refuses_what_it_does_not_know(farrier, compiled, mlp):
    done = farrier("bench", mlp, "--against", "abacus")
    assert (done.returncode, "unknown engine 'abacus'" in done.stderr) == (2, True)
    mlp.unlink()
    done = farrier("bench", compiled, "--against", "onnxruntime")
    assert (done.returncode, "--model MODEL.onnx" in done.stderr) == (2, True)


def test_every_stage_is_text_that_parses_back(farrier, mlp, tmp_path):
    done = farrier("compile", mlp, "--shape", "x=4,37", "--until", "lower", "--dump", "ir")
    assert (done.returncode, done.stdout.strip()) == (0, "stopped after lower"), done.stderr
    texts = sorted((tmp_path / "ir").rglob("*.ir"))
    stages = {path.relative_to(tmp_path / "ir").parts[0].partition("-")[2] for path in texts}
    assert {stage.removesuffix(".ir") for stage in stages} >= {"import", "optimize", "lower"}
    for path in texts:
        text = path.read_text()
        assert print_ir(parse_ir(text, beside(path))) == text
    done = farrier("opt", "ir/0-import.ir")
    assert (done.returncode, done.stdout) == (0, (tmp_path / "ir/0-import.ir").read_text())


@pytest.mark.long
def test_opt_says_which_constant_it_lacks(farrier, mlp, tmp_path):
    farrier("compile", mlp, "--shape", "x=4,37", "--until", "import", "--dump", "ir")
    (tmp_path / "ir/constants").rename(tmp_path / "weights")
    done = farrier("opt", "ir/0-import.ir")
    assert (done.returncode, "--constants" in done.stderr) == (2, True)
    assert "no array with the sha256" in done.stderr
    done = farrier("opt", "ir/0-import.ir", "--constants", "weights")
    assert (done.returncode, done.stdout) == (0, (tmp_path / "ir/0-import.ir").read_text())
    done = farrier("opt", "ir/0-import.ir", "--constants", "nowhere")
    assert (done.returncode, "nowhere is not a folder" in done.stderr) == (2, True)
    (largest, *_) = sorted((tmp_path / "weights").iterdir(), key=lambda p: -p.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[-1] ^= 1
    largest.write_bytes(content)
    done = farrier("opt", "ir/0-import.ir", "--constants", "weights")
    assert (done.returncode, f"{largest.name} is damaged" in done.stderr) == (2, True)


def test_opt_prints_after_each_pass(farrier, mlp):
    farrier("compile", mlp, "--shape", "x=4,37", "--until", "import", "--dump", "ir")
    done = farrier("opt", "ir/0-import.ir", "-p", "fold-constants, fuse", "--print-after-all")
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("# after fold-constants") < done.stdout.index("# after fuse")
    assert "MatMul" in done.stdout


@pytest.mark.parametrize(
    ("content", "words"), [(b"@graph\ndef g(x", "error"), (b"\x93NUMPY\xff", "is not text")]
)
def test_opt_refuses_what_is_no_graph(farrier, tmp_path, content, words):
    (tmp_path / "bad.ir").write_bytes(content)
    done = farrier("opt", "bad.ir", "-p", "fuse")
    assert (done.returncode, words in done.stderr) == (2, True)


def test_opt_names_a_pass_that_is_none(farrier, mlp):
    farrier("compile", mlp, "--shape", "x=4,37", "--until", "import", "--dump", "ir")
    done = farrier("opt", "ir/0-import.ir", "-p", "go-faster")
    assert (done.returncode, "no pass go-faster" in done.stderr) == (2, True)


@pytest.mark.parametrize("bytes_", [100, 3000])
def test_a_full_disk(farrier, compiled, mlp, tmp_path, bytes_):
    """Every write past `bytes_` of a file fails, as on a disk that is full."""
    before = compiled.read_bytes()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_))

    done = farrier("compile", mlp, "--shape", "x=4,37", "-o", compiled, before=limit)
    assert done.returncode == 9
    assert done.stderr.splitlines()[-2].startswith("error: cannot ")
    assert compiled.read_bytes() == before
    assert not list(tmp_path.glob(".*")), "no draft is left"


@pytest.mark.long
def test_a_model_that_never_ends_is_named_with_the_setting(farrier, tmp_path):
    (tmp_path / "loop.onnx").write_bytes(loop(ENDLESS))
    done = farrier("compile", "loop.onnx", timeout_s=200, FARRIER_REFERENCE_S="0.5")
    assert done.returncode == 17, done.stderr
    assert "the step 'reference' did not end in the 0.5 s that it may take" in done.stderr
    assert "FARRIER_REFERENCE_S" in done.stderr
    assert farrier("compile", "loop.onnx", "--no-verify").returncode == 0
    done = farrier("compile", "loop.onnx", FARRIER_REFERENCE_S="soon")
    assert (done.returncode, "FARRIER_REFERENCE_S is 'soon'" in done.stderr) == (2, True)


def test_what_cannot_be_written_is_known_before_it_is_compiled(farrier, mlp):
    done = farrier("compile", mlp, "--shape", "x=4,37", "-o", ".")
    assert done.returncode == 9
    assert done.stderr.startswith("error: cannot write .: it is a directory")


def test_run_says_what_it_cannot_write(farrier, compiled, tmp_path):
    _given(tmp_path)
    done = farrier("run", compiled, "--input", "x=x.npy", "-o", compiled / "out.npz")
    assert (done.returncode, "mlp.farrier is no directory" in done.stderr) == (9, True)
    done = farrier("run", compiled, "--input", "x=x.npy", "-o", "deep/out.npz")
    assert (done.returncode, (tmp_path / "deep/out.npz").is_file()) == (0, True)


def test_records_that_are_none_are_told(farrier, mlp, tmp_path):
    (tmp_path / "r.jsonl").write_text('{"task": "a')
    words = ["compile", mlp, "--shape", "x=4,37", "--until", "import", "--records"]
    done = farrier(*words, "r.jsonl")
    assert done.returncode == 0
    assert "warning: 1 lines of r.jsonl are not records: line 1: record is not JSON" in done.stderr
    assert farrier(*words, mlp).returncode == 2


def test_a_directory_that_cannot_be_written(farrier, mlp):
    done = farrier("compile", mlp, "--shape", "x=4,37", "-o", "/proc/no/model.farrier")
    assert (done.returncode, "cannot write /proc/no/model.farrier" in done.stderr) == (9, True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "term"]
)
def test_a_signal_while_it_tunes_leaves_nothing_behind(mlp, tmp_path, number, code):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    words = ["compile", mlp, "--shape", "x=4,37", "--budget", "60s", "-o", tmp_path / "o.farrier"]
    process = subprocess.Popen(
        [sys.executable, "-m", "farrier.cli", *words],
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: list(temporary.glob("farrier-measure-*/*")), "it measures nothing")
    process.send_signal(number)
    _, said = process.communicate(timeout=240)
    assert process.returncode == code
    assert "Traceback" not in said
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "o.farrier").exists()


@pytest.mark.long
def test_options_out_of_range(farrier, compiled, mlp):
    assert farrier("bench", compiled, "--rounds", "0").returncode == 2
    assert farrier("profile", compiled, "--top", "-1").returncode == 2
    assert farrier("profile", compiled, "--seconds", "-1").returncode == 2
    done = farrier("compile", mlp, "--shape", "x=4,37", "--threads", "5000")
    assert (done.returncode, "threads is 5000, of at most 1024" in done.stderr) == (2, True)
    done = farrier("run", compiled, "--threads", "-1")
    assert (done.returncode, "threads" in done.stderr) == (2, True)
