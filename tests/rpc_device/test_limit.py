"""The answers that a library gets which asks the processor."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys

import pytest

from farrier.targets import host
from farrier.targets.cpu.codegen import compile_text, link
from farrier_device.baseline.limit import Limit, apply

_ASKS = """
define i64 @saved() nounwind {
  %both = call { i32, i32 } asm "xor %ecx, %ecx\\0Axgetbv", "={eax},={edx},~{ecx},~{flags}"()
  %low = extractvalue { i32, i32 } %both, 0
  %wide = zext i32 %low to i64
  ret i64 %wide
}
"""
_ANSWERS = "define i64 @saved() nounwind { ret i64 1 }"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that makes a package with one library of this text, and returns the library's
    path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def make(name: str, text: str):
        folder = tmp_path / name
        (folder / "libs").mkdir(parents=True)
        (folder / "__init__.py").write_text("from pathlib import Path\nAT = Path(__file__).parent")
        (folder / "libs" / "other.txt").write_text("other")
        library = folder / "libs" / "asks.so"
        library.write_bytes(link([compile_text(text, host())]))
        return library

    return make


def test_a_library_that_asks_hears_of_avx_alone(package, tmp_path):
    library = package("farrier_test_asks", _ASKS)
    before = library.read_bytes()
    message = apply(Limit(libraries=("libs/a*.so",)), "farrier_test_asks", tmp_path / "copies")
    assert message == "XGETBV of asks.so says AVX"
    at = importlib.import_module("farrier_test_asks").AT
    assert at == tmp_path / "copies" / "farrier_test_asks"
    assert (at / "libs" / "other.txt").read_text() == "other"
    assert ctypes.CDLL(str(at / "libs" / "asks.so")).saved() == 7
    assert ctypes.CDLL(str(library)).saved() & 3 == 3  # x87 and SSE, on every x86-64
    assert library.read_bytes() == before


def test_a_library_that_does_not_ask_or_is_not_there_is_told(package, tmp_path):
    package("farrier_test_answers", _ANSWERS)
    with pytest.raises(RuntimeError, match="contains no XGETBV"):
        apply(Limit(libraries=("libs/a*.so",)), "farrier_test_answers", tmp_path / "copies")
    with pytest.raises(RuntimeError, match=r"lacks one of the libraries lib\*\.so"):
        apply(Limit(libraries=("lib*.so",)), "farrier_test_answers", tmp_path / "others")


def test_variables_are_set(monkeypatch, tmp_path):
    monkeypatch.setenv("FARRIER_TEST_ISA", "all")
    how = Limit(environment={"FARRIER_TEST_ISA": "AVX2"})
    assert apply(how, "nobody", tmp_path) == "FARRIER_TEST_ISA=AVX2"
    assert os.environ["FARRIER_TEST_ISA"] == "AVX2"
