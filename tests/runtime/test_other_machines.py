"""An artifact on a machine that it is not for: an error that says so, and no instruction of it."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

import farrier
from farrier.errors import ArtifactError
from tests.rpc_device import boards
from tests.rpc_device.boards import Pretended


@pytest.fixture(scope="module")
def model():
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (4, 8)) for name in ("x", "y")
    )
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    return proto


@pytest.mark.parametrize(
    ("target", "board", "bits", "why"),
    [
        ("rpi5", boards.RPI4, 64, "this machine lacks asimddp,"),
        ("graviton3", boards.RPI5, 64, "this machine lacks bf16, fcma"),
        ("rpi5", boards.PC, 64, "this machine is x86_64"),
        ("rpi4", boards.RPI4, 32, "this is a 32-bit system (armv8l), and it needs 64-bit Linux"),
        ("rpi4", boards.RPI4_IN_32_BITS, 32, "this is a 32-bit system (armv7l)"),
    ],
)
def test_it_says_why_it_cannot_run(model, target, board, bits, why, tmp_path, monkeypatch):
    artifact = farrier.compile(model, target=target, verify=False, threads=1)
    Pretended(tmp_path, monkeypatch).be(board, bits=bits)
    with pytest.raises(ArtifactError) as refused:
        artifact.session()
    assert f"was compiled for {artifact.manifest.machine} (" in refused.value.message
    assert why in refused.value.message
