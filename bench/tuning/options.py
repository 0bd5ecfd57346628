"""What the command lines of the ruler have in common."""

from __future__ import annotations

import argparse
from pathlib import Path


def measuring(module: str, about: str, trials: int) -> argparse.ArgumentParser:
    """Of `python -m <module>`, with the options of measuring; `trials` of a task is the default."""
    found = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--trials", type=int, default=trials, help=f"of each task ({trials})")
    add("--seconds", type=float, default=3600.0, help="to measure a target for, at most (3600)")
    add("--threads", type=int, default=0, help="that run a kernel; 0: one a core")
    add("--corpus", type=Path, default=Path("build/tuning"), help="folder of what is known")
    return found
