"""Corpora of machines that are no longer available: a file in the repository for each class of
machines.

A corpus has tens of megabytes of records, on the machine that measured it. A file here has only the
data for training, for each task its definition, the candidates and their seconds. It is compressed
JSON:

    tasks   of each layer: its name, the definition of its task, the names of the knobs, the value
            of each knob by candidate, seconds, whether a candidate is one of a random sample, and
            the noise, as of `Known`
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.tuning.corpus import Corpus, Known
from bench.tuning.tasks import LAYERS, OTHERS, Layer
from farrier.cost_model.samples import DefinitionError, space_of
from farrier.records import TaskDefinition

KEPT = Path(__file__).parent / "kept"
_DIGITS = 4  # of seconds


def keep(corpus: Corpus, layers: Sequence[Layer]) -> Path:
    """Write a corpus's measurements of these layers to the file of its class of machines, and
    return the path."""
    tasks = []
    for layer in layers:
        task = corpus.known(layer)
        choice = layer.task(corpus.target, corpus.threads)
        definition = choice.definition(corpus.target, corpus.threads)
        if task is not None and definition is not None:
            tasks.append(_written(task, definition))
    path = KEPT / f"{corpus.folder.name}.json.gz"
    body = json.dumps({"tasks": tasks}, separators=(",", ":"))
    KEPT.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(body.encode(), 9, mtime=0))
    return path


def kept(paths: Iterable[Path]) -> Iterator[Known]:
    """Yield the tasks in files, without candidates that no longer exist in the schedule space."""
    layers = {layer.name: layer for layer in (*LAYERS, *OTHERS)}
    for path in paths:
        for task in json.loads(gzip.decompress(path.read_bytes()))["tasks"]:
            restored = _read(layers[task["layer"]], task) if task["layer"] in layers else None
            if restored is not None:
                yield restored


def _written(task: Known, definition: TaskDefinition) -> dict[str, Any]:
    return {
        "layer": task.layer.name,
        "definition": definition.to_line(),
        "knobs": [knob.name for knob in task.space.knobs],
        "values": task.rows.T.tolist(),
        "seconds": [float(f"{second:.{_DIGITS}g}") for second in task.seconds.tolist()],
        "random": task.is_random.astype(int).tolist(),
        "noise": float(f"{task.noise:.{_DIGITS}g}"),
    }


def _read(layer: Layer, task: dict[str, Any]) -> Known | None:
    """Return a task, or None if the current compiler has a different schedule space for it."""
    try:
        space = space_of(TaskDefinition.from_line(task["definition"])).built_in
    except DefinitionError:
        return None
    if [knob.name for knob in space.knobs] != task["knobs"]:
        return None
    rows = np.array(task["values"], np.int64).T
    allowed = space.valid(rows)
    if not allowed.any():
        return None
    seconds, is_random = np.array(task["seconds"]), np.array(task["random"], bool)
    return Known(layer, space, rows[allowed], seconds[allowed], is_random[allowed], task["noise"])
