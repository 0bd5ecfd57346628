"""Every stage of real models, read back."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest

from bench import real, texts
from farrier.errors import FarrierError
from tests.bench.test_real import model

EXPORTS = Path(__file__).parents[2] / "build" / "models"


def test_every_text_is_read_by_the_command_or_here(tmp_path):
    onnx.save(model("Relu"), tmp_path / "relu.onnx")
    (source,) = real.workloads([str(tmp_path)], ["relu:x=batch:2..6:2,length:1..40,24"])
    result = texts.read_back(source, tmp_path / "ir", by_command=False)
    assert not result.failures
    graphs = {f"{stage}{of}.ir" for stage in ("0-import", "1-prepare") for of in ("", "-hot0")}
    assert graphs <= {path.name for path in (tmp_path / "ir").iterdir()}
    assert result.graphs >= 6
    assert result.texts > result.graphs
    assert result.constant_bytes > 24 * 16 * 4
    assert texts.table([result]).row_count == 1
    changed = tmp_path / "ir" / "0-import.ir"
    changed.write_text(f"# a note\n{changed.read_text()}")
    broken = tmp_path / "ir" / "1-prepare.ir"
    broken.write_text(broken.read_text().replace("MatMul(", "MatMul(nobody, "))
    here = list(texts.unlike([changed, broken]))
    assert [line.partition(":")[0] for line in here] == ["0-import.ir", "1-prepare.ir"]
    command = list(texts.unlike_by_command([changed, broken]))
    assert "prints otherwise" in command[0]
    assert "nobody is not defined" in command[1]


@pytest.mark.slow
@pytest.mark.skipif(not EXPORTS.is_dir(), reason="`make exports` writes them")
@pytest.mark.parametrize("name", sorted(os.listdir(EXPORTS)) if EXPORTS.is_dir() else [])
def test_real_exports(name, tmp_path):
    (source,) = real.workloads([str(EXPORTS / name)])
    try:
        assert not texts.read_back(source, tmp_path).failures
    except FarrierError as error:
        pytest.fail(str(error))
