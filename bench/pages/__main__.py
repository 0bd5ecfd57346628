"""`make pages`: test and measure the dashboard in a real browser.

    python -m bench.pages --tests [--optional] [-k PATTERN]
    python -m bench.pages --figures [--minutes 10] [--rate 10] [--rounds 5]
    python -m bench.pages --screenshots FOLDER [--budget 60s]

--tests runs tests/dashboard against a service that it starts. --figures measures pages of a farm
with 500 jobs and 10,000 trials, and of a running job with 100,000 trials. --screenshots captures
every page in a light theme, a dark theme, and at the width of a phone.

If Chromium is missing and the process runs as root on Debian, it is installed by apt-get.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from bench.pages.browser import NoBrowserError, install_chromium
from farrier.errors import FarrierError
from farrier.options import parse_budget

REPOSITORY = Path(__file__).parents[2]


def main() -> int:
    arguments = _parser().parse_args()
    # A shell that starts this in the background has it ignore Ctrl-C, and so would its services.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        install_chromium(print)
        if arguments.tests:
            return _tests(arguments.k)
        # They need Playwright, which is known to be there only now.
        from bench.pages import figures, screenshots

        console = Console(highlight=False, soft_wrap=True)
        if arguments.screenshots is not None:
            screenshots.take_all(arguments.screenshots, parse_budget(arguments.budget), console)
        else:
            figures.measure(arguments, console)
        return 0
    except NoBrowserError as error:
        if not arguments.optional:
            return _failed(error)
        print(f"skipped: {error}")
        return 0
    except FarrierError as error:
        return _failed(error)
    except KeyboardInterrupt:
        return 130


def _failed(error: FarrierError) -> int:
    sys.stderr.write(f"error: {error}\n")
    return error.exit_code


def _tests(pattern: str) -> int:
    words = ["-m", "browser", "tests/dashboard", *(["-k", pattern] if pattern else [])]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=REPOSITORY, check=False
    ).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--tests", action="store_true", help="run tests/dashboard")
    action.add_argument("--figures", action="store_true", help="first paint, events, memory")
    action.add_argument("--screenshots", type=Path, metavar="FOLDER", help="of every page, there")
    add("--optional", action="store_true", help="where there is no browser, say so and succeed")
    add("--minutes", type=float, default=10.0, help="to watch the long job for")
    add("--rate", type=float, default=10.0, help="events a second of it")
    add("--rounds", type=int, default=5, help="openings of each page")
    add("--trials", type=int, default=100_000, help="of the long job")
    add("--budget", default="60s", help="to tune a model for, whose pages are pictured")
    add("-k", default="", metavar="PATTERN", help="tests that pytest finds by it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
