"""`tests/golden/llvm/<rule>.ll`: the code of the kernels whose loops are in `tests/golden/loops`.

`pytest --update-golden` writes it anew. LLVM parses, verifies and compiles each, for the target
that it is written for; loops that mean the same are run in
`tests/targets/cpu/rules/test_golden_loops.py`.
"""

from __future__ import annotations

from typing import NoReturn

import pytest

from farrier.targets import host
from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.emit import emit_function, instruction_texts
from farrier_device import describe
from tests.targets.cpu.rules.golden_kernels import GOLDEN, PATHS, GoldenKernel

_LLVM = GOLDEN / "llvm"
_NAMES = [path.stem for path in PATHS]


@pytest.fixture(autouse=True)
def _of_no_machine(monkeypatch):
    """Whoever asks which machine this is fails: neither loops nor code may depend on it."""

    def asked() -> NoReturn:
        raise AssertionError("a kernel for another machine depends on this one")

    monkeypatch.setattr(describe, "describe", asked)
    host.cache_clear()


@pytest.mark.parametrize("name", _NAMES)
def test_golden(name, update_golden):
    kernel = GoldenKernel.of(GOLDEN / "loops" / f"{name}.txt")
    text = emit_function(kernel.function, kernel.target)
    assert compile_text(text, kernel.target).startswith(b"\x7fELF")
    path = _LLVM / f"{name}.ll"
    if update_golden:
        path.write_text(text)
    else:
        assert text == path.read_text()


def test_the_last_pass_leaves_what_is_compiled(monkeypatch, capsys):
    monkeypatch.setenv("FARRIER_DEBUG", "6")
    for name in _NAMES:
        kernel = GoldenKernel.of(GOLDEN / "loops" / f"{name}.txt")
        text = emit_function(kernel.function, kernel.target)
        shown = capsys.readouterr().err
        texts = instruction_texts(kernel.function, kernel.target)
        assert next(iter(texts)) == "instructions"
        assert list(texts.values())[-1] == text
        for step, each in texts.items():
            assert f"--- {step} of {kernel.function.name}\n{each}" in shown


def test_every_text_is_that_of_a_golden_kernel():
    assert [path.stem for path in sorted(_LLVM.glob("*.ll"))] == _NAMES
