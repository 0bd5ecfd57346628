"""`make boards`: what Farrier compiles for arm64, run by an arm64 Python under qemu-user.

    python -m bench.boards [--only models] [--models resnet18,…] [--real FOLDER]
                           [--target rpi4,rpi5,…] [--optional]
    python -m bench.boards --count [--models resnet18,…] [--target rpi5] [--cpu neoverse-n1]

Needs root on Debian, and packages that it names. The first call makes the arm64 root below
build/boards: 200 MB of packages and wheels.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.boards import artifacts, board, count
from bench.boards.root import NoRootError, Root, root
from bench.workloads import NAMES, QUICK
from farrier.errors import FarrierError, UsageError

_PIPED_COLUMNS = 160
Say = Callable[[str], None]


def main() -> int:
    arguments = _parser().parse_args()
    width = None if sys.stdout.isatty() else _PIPED_COLUMNS
    console = Console(highlight=False, soft_wrap=True, width=width)

    def say(text: str) -> None:
        console.print(text, markup=False)

    try:
        place = root(say)
        if arguments.count:
            names = (arguments.models or ",".join(NAMES)).split(",")
            for target in arguments.target.split(","):
                say(f"for {target}, on {arguments.cpu}")
                rows = list(count.count(names, place, target, arguments.cpu, say))
                console.print(count.table(rows))
            return 0
        chosen = arguments.only.split(",")
        if unknown := sorted(set(chosen) - PARTS.keys()):
            raise UsageError(f"unknown part {unknown[0]!r}", hint=f"parts: {', '.join(PARTS)}")
        failed = [name for name in chosen if not PARTS[name](place, arguments, console)]
    except NoRootError as error:
        if not arguments.optional:
            return _failed(error)
        say(f"skipped: {error}")
        return 0
    except FarrierError as error:
        return _failed(error)
    except KeyboardInterrupt:
        return 130
    say(f"arm64: {', '.join(failed)} failed" if failed else "arm64: all passed")
    return 1 if failed else 0


def _failed(error: FarrierError) -> int:
    sys.stderr.write(f"error: {error}\n")
    return error.exit_code


def _models(root: Root, arguments: argparse.Namespace, console: Console) -> bool:
    folder = arguments.real
    sources = [] if folder is None else artifacts.files(folder)
    if arguments.models or folder is None:
        sources += artifacts.named((arguments.models or ",".join(QUICK)).split(","))
    table = Table(box=None)
    for name in ("model", "target"):
        table.add_column(name, no_wrap=True)
    for name in ("error", "exact", "its", "s, load and run"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = list(artifacts.check(sources, arguments.target.split(","), root, console.print))
    for row in rows:
        errors = ["-" if one is None else f"{one:.1e}" for one in (row.exact, row.peer_exact)]
        said = row.failure or f"{row.error:.1e}"
        table.add_row(row.model, row.target, said, *errors, f"{row.seconds:.1f}")
    console.print(table)
    wrong = [f"{row.model} for {row.target}" for row in rows if not row.is_right]
    if wrong:
        console.print(f"not right to {artifacts.TOLERANCE:g} of the range: {', '.join(wrong)}")
    return not wrong


PARTS: dict[str, Callable[[Root, argparse.Namespace, Console], bool]] = {"models": _models}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.boards",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--models", help=f"of {', '.join(NAMES)}; by default {', '.join(QUICK)}")
    parser.add_argument(
        "--optional", action="store_true", help="where there can be no root, say so and succeed"
    )
    parser.add_argument(
        "--count", action="store_true", help="instructions of an inference; by default all models"
    )
    parser.add_argument(
        "--real", type=Path, metavar="FOLDER", help="models: the ONNX files there, open as they are"
    )
    parser.add_argument(
        "--target", default=board.TARGET, help=f"one or several, by default {board.TARGET}"
    )
    parser.add_argument("--cpu", default=board.QEMU_CPU, help="qemu's name of the CPU that counts")
    return parser


if __name__ == "__main__":
    sys.exit(main())
