"""`python -m bench.models NAME [FILE]`: write a model to a file, for experiments.

NAME is a name of `bench.models.build` (`resnet18`, …), or `cls`, `det`, `rec` for a trained model
from the PyPI wheel of rapidocr.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from bench import models
from farrier.errors import FarrierError

TRAINED = ("cls", "det", "rec")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.models")
    parser.add_argument("name", choices=(*models.NAMES, *TRAINED))
    parser.add_argument("file", type=Path, nargs="?", help="default: NAME.onnx")
    arguments = parser.parse_args()
    path: Path = arguments.file or Path(f"{arguments.name}.onnx")
    try:
        if arguments.name in TRAINED:
            shutil.copyfile(models.rapidocr(arguments.name), path)
        else:
            path.write_bytes(models.build(arguments.name))
    except FarrierError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
