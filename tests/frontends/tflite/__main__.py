"""The part of `make frontends` on TFLite: models in LiteRT, and hostile files.

    python -m tests.frontends.tflite [--python LITERT] [--files FOLDER…] [--fuzz COUNT] [--update]

Models of single operators, which `operators.py` writes, and all .tflite files of the folders run by
Farrier and by LiteRT's reference kernels, on the same inputs. Integers must be equal but for one
step, and floats to a share of their range. `--update` writes the hashes of LiteRT's integers that
tests compare with.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.frontends.fuzz import fuzz
from tests.frontends.tflite.compare import Comparison, compared
from tests.frontends.tflite.hashes import write_hashes
from tests.frontends.tflite.operators import MODELS

ENVIRONMENT = Path("build/litert")


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 0 if all is right."""
    parser = argparse.ArgumentParser(prog="python -m tests.frontends.tflite", description=__doc__)
    parser.add_argument("--python", default=str(ENVIRONMENT / "bin" / "python"), help="with LiteRT")
    parser.add_argument("--files", type=Path, nargs="*", default=[ENVIRONMENT / "models"])
    parser.add_argument("--fuzz", type=int, default=20_000)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args(arguments)
    models = {name: write().model() for name, write in MODELS.items()}
    paths = [path for folder in options.files for path in sorted(folder.rglob("*.tflite"))]
    models.update((path.stem, path.read_bytes()) for path in paths)
    is_right = True
    with tempfile.TemporaryDirectory() as folder:
        for comparison in compared(models, Path(folder), options.python):
            print(comparison, flush=True)
            is_right &= comparison.is_right
            if options.update and comparison.name in MODELS:
                write_hashes(comparison)
    if options.fuzz:
        is_right &= fuzz([*models.values()], options.fuzz)
    return 0 if is_right else 1


__all__ = ["Comparison", "main"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
