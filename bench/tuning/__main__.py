"""`make bench-tuning`: how good the chosen schedules are, before and while candidates are measured.

    python -m bench.tuning [--trials 1000] [--seconds 3600] [--threads N] [--only TEXT]
                           [--target host] [--taught-by TARGET]
                           [--corpus build/tuning] [--docs docs/tuning | --no-docs]

First it measures candidates of 24 tasks on this machine, until each has `--trials` of them or the
time is over. It continues from the records in `--corpus`, and `--seconds 0` measures nothing. Then
it reports how well the analytic model and the learned one rank the measured candidates, and how
soon searches find the best candidate. The learned model is trained on all tasks that are not held
out; with `--taught-by`, on those of another target, without the measurements of this one's class.
docs/tuning/tuning.md explains the tables, which this command updates for this machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.page import put
from bench.tuning.chart import chart
from bench.tuning.corpus import Corpus
from bench.tuning.options import measuring
from bench.tuning.report import report, tables
from bench.tuning.tasks import LAYERS, OTHERS
from farrier.errors import FarrierError
from farrier.targets import parse_target
from farrier_device.describe import cores


def main() -> int:
    options = _parser().parse_args()
    try:
        return _run(options)
    except FarrierError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _run(options: argparse.Namespace) -> int:
    target = parse_target(options.target)
    layers = [layer for layer in LAYERS if options.only in layer.name]
    if not layers:
        print(f"error: no task has {options.only!r} in its name", file=sys.stderr)
        return 2
    threads = options.threads or cores()
    corpus = Corpus.under(options.corpus, target, threads)
    if options.seconds > 0:
        corpus.collect(layers, options.trials, options.seconds, _say)
    taught = corpus.all_known([*LAYERS, *OTHERS])
    measured = [entry for entry in taught if entry.layer in layers]
    if not measured:
        print("error: nothing is known; measure with --seconds", file=sys.stderr)
        return 2
    if options.taught_by is not None:
        taught_by = Corpus.under(options.corpus, parse_target(options.taught_by), threads)
        taught = taught_by.all_known([*LAYERS, *OTHERS])
    figures = report(measured, taught, _say)
    text = "\n".join(tables(figures))
    print(text)
    data = {"class": corpus.folder.name, "rows": [row.to_dict() for row in figures.rows]}
    (corpus.folder / "report.json").write_text(json.dumps(data, indent=1) + "\n")
    is_usual = options.target == "host" and options.taught_by is None
    if options.docs is not None and is_usual:
        put(options.docs / "tuning.md", "measured", text)
        (options.docs / "tuning.svg").write_text(chart(figures))
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = measuring("bench.tuning", __doc__ or "", trials=1000)
    add = parser.add_argument
    add("--only", default="", metavar="TEXT", help="tasks with this in their names")
    add("--target", default="host", help="that this machine can run (host)")
    add("--taught-by", metavar="TARGET", help="whose records teach; the same")
    add("--docs", type=Path, default=Path("docs/tuning"), help="folder of tuning.md and tuning.svg")
    add("--no-docs", dest="docs", action="store_const", const=None, help="leave them as they are")
    return parser


if __name__ == "__main__":
    sys.exit(main())
