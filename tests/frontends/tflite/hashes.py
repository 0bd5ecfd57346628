"""The hashes of LiteRT's integers, with which tests compare where LiteRT is not installed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy.typing as npt

if TYPE_CHECKING:
    from tests.frontends.tflite.compare import Comparison

Array: TypeAlias = npt.NDArray[Any]

PATH = Path(__file__).with_name("hashes.json")


def hashed(arrays: Sequence[Array]) -> str:
    """Return 16 hexadecimal digits over an output of several calls."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def read_hashes() -> dict[str, dict[str, str]]:
    """Return the hash of each output that holds integers, by model and output."""
    return dict(json.loads(PATH.read_text())) if PATH.exists() else {}


def write_hashes(comparison: Comparison) -> None:
    """Write the hashes of one model among those of others."""
    hashes = read_hashes()
    hashes[comparison.name] = {
        name: hashed(arrays)
        for name, arrays in comparison.outputs.items()
        if arrays[0].dtype.kind in "iub"
    }
    PATH.write_text(json.dumps(hashes, indent=1, sort_keys=True) + "\n")
