"""The command-line options that the programs of this package share."""

from __future__ import annotations

import argparse
from pathlib import Path


def measuring(module: str, about: str, trials: int) -> argparse.ArgumentParser:
    """Return an argument parser for `python -m <module>` with the options for measuring; `trials`
    is the default number of trials per task."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--trials", type=int, default=trials, help=f"of each task ({trials})")
    add("--seconds", type=float, default=3600.0, help="to measure a target for, at most (3600)")
    add("--threads", type=int, default=0, help="that run a kernel; 0: one a core")
    add("--corpus", type=Path, default=Path("build/tuning"), help="folder of what is known")
    return parser
