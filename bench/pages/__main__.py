"""`make pages`: the dashboard in a real browser.

    python -m bench.pages --tests [--optional] [-k PATTERN]

--tests runs tests/dashboard on a service that it starts. Where Chromium is missing, root on Debian
gets it by apt-get.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from bench.pages.browser import NoBrowserError, install_chromium
from farrier.errors import FarrierError

REPOSITORY = Path(__file__).parents[2]


def main() -> int:
    arguments = _parser().parse_args()
    try:
        install_chromium(print)
        return _tests(arguments.k)
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
    add("--tests", action="store_true", help="run tests/dashboard")
    add("--optional", action="store_true", help="where there is no browser, say so and succeed")
    add("-k", default="", metavar="PATTERN", help="tests that pytest finds by it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
