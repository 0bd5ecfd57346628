"""Train the built-in cost model on all tasks that are not held out.

    python -m bench.tuning.pretrain                              what made the file in the package
    python -m bench.tuning.pretrain --targets host,x86-64-v3 [--trials 160] [--seconds 3600]
                                    [--corpus build/tuning] [--keep]

It is trained on the corpora of machines that are no longer available (`bench/tuning/kept.py`), and
on the corpora of the targets, which this machine must be able to run: for these it measures
candidates of the benchmark's tasks and of layers of common models, as `make bench-tuning` does;
`--seconds 0` measures nothing. `--keep` writes their corpora to the repository. Then it writes the
model into the package and reports how it ranks the held-out tasks of each target.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.tuning.corpus import Corpus, Known
from bench.tuning.kept import KEPT, keep, kept
from bench.tuning.options import measuring
from bench.tuning.report import trained
from bench.tuning.scores import mean, scores
from bench.tuning.tasks import LAYERS, OTHERS
from farrier import cost_model
from farrier.cost_model import PRETRAINED
from farrier.errors import FarrierError
from farrier.targets import parse_target
from farrier_device.describe import cores


def main() -> int:
    options = _parser().parse_args()
    try:
        by_class = _all_known(options)
    except FarrierError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    taught = [task for tasks in by_class.values() for task in tasks if not task.layer.held_out]
    if not taught:
        print("error: nothing is known; measure with --seconds", file=sys.stderr)
        return 2
    model = trained(taught)
    path = Path(cost_model.__file__).parent / PRETRAINED
    path.write_bytes(gzip.compress(_small(model), 9, mtime=0))
    count = sum(len(task.rows) for task in taught)
    print(f"{path}: {len(taught)} tasks, {count} candidates, {path.stat().st_size >> 10} KiB")
    for name, tasks in by_class.items():
        _say(name, tasks, model)
    return 0


def _all_known(options: argparse.Namespace) -> dict[str, list[Known]]:
    """Return the measured tasks of each class of machines, after measuring the tasks of the targets
    on this machine."""
    layers = [*LAYERS, *OTHERS]
    by_class: dict[str, list[Known]] = {}
    for name in filter(None, options.targets.split(",")):
        corpus = Corpus.under(options.corpus, parse_target(name), options.threads or cores())
        if options.seconds > 0:
            corpus.collect(layers, options.trials, options.seconds, lambda text: print(text))
        if options.keep:
            print(keep(corpus, layers))
        by_class[corpus.folder.name] = corpus.all_known(layers)
    for path in sorted(KEPT.glob("*.json.gz")):
        by_class.setdefault(path.name.removesuffix(".json.gz"), list(kept([path])))
    return by_class


def _small(model: cost_model.CostModel) -> bytes:
    """Return the serialized model without each node's training statistics, which prediction does
    not use."""
    saved = json.loads(model.save())
    for tree in saved["trees"]["learner"]["gradient_booster"]["model"]["trees"]:
        for noted in ("base_weights", "loss_changes", "sum_hessian"):
            tree[noted] = [0.0] * len(tree[noted])
    return json.dumps(saved, sort_keys=True, separators=(",", ":")).encode()


def _say(name: str, tasks: Sequence[Known], model: cost_model.CostModel) -> None:
    """Print how well the model ranks held-out tasks, next to the analytic model."""
    held_out = [task for task in tasks if task.layer.held_out]
    if not held_out:
        return
    for ranking, figures in (
        ("analytic", [scores(task, task.described[1]) for task in held_out]),
        ("learned", [scores(task, model.predict(*task.described)) for task in held_out]),
    ):
        print(f"{name}, {ranking}: {mean(figures)}")


def _parser() -> argparse.ArgumentParser:
    parser = measuring("bench.tuning.pretrain", __doc__ or "", trials=160)
    add = parser.add_argument
    add("--targets", default="", help="that this machine can run, by comma (none)")
    add("--keep", action="store_true", help="what is known of them, in the repository")
    return parser


if __name__ == "__main__":
    sys.exit(main())
