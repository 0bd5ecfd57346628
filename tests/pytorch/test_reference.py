"""torch as the reference of a program, in its walled process."""

import io
import zipfile

import numpy as np
import pytest

import farrier
from farrier.frontends.onnx.model.file import Model
from farrier.packaging.torch_program import TorchProgram
from farrier.progress import Verified

torch = pytest.importorskip("torch", reason="needs torch: make frontends installs it")


class Counting(torch.nn.Module):  # type: ignore[name-defined]
    """A module with a buffer that it changes, a size as a result, and an input of bf16."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, x, scale):
        self.calls += 1
        return self.linear(x) * self.calls, scale * 2, x.shape[0]


def program(module, *args):
    file = io.BytesIO()
    torch.export.save(torch.export.export(module.eval(), args), file)
    return file.getvalue()


def counting():
    return program(Counting(), torch.ones(2, 4), torch.ones(2, dtype=torch.bfloat16))


def test_torch_verifies_a_program(tmp_path):
    events = []
    path = tmp_path / "m.pt2"
    path.write_bytes(counting())
    artifact = farrier.compile(path, listener=events.append)
    reference = f"PyTorch {torch.__version__}"
    assert artifact.report["verification"]["reference"] == reference
    assert [e.reference for e in events if isinstance(e, Verified)] == [reference]


def test_buffers_sizes_and_narrow_floats_are_exchanged():
    import ml_dtypes

    said = []
    x, scale = np.ones((2, 4), np.float32), np.ones(2, ml_dtypes.bfloat16)
    inputs = {"x": x, "scale": scale, "calls": np.array([4], np.int64)}
    with TorchProgram.of(Model.of_bytes(counting()), said.append) as engine:
        names = ["output_1", "output_2", "calls.new"]
        for _ in range(2):
            twice, size, calls = engine.run(inputs, names)
            assert twice.dtype == ml_dtypes.bfloat16
            assert (twice == 2).all()
            assert (size.shape, size.item(), calls.tolist()) == ((), 2, [5])
    assert not said


def test_what_torch_cannot_load_leaves_float64(tmp_path):
    """A member that only torch reads is damaged."""
    whole = zipfile.ZipFile(io.BytesIO(program(torch.nn.Linear(4, 3), torch.ones(2, 4))))
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w") as damaged:
        for info in whole.infolist():
            is_sample = "sample_inputs" in info.filename
            damaged.writestr(info.filename, b"junk" if is_sample else whole.read(info))
    assert farrier.compile(path).report["verification"]["reference"] == "float64"
