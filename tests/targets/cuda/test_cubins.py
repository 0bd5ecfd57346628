"""Artifacts with cubins by a stand-in for ptxas: the driver loads them, or the PTX."""

from __future__ import annotations

import logging

import pytest

import farrier
from farrier.targets.cuda import assembler
from farrier_device.devices import libcuda as driver
from tests.targets.cuda.libcuda import ASSEMBLED, Library
from tests.targets.cuda.test_models import LAYERS_OF_FOUR, _assert_as_onnxruntime, _random

_PTXAS = """#!/bin/sh
[ "$3" = "${REFUSED:-}" ] && { echo "unknown architecture" >&2; exit 1; }
{ printf '%s'; cat "$4"; } > "$6"
"""


@pytest.fixture
def ptxas(tmp_path, monkeypatch):
    """Install a program in the place of ptxas, whose cubins the emulated driver can read."""
    program = tmp_path / "ptxas"
    program.write_text(_PTXAS % ASSEMBLED.decode())
    program.chmod(0o755)
    monkeypatch.setattr(assembler, "find_ptxas", lambda: str(program))


def _artifact(tmp_path):
    path = tmp_path / "model.farrier"
    farrier.compile(LAYERS_OF_FOUR, target="cuda:sm_80", verify=False).save(path)
    return farrier.load(path)


def _kinds(artifact):
    return [code.kind for code in artifact.code.objects]


def test_a_gpu_of_the_architecture_loads_the_cubins(ptxas, library, tmp_path, caplog):
    artifact = _artifact(tmp_path)
    kinds = _kinds(artifact)
    assert kinds.count("cubin") == kinds.count("ptx") == len(kinds) // 2 > 0
    _assert_as_onnxruntime(artifact, LAYERS_OF_FOUR, {"x": _random(4, 24)})
    assert library.loaded == ["cubin"] * kinds.count("ptx")
    assert not caplog.records


def test_another_gpu_compiles_the_ptx_and_says_so(ptxas, monkeypatch, tmp_path, caplog):
    library = Library(capability=(9, 0))
    monkeypatch.setattr(driver, "_loaded", lambda: library)
    artifact = _artifact(tmp_path)
    with caplog.at_level(logging.WARNING):
        _assert_as_onnxruntime(artifact, LAYERS_OF_FOUR, {"x": _random(4, 24)})
    assert set(library.loaded) == {"ptx"}
    assert (
        "Emulated compiles the PTX instead, because it does not accept the cubins: " in caplog.text
    )


def test_an_assembler_that_is_too_old_leaves_the_ptx(ptxas, library, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("REFUSED", "sm_80")
    artifact = _artifact(tmp_path)
    assert set(_kinds(artifact)) == {"ptx"}
    assert "the artifact has PTX alone" in caplog.text
    assert "unknown architecture" in caplog.text
    _assert_as_onnxruntime(artifact, LAYERS_OF_FOUR, {"x": _random(4, 24)})
