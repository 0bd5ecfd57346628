"""The target that is this machine, by what the machine says of itself."""

from __future__ import annotations

import dataclasses

import pytest

from farrier import pipeline, target
from farrier.errors import InvalidModelError, UsageError
from farrier.options import CompileOptions
from farrier_device import describe

SSE = ("sse4_1", "sse4_2", "ssse3", "popcnt", "cx16")
AVX2 = (*SSE, "avx2", "fma", "bmi1", "bmi2", "f16c", "movbe")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


@pytest.mark.parametrize(
    ("cpu", "features", "tune"),
    [
        ("AMD EPYC", AVX2, "znver3"),
        ("AMD EPYC", AVX512, ""),
        ("Intel(R) Xeon(R) Processor", AVX512, "sapphirerapids"),
        ("Intel(R) Core(TM) i7", AVX2, ""),
        ("AMD Opteron", SSE, ""),
    ],
)
def test_figures_are_those_of_the_nearest_microarchitecture(monkeypatch, cpu, features, tune):
    here = dataclasses.replace(describe.describe(), cpu=cpu, features=features)
    monkeypatch.setattr(target.describe, "describe", lambda: here)
    assert target.parse_target("x86-64-v3").tune == tune


def test_code_that_cannot_run_here_is_made_but_not_measured(monkeypatch):
    monkeypatch.setattr(pipeline, "missing_features", lambda *_: ["avx512f"])
    for options in (CompileOptions(), CompileOptions(verify=False, trials=4)):
        with pytest.raises(UsageError, match="this machine lacks avx512f") as refused:
            pipeline.compile_model(b"", options)
        assert "--no-verify" in refused.value.hint
    with pytest.raises(InvalidModelError):  # it reads the model, then
        pipeline.compile_model(b"", CompileOptions(verify=False))
