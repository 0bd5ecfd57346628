"""Dump the stages of models, and read them back."""

from __future__ import annotations

import pytest

from farrier.ir.constants import beside
from farrier.options import CompileOptions
from farrier.passes import Settings, opt
from farrier.pipeline import Dump, StoppedError, compile_model
from farrier.targets import parse_target

TARGET = "x86-64-v3"


def dumped(folder, data, shapes=None, hot=(), until="lower", target=TARGET):
    """The texts of a model's stages, by their paths within the folder; each reads back."""
    options = CompileOptions(target=target, threads=2, verify=False, shapes=shapes or {}, hot=hot)
    with pytest.raises(StoppedError):
        compile_model(data, options, dump=Dump(folder, until))
    texts, settings = {}, Settings(parse_target(target), 2)
    for path in folder.rglob("*.ir"):
        text = path.read_text(encoding="utf-8")
        assert opt(text, [], constants=beside(path), settings=settings) == text, path
        texts[str(path.relative_to(folder))] = text
    return texts
