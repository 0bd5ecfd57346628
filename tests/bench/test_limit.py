"""What a library that asks the processor is told."""

from __future__ import annotations

import ctypes
import os

import pytest

from farrier.bench.limit import limit, patch
from farrier.codegen import compile_text, link
from farrier.target import host

_ASKS = """
define i64 @saved() nounwind {
  %both = call { i32, i32 } asm "xor %ecx, %ecx\\0Axgetbv", "={eax},={edx},~{ecx},~{flags}"()
  %low = extractvalue { i32, i32 } %both, 0
  %wide = zext i32 %low to i64
  ret i64 %wide
}
"""
_ANSWERS = "define i64 @saved() nounwind { ret i64 1 }"


def _library(folder, text):
    path = folder / "asks.so"
    path.write_bytes(link([compile_text(text, host())]))
    return path


def test_a_library_that_asks_hears_of_avx_alone(tmp_path):
    path = _library(tmp_path, _ASKS)
    before = path.read_bytes()
    saved = ctypes.CDLL(str(path)).saved
    assert saved() & 3 == 3  # x87 and SSE, on every x86-64
    assert patch(path) == 1
    assert saved() == 7
    assert path.read_bytes() == before


def test_a_library_that_does_not_ask_is_told(tmp_path):
    path = _library(tmp_path, _ANSWERS)
    with pytest.raises(RuntimeError, match="does not ask"):
        patch(path)


def test_variables_are_set_and_missing_libraries_told(monkeypatch):
    monkeypatch.setenv("FARRIER_TEST_ISA", "all")
    assert limit("bench", {"ENVIRONMENT": {"FARRIER_TEST_ISA": "AVX2"}}) == "FARRIER_TEST_ISA=AVX2"
    assert os.environ["FARRIER_TEST_ISA"] == "AVX2"
    with pytest.raises(RuntimeError, match=r"bench has no lib\*\.so"):
        limit("bench", {"LIBRARIES": ("lib*.so",)})
