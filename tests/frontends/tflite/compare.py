"""Farrier's outputs against those of LiteRT's reference kernels, model by model."""

from __future__ import annotations

import dataclasses
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import farrier
from farrier.errors import FarrierError
from farrier.frontends.tflite.interface import Interface
from farrier.frontends.tflite.reading import read_model
from farrier.frontends.tflite.schema import DTYPES, TfliteModel
from tests.frontends.tflite import litert_child

Array: TypeAlias = npt.NDArray[Any]
Call: TypeAlias = Mapping[str, Array]

_CALLS = 3
_STREAMED = 50  # Calls of a model that keeps variables.
_STEPS = 1  # Integers may differ by this much.
# The share of an output's range by which floats may differ: the sums of deep networks add up in
# another order, and a logarithm in basic-pitch magnifies that.
_SHARE = 2e-4


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One model. `steps` is the greatest difference of integers, and `share` that of floats in
    shares of their range."""

    name: str
    steps: int = 0
    share: float = 0.0
    outputs: Mapping[str, Sequence[Array]] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    failure: str = ""

    @property
    def is_right(self) -> bool:
        """Return whether Farrier computes what LiteRT does."""
        return not self.failure and self.steps <= _STEPS and self.share <= _SHARE

    def __str__(self) -> str:
        if self.failure:
            return f"{self.name}: FAILS: {self.failure}"
        word = "right" if self.is_right else "WRONG"
        difference = f"{self.steps} steps, {self.share:.1e} of the range"
        return f"{self.name}: {word}: {difference}, compiled in {self.seconds:.1f} s"


def compared(models: Mapping[str, bytes], folder: Path, python: str) -> Iterator[Comparison]:
    """Yield the comparison of each model; `python` is that of an environment with LiteRT."""
    calls = {name: calls_of(read_model(data)) for name, data in models.items()}
    for name, expected in litert_outputs(models, calls, folder, python):
        if isinstance(expected, str):
            yield Comparison(name, failure=f"LiteRT: {expected}")
        else:
            yield _comparison(name, models[name], calls[name], expected)


def litert_outputs(
    models: Mapping[str, bytes], calls: Mapping[str, Sequence[Call]], folder: Path, python: str
) -> Iterator[tuple[str, list[list[Array]] | str]]:
    """Yield the name of each model and the outputs of its calls by LiteRT's reference kernels, or
    LiteRT's error."""
    for name, data in models.items():
        (folder / f"{name}.tflite").write_bytes(data)
        arrays = {
            f"{call}.{place}": array
            for call, inputs in enumerate(calls[name])
            for place, array in enumerate(inputs.values())
        }
        np.savez(folder / f"{name}.inputs.npz", allow_pickle=False, **arrays)
    subprocess.run([python, litert_child.__file__, str(folder)], check=True, capture_output=True)
    for name in models:
        failed = folder / f"{name}.error.txt"
        if failed.exists():
            yield name, failed.read_text().strip()
            continue
        with np.load(folder / f"{name}.outputs.npz") as archive:
            yield name, litert_child.calls_in(archive)


def calls_of(model: TfliteModel) -> list[Call]:
    """Return random inputs of some calls."""
    interface, rng = Interface(model), np.random.default_rng(0)
    tensors = [model.main.tensors[index] for index in model.main.inputs]
    shapes = [(t.shape, DTYPES[t.type].numpy) for t in tensors]
    count = _STREAMED if interface.variables else _CALLS
    return [
        {
            name: _drawn(rng, shape, dtype)
            for name, (shape, dtype) in zip(interface.inputs, shapes, strict=True)
        }
        for _ in range(count)
    ]


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return random elements: integers of the whole type around a random middle."""
    if np.issubdtype(dtype, np.floating):
        return np.asarray((rng.standard_normal(shape) * rng.choice([0.5, 2])).astype(dtype))
    limits = np.iinfo(dtype)
    middle, spread = rng.uniform(limits.min, limits.max), rng.choice([30, 300])
    values = np.rint(rng.normal(middle, spread, shape))
    return np.asarray(np.clip(values, limits.min, limits.max).astype(dtype))


def _comparison(
    name: str, data: bytes, calls: Sequence[Call], expected: Sequence[Sequence[Array]]
) -> Comparison:
    begun = time.perf_counter()
    try:
        session = farrier.compile(data, verify=False).session()
        seconds = time.perf_counter() - begun
        results = [session.run(inputs) for inputs in calls]
    except FarrierError as error:
        return Comparison(name, failure=f"{type(error).__name__}: {error}")
    outputs: dict[str, list[Array]] = {}
    steps, share = 0, 0.0
    for result, right in zip(results, expected, strict=True):
        for (label, array), other in zip(result.items(), right, strict=True):
            outputs.setdefault(label, []).append(other)
            if array.shape != other.shape:
                return Comparison(name, failure=f"{label} is {array.shape}, not {other.shape}")
            difference = _difference(array, other)
            if array.dtype.kind == "f":
                share = max(share, difference / max(_difference(other, other * 0), 1.0))
            else:
                steps = max(steps, int(difference))
    return Comparison(name, steps, share, outputs, seconds)


def _difference(array: Array, other: Array) -> float:
    left, right = array.astype(np.float64), other.astype(np.float64)
    is_same = (left == right) | (np.isnan(left) & np.isnan(right))
    return float(np.max(np.where(is_same, 0, np.abs(left - right)), initial=0))
