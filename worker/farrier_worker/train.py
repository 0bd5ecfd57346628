"""The training process of a trainer, which trains a cost model. `python -m farrier_worker.train`.

The process reads programs that the processes of jobs wrote, so it has the same sandbox and limits
as a job's process, and communicates with the trainer only. Its start is described in
`sandboxed_entry.py`; then

    trainer → process   {"add": <definition>, "records": [<record>…]}, once for each task
    process → trainer   {"full": <whether no more fits>}
    trainer → process   {"train": {<what a rival is called>: <path of its bytes>}}
    process → trainer   {"outcome": <outcome>, "model": <base64, or null where it is not better>}

Definitions and records are lines of JSON in the format of `farrier.records`.
"""

from __future__ import annotations

import base64
import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farrier_device import wire
from farrier_worker.sandboxed_entry import enclosed

if TYPE_CHECKING:
    from farrier.cost_model.training import Training

MOST = 200_000  # The most candidates to train on, of about 200 bytes each.


def main(argv: Sequence[str]) -> int:
    """Train as the trainer requests, and return the exit code. `argv` contains the descriptor of
    the socket."""
    with enclosed(argv) as (sock, level):
        from farrier.cost_model.training import Training

        training = Training(MOST)
        wire.send(sock, {"ready": level})
        while True:
            wire.send(sock, _answer(training, wire.receive(sock)))
    return 0


def _answer(training: Training, message: Mapping[str, Any]) -> dict[str, Any]:
    from farrier.records import TaskDefinition, TuningRecord

    if "add" in message:
        records = map(TuningRecord.from_line, message["records"])
        training.add(TaskDefinition.from_line(message["add"]), records)
        return {"full": training.is_full}
    from farrier.cost_model import CostModel, pretrained

    paths = message["train"].items()
    rivals = {pretrained().name: pretrained()}
    for name, path in paths:
        # A version that does not load is useless to jobs, and need not be beaten.
        with contextlib.suppress(ValueError):
            rivals[name] = CostModel.load(Path(path).read_bytes())
    outcome, model = training.outcome(rivals)
    saved = None if model is None else base64.b64encode(model.save()).decode()
    return {"outcome": outcome.to_dict(), "model": saved}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
