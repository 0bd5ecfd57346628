"""`make boards`: run code that Farrier compiles for arm64 by an arm64 Python under qemu-user.

    python -m bench.boards [--only PARTS] [--target rpi4,rpi5,…] [--optional]
                           [--models resnet18,…] [--real FOLDER]       of the part models
                           [--precision f16]                           of the part models
                           [--files tests/rpc_device,…] [-k PATTERN]   of the part tests
                           [--every N] [-k PATTERN]                    of the part conformance
    python -m bench.boards --bare --target rv64gc,… [--models resnet18,…] [--real FOLDER]
    python -m bench.boards --count [--models resnet18,…] [--target rpi5] [--cpu neoverse-n1]
    python -m bench.boards --system [--files tests/rpc_device/test_sandbox.py,…]

--bare runs models by a C program, without a root folder and a Python, for architectures other than
arm64. --count counts the instructions of an inference. --system runs tests on an arm64 kernel,
which qemu-system-aarch64 boots. docs/develop/boards.md explains what each of them proves.

It must run as root on Debian, with packages that it names if they are missing. The first call
creates the arm64 root folder below build/boards: 200 MB of packages and wheels.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.boards import artifacts, bare, board, conformance, count, farm, suite, system
from bench.boards.root import NoRootError, Root, root
from bench.terminal import open_console
from bench.workloads import NAMES, QUICK
from farrier.errors import FarrierError, UsageError
from farrier.options.precision import parse_precision

Say = Callable[[str], None]
Part = Callable[[Root, argparse.Namespace, Console], bool]


def main() -> int:
    arguments = _parser().parse_args()
    console = open_console()
    say = _plain(console)
    try:
        if arguments.bare:
            return 0 if _bare(arguments, console) else 1
        parts = _parts(arguments)
        place = root(say)
        failed = [name for name, part in parts.items() if not part(place, arguments, console)]
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


def _parts(arguments: argparse.Namespace) -> dict[str, Part]:
    """Return the requested parts of the check, by name. Raises UsageError."""
    if arguments.every < 1:
        raise UsageError(f"--every takes 1 or more, not {arguments.every}")
    if arguments.count:
        return {"count": _count}
    if arguments.system:
        return {"system": _system}
    names = arguments.only.split(",")
    if unknown := sorted(set(names) - PARTS.keys()):
        raise UsageError(f"unknown part {unknown[0]!r}", hint=f"parts: {', '.join(PARTS)}")
    return {name: PARTS[name] for name in names}


def _models(place: Root, arguments: argparse.Namespace, console: Console) -> bool:
    with artifacts.guests(arguments.target.split(","), place) as runs:
        return _are_right(runs, arguments, console)


def _bare(arguments: argparse.Namespace, console: Console) -> bool:
    """Run models by a C program on the targets, without Python there, and return whether all
    passed. Raises NoRootError if a tool is missing."""
    runs = {target: bare.runner(target) for target in arguments.target.split(",")}
    return _are_right(runs, arguments, console)


def _are_right(
    runs: Mapping[str, artifacts.Run], arguments: argparse.Namespace, console: Console
) -> bool:
    folder = arguments.real
    sources = [] if folder is None else artifacts.files(folder)
    if arguments.models or folder is None:
        sources += artifacts.named((arguments.models or ",".join(QUICK)).split(","))
    table = Table(box=None)
    for name in ("model", "target"):
        table.add_column(name, no_wrap=True)
    for name in ("error", "exact", "its", "s, load and run"):
        table.add_column(name, justify="right", no_wrap=True)
    precision = parse_precision(arguments.precision)
    rows = list(artifacts.check(sources, runs, console.print, precision))
    for row in rows:
        errors = ["-" if error is None else f"{error:.1e}" for error in (row.exact, row.peer_exact)]
        said = row.failure or f"{row.error:.1e}"
        table.add_row(row.model, row.target, said, *errors, f"{row.seconds:.1f}")
    console.print(table)
    wrong = [row for row in rows if not row.is_right]
    if wrong:
        named = ", ".join(f"{row.model} for {row.target}" for row in wrong)
        console.print(f"not right to {wrong[0].tolerance:g} of the range: {named}")
    return not wrong


def _tests(place: Root, arguments: argparse.Namespace, console: Console) -> bool:
    files = arguments.files.split(",") if arguments.files else suite.FILES
    return suite.run(place, files, arguments.k, _plain(console))


def _conformance(place: Root, arguments: argparse.Namespace, console: Console) -> bool:
    return not conformance.check(
        place, arguments.k, arguments.every, arguments.workers, _plain(console)
    )


def _farm(place: Root, _: argparse.Namespace, console: Console) -> bool:
    return farm.check(place, console)


def _count(place: Root, arguments: argparse.Namespace, console: Console) -> bool:
    names = (arguments.models or ",".join(NAMES)).split(",")
    for target in arguments.target.split(","):
        console.print(f"for {target}, on {arguments.cpu}")
        rows = list(count.count(names, place, target, arguments.cpu, _plain(console)))
        console.print(count.table(rows))
    return True


def _system(place: Root, arguments: argparse.Namespace, console: Console) -> bool:
    files = arguments.files.split(",") if arguments.files else system.FILES
    return system.run(place, files, _plain(console))


def _plain(console: Console) -> Say:
    return lambda text: console.print(text, markup=False)


PARTS: dict[str, Part] = {
    "models": _models,
    "farm": _farm,
    "tests": _tests,
    "conformance": _conformance,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.boards",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    add("--optional", action="store_true", help="where there can be no root, say so and succeed")
    add("--models", help=f"of {', '.join(NAMES)}; by default {', '.join(QUICK)}")
    add("--precision", default="f32", help="models: what contractions multiply in")
    add("--real", type=Path, metavar="FOLDER", help="models: the ONNX files there, open")
    add("--target", default=board.TARGET, help=f"one or several, by default {board.TARGET}")
    add("--files", help="tests: files and folders of them, of this repository")
    add("-k", default="", metavar="PATTERN", help="tests of pytest or of ONNX that it finds")
    add("--every", type=int, default=1, metavar="N", help="conformance: each N-th test")
    add("--workers", type=int, default=2, help="conformance: processes")
    add("--bare", action="store_true", help="models by a C program: no root, no Python")
    add("--count", action="store_true", help="instructions of an inference, of all models")
    add("--cpu", default=board.QEMU_CPU, help="qemu's name of the CPU that counts")
    add("--system", action="store_true", help="tests on an arm64 kernel")
    return parser


if __name__ == "__main__":
    sys.exit(main())
