"""The half of `bench.boards.guest` that runs in the root: loads artifacts and runs them.

    python -m bench.boards.inside

Frames come on stdin and go to stdout, each a pickle: the path of an artifact and its inputs by
name; then the outputs, or what went wrong as a text. Both ends are this program's own.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import farrier


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no frame
    while True:
        try:
            path, inputs = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_answer(path, inputs), answers, protocol=5)
        answers.flush()


def _answer(path: str, inputs: dict[str, Any]) -> dict[str, Any] | str:
    try:
        artifact = farrier.load(path)
        outputs = artifact.run(inputs)
        artifact.session().close()
        return dict(outputs)
    except Exception as error:  # whatever it is, it is that artifact's
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
