"""Damaged files: each is refused by a FarrierError, or read, within a bounded time.

    python -m tests.frontends.fuzz FOLDER [COUNT] [SEED]

damages the models in a folder, of whatever formats: by default 20,000 times.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from farrier.errors import FarrierError
from farrier.frontends.onnx.model.file import Model
from farrier.frontends.registry import frontend_of

_LONGEST_S = 10.0  # No damaged file may take longer.
_MOST_BYTES = 300_000  # Larger files take long to import, and have the same parts.
_SUFFIXES = (".mlir", ".onnx", ".pt2", ".tflite")
_IMPORTED = 10  # Every tenth file is imported; the others are only inspected, which is faster.


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Return a file with some bytes replaced, moved, or cut off."""
    array = np.frombuffer(data, np.uint8).copy()
    for _ in range(rng.integers(1, 6)):
        # Tables lie near the start and the end, and weights between them.
        near = min(len(array), 4096)
        place = int(rng.integers(8, near) if rng.random() < 0.5 else rng.integers(8, len(array)))
        kind = rng.integers(4)
        if kind == 0:
            array[place] = rng.integers(256)
        elif kind == 1:
            array[place] ^= np.uint8(1 << int(rng.integers(8)))
        elif kind == 2:
            value = np.array(rng.choice([0, 1, -1, 1 << 31, 1 << 16, len(array)]), np.int64)
            patch = value.astype(np.uint32).tobytes()[: len(array) - place]
            array[place : place + len(patch)] = np.frombuffer(patch, np.uint8)
        else:
            source = int(rng.integers(8, len(array)))
            length = min(16, len(array) - max(place, source))
            array[place : place + length] = array[source : source + length]
    end = int(rng.integers(8, len(array))) if rng.random() < 0.1 else len(array)
    return array[:end].tobytes()


def fuzz(models: Sequence[bytes], count: int, seed: int = 0) -> bool:
    """Read `count` damaged files and return whether all were refused or read. Prints each that was
    not, by its number."""
    small = [data for data in models if len(data) <= _MOST_BYTES]
    is_right, refused = True, 0
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        data = damaged(small[int(rng.integers(len(small)))], rng)
        begun = time.perf_counter()
        try:
            model = Model.of_bytes(data)
            frontend = frontend_of(model)
            if number % _IMPORTED:
                refused += bool(frontend.inspection(model).problems)
            else:
                frontend.import_model(model)
        except FarrierError:
            refused += 1
        except Exception as error:
            print(f"damaged file {number}: {type(error).__name__}: {error}", flush=True)
            is_right = False
        seconds = time.perf_counter() - begun
        if seconds > _LONGEST_S:
            print(f"damaged file {number} takes {seconds:.1f} s", flush=True)
            is_right = False
    print(f"{count} damaged files, of which {refused} were refused", flush=True)
    return is_right


if __name__ == "__main__":
    files = [path for path in sorted(Path(sys.argv[1]).iterdir()) if path.suffix in _SUFFIXES]
    numbers = [int(word) for word in sys.argv[2:]]
    whole = fuzz([path.read_bytes() for path in files], *(numbers or [20_000]))
    sys.exit(not whole)
