"""The half of `bench.boards.guest` that runs in the root: loads artifacts and runs them.

    python -m bench.boards.inside FOLDER

A line on stdin asks to run FOLDER/model.farrier on FOLDER/inputs. A line of JSON on stdout answers:
null where FOLDER/outputs holds the outputs, else what went wrong.
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
    os.dup2(2, 1)  # whatever else is printed is no answer
    for _ in sys.stdin:
        print(json.dumps(_run(folder)), file=answers, flush=True)


def _run(folder: Path) -> str | None:
    try:
        artifact = farrier.load(folder / "model.farrier")
        arrays.save(folder / "outputs", artifact.run(arrays.load(folder / "inputs")))
        artifact.session().close()
    except Exception as error:  # whatever it is, it is that artifact's
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    main()
