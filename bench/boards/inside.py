"""The program that `bench.boards.guest` runs in the emulated root: it loads and runs artifacts.

    python -m bench.boards.inside FOLDER

Each line on stdin requests a run of FOLDER/model.farrier on FOLDER/inputs. The answer is a line of
JSON on stdout: null if the outputs were written to FOLDER/outputs, else the error.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import farrier
from bench.boards import arrays


def main() -> None:
    folder = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Other output must not be mistaken for an answer.
    for _ in sys.stdin:
        print(json.dumps(_run(folder)), file=answers, flush=True)


def _run(folder: Path) -> str | None:
    try:
        artifact = farrier.load(folder / "model.farrier")
        arrays.save(folder / "outputs", artifact.run(arrays.load(folder / "inputs")))
        artifact.session().close()
    except Exception as error:  # Any error is a failure of that artifact.
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    main()
