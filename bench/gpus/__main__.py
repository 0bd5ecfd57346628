"""`make gpus`: run Farrier's GPU code with both compilers of WGSL.

    python -m bench.gpus [--only naga,tint] [--quick] [--optional] [--files tests/…] [-k PATTERN]
                         [--models …]

naga is the compiler of the package `wgpu`, and runs on the machine's Vulkan driver: the GPU's, or
Mesa's, which emulates a GPU (Debian's mesa-vulkan-drivers, which is installed if there is none).
Tint is the compiler of Chromium, in the package `wgpudawn` (Dawn); on a machine without a GPU it
needs a newer Mesa than Debian 12 has, which is unpacked below build/gpus without replacing the
system's. Nothing is timed.

--quick leaves out the slow tests: jobs through a service, the tuning of entire models, and the runs
of the models of `python -m bench` in f32 and f16 (bench.gpus.models). --models runs only these
checks, on other models. With --optional, a compiler that cannot be set up is skipped, and the
reason is printed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from bench.gpus import drivers
from bench.gpus.drivers import NoGpuError
from bench.terminal import open_console, run
from farrier.errors import UsageError

FILES = (
    *("tests/targets/webgpu", "tests/targets/gpu", "tests/end_to_end/test_gpu.py"),
    "tests/targets/test_backends.py::TestWebGpu",
)
SHAPES = ("tests/targets/gpu/test_shapes.py",)  # Fifty for each rule, by both compilers.
_SETUPS = {"naga": drivers.set_up_naga, "tint": drivers.set_up_tint}


def main() -> int:
    arguments = _parser().parse_args()
    console = open_console()
    return run(lambda console: _run(arguments, console), console)


def _run(arguments: argparse.Namespace, console: Console) -> int:
    names = arguments.only.split(",")
    if unknown := sorted(set(names) - _SETUPS.keys()):
        raise UsageError(f"unknown compiler {unknown[0]!r}", hint=f"known: {', '.join(_SETUPS)}")
    failed = []
    for name in names:
        try:
            variables = _SETUPS[name](console.print)
        except NoGpuError as error:
            if not arguments.optional:
                raise
            console.print(f"skipped {name}: {error}", markup=False)
            continue
        console.print(f"{name}: {drivers.adapter(variables)}", markup=False)
        if not all(_ends_well(words, variables) for words in _commands(arguments, name)):
            failed.append(name)
    console.print(f"GPUs: {', '.join(failed)} failed" if failed else "GPUs: all passed")
    return 1 if failed else 0


def _commands(arguments: argparse.Namespace, name: str) -> Iterator[list[str]]:
    """Yield the commands to run with the WGSL compiler `name`."""
    models = [sys.executable, "-m", "bench.gpus.models"]
    if arguments.models is not None:
        yield [*models, *arguments.models]
        return
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", *_marks(arguments, name)]
    if arguments.k:
        words += ["-k", arguments.k]
    yield [*words, *(arguments.files.split(",") if arguments.files else _present(FILES))]
    if arguments.quick or arguments.files or arguments.k:
        return
    if name == "naga":
        yield models
        yield [*models, "--f16"]
    else:
        yield [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "slow", *_present(SHAPES)]


def _ends_well(words: Sequence[str], variables: Mapping[str, str]) -> bool:
    return subprocess.run(words, env={**os.environ, **variables}, check=False).returncode == 0


def _marks(arguments: argparse.Namespace, name: str) -> Sequence[str]:
    """Return pytest's options that select tests for a WGSL compiler. Slow tests of jobs and tuning
    do not depend on the compiler, so only naga runs them, unless files are named."""
    is_quick = arguments.quick or (name != "naga" and not arguments.files)
    return ("-m", "not slow" if is_quick else "slow or not slow")


def _present(files: Sequence[str]) -> list[str]:
    return [file for file in files if os.path.exists(file.partition("::")[0])]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpus")
    parser.add_argument("--only", default="naga,tint", metavar="NAMES", help="compilers of WGSL")
    parser.add_argument("--quick", action="store_true", help="leave out the slow tests")
    parser.add_argument("--optional", action="store_true", help="skip what cannot be set up here")
    parser.add_argument("--files", default="", help="tests, separated by commas")
    parser.add_argument("-k", default="", metavar="PATTERN", help="as pytest's -k")
    parser.add_argument("--models", nargs="*", metavar="MODEL", help="run whole models alone")
    return parser


if __name__ == "__main__":
    sys.exit(main())
