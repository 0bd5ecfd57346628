"""`make bench ARGS=--operators`: race Farrier against ONNX Runtime on models of a single operator.

    python -m bench --operators [--quick] [--only PATTERN] [--threads 2] [--trials N]
                                [--json FILE] [--page]

Both engines run in the same process, with the same number of threads, on inputs in memory that
numpy allocates, and take turns. Outputs are compared first, and a difference is an error. `ratio`
is the median over the turns of Farrier's latency over ONNX Runtime's; `of best` is the ratio of the
shortest runs, which other work on the machine disturbs least. PATTERN is a regular expression that
is searched in the operators' names. `--page` writes the table into
docs/reference/single_operators.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import onnxruntime
from rich.console import Console

from bench.operators.model import OperatorModel
from bench.operators.race import FULL, QUICK, Row, race
from bench.operators.report import cells, markdown, summary, table
from bench.operators.table import MODELS
from bench.page import put
from bench.terminal import open_console, run
from farrier.errors import UsageError
from farrier_device import describe

_PAGE = Path(__file__).parents[2] / "docs/reference/single_operators.md"
_PIPED_COLUMNS = 200
_QUICK_EVERY = 4  # `--quick` takes each fourth model of the table


def main(words: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(words)
    return run(lambda console: _main(arguments, console), open_console(_PIPED_COLUMNS))


def _main(arguments: argparse.Namespace, console: Console) -> int:
    effort = QUICK if arguments.quick else FULL
    rows: list[Row] = []
    for model in chosen(arguments.only, arguments.quick):
        rows.append(race(model, arguments.threads, effort, arguments.trials))
        name, ours, _, theirs, _, ratio, best, error, rules = cells(rows[-1])
        console.print(
            f"{name}: {ours}, {theirs} ms, {ratio} ({best}), {error}; {rules}", markup=False
        )
        _write(arguments, rows)  # A run that is cut short has left what it measured.
    console.print(table(rows))
    console.print(summary(rows))
    if arguments.page:
        put(_PAGE, "operators", markdown(rows, _heading(arguments)))
    wrong = [row.model for row in rows if row.is_wrong]
    if wrong:
        console.print(f"wrong: {', '.join(wrong)}", style="red", markup=False)
    return 1 if wrong else 0


def chosen(only: str, quick: bool) -> list[OperatorModel]:
    """Return the models whose names match the pattern `only`. Without a pattern, return all models,
    or with `quick` a regular sample of them.

    Raises UsageError if none matches or the pattern is malformed.
    """
    if not only:
        return list(MODELS[::_QUICK_EVERY] if quick else MODELS)
    try:
        pattern = re.compile(only, re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"--only {only!r} is not a regular expression: {error}") from error
    models = [model for model in MODELS if pattern.search(model.name)]
    if not models:
        names = ", ".join(sorted({model.op for model in MODELS}))
        raise UsageError(f"--only {only!r} matches no model", hint=f"operators: {names}")
    return models


def _heading(arguments: argparse.Namespace) -> str:
    machine = describe.describe()
    tuned = f"{arguments.trials} trials" if arguments.trials else "untuned"
    return (
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {machine.cpu}, {arguments.threads} "
        f"threads, {tuned}, ONNX Runtime {onnxruntime.__version__}; medians."
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench --operators",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--operators", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="fewer models, shorter turns")
    parser.add_argument("--only", default="", metavar="PATTERN", help="models whose names match")
    parser.add_argument("--threads", type=int, default=2, help="of both engines")
    parser.add_argument("--trials", type=int, help="tune, measuring so many candidates")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument("--page", action="store_true", help="write the table of the documentation")
    return parser


def _write(arguments: argparse.Namespace, rows: Sequence[Row]) -> None:
    if arguments.json is not None:
        facts = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": dataclasses.asdict(describe.describe()),
            "threads": arguments.threads,
            "trials": arguments.trials,
            "rows": [{**dataclasses.asdict(row), "ratio": row.ratio} for row in rows],
        }
        arguments.json.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    sys.exit(main())
