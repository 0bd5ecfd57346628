"""`farrier convert`: errors where a framework is missing, and exports of JAX where it is there."""

import importlib.util

import numpy as np
import pytest
from typer.testing import CliRunner

import farrier
from farrier.cli.app import build
from farrier.conversion.convert import convert
from farrier.errors import UsageError


@pytest.mark.parametrize(
    ("content", "output", "package"),
    [
        (b"\x89HDF\r\n\x1a\n", "m.onnx", "keras"),
        (b"PK\x03\x04", "m.tflite", "tensorflow"),
        (b"ML\xefR\rStableHLO", "m.mlir", "jax"),
    ],
)
def test_a_framework_that_is_missing_is_named(tmp_path, content, output, package):
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed here")
    source = tmp_path / "m"
    source.write_bytes(content)
    with pytest.raises(UsageError, match=f"{package} is not installed") as error:
        convert(source, tmp_path / output)
    assert "pip install" in error.value.hint


def test_the_name_of_the_output_says_the_format(tmp_path):
    source = tmp_path / "m.keras"
    source.write_bytes(b"PK\x03\x04")
    with pytest.raises(UsageError, match=r"\.onnx or \.tflite"):
        convert(source, tmp_path / "m.mlir")
    with pytest.raises(UsageError, match="no such file"):
        convert(tmp_path / "nothing", tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=r"without a saved_model\.pb"):
        convert(tmp_path, tmp_path / "m.onnx")


def test_a_saved_model_names_the_command(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(UsageError, match="SavedModel") as error:
        farrier.compile(tmp_path)
    assert "farrier convert" in error.value.hint


def _softmax(jax):
    def f(params, x):
        return {"y": jax.nn.softmax(x @ params["w"])}

    return f, ({"w": np.ones((6, 4), np.float32)}, np.ones((3, 6), np.float32))


def test_functions_of_jax_compile_with_names_and_open_sizes():
    jax = pytest.importorskip("jax", reason="the package jax is not installed")
    f, args = _softmax(jax)
    shapes = ({"w": None}, "n, 6")
    artifact = farrier.compile(jax.jit(f), args=args, dynamic_shapes=shapes)
    assert [spec.name for spec in artifact.manifest.inputs] == ["params.w", "x"]
    for rows in (1, 5):
        x = np.random.default_rng(0).standard_normal((rows, 6)).astype(np.float32)
        results = artifact.run({"params.w": args[0]["w"], "x": x})
        np.testing.assert_allclose(results["y"], f(args[0], x)["y"], rtol=1e-5)


def test_functions_of_jax_need_example_arguments():
    jax = pytest.importorskip("jax", reason="the package jax is not installed")
    with pytest.raises(UsageError, match="example arguments"):
        farrier.compile(jax.jit(_softmax(jax)[0]))


def test_files_of_jax_are_converted(tmp_path):
    jax = pytest.importorskip("jax", reason="the package jax is not installed")
    from jax import export

    f, args = _softmax(jax)
    exported = export.export(jax.jit(f))(*args)
    contents = {"a": bytes(exported.serialize()), "b": exported.mlir_module_serialized}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        output = tmp_path / f"{name}.mlir"
        result = CliRunner().invoke(build(), ["convert", str(tmp_path / name), "-o", str(output)])
        assert result.exit_code == 0, result.output
        results = farrier.compile(output, verify=False).run(
            {"params.w": args[0]["w"], "x": args[1]}
        )
        np.testing.assert_allclose(results["y"], f(*args)["y"], rtol=1e-5)
    (tmp_path / "c").write_bytes(b"neither")
    with pytest.raises(UsageError, match="neither MLIR bytecode"):
        convert(tmp_path / "c", tmp_path / "c.mlir")
    (tmp_path / "d").write_bytes(b"ML\xefR" + bytes(40))
    with pytest.raises(UsageError, match="MLIR bytecode that this JAX cannot read"):
        convert(tmp_path / "d", tmp_path / "d.mlir")


@pytest.mark.filterwarnings("ignore")  # Keras and tf2onnx use what numpy is about to change.
def test_models_of_keras_and_saved_models_are_converted(tmp_path):
    keras = pytest.importorskip("keras", reason="the package keras is not installed")
    layers = keras.layers
    net = keras.Sequential(
        [
            layers.Input((16, 16, 3)),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.DepthwiseConv2D(3, strides=2, padding="same"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    x = np.random.default_rng(0).random((2, 16, 16, 3)).astype(np.float32)
    net.save(tmp_path / "net.keras")
    net.export(str(tmp_path / "saved"), verbose=False)
    for source in ("net.keras", "saved"):
        for suffix in (".onnx", ".tflite"):
            output = tmp_path / f"{source}{suffix}"
            convert(tmp_path / source, output)
            artifact = farrier.compile(output, verify=False)
            (spec,) = artifact.manifest.inputs
            (result,) = artifact.run({spec.name: x}).values()
            np.testing.assert_allclose(result, net(x).numpy(), atol=1e-6)
