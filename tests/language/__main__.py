"""Check the language of the sources: fail for each use of an idiom to avoid.

python -m tests.language             check all sources that git tracks or would track
python -m tests.language PATH …      check the files whose paths begin with one of these
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.language.idioms import violations

ROOT = Path(__file__).parents[2]
_GENERATED = "_pb2"  # Protobuf's compiler writes these modules.


def sources(root: Path = ROOT) -> list[str]:
    """Return the paths of the Python files that git tracks or would track, relative to `root`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    paths = sorted(set(filter(None, listed.split("\0"))))
    return [path for path in paths if _GENERATED not in path and (root / path).exists()]


def check(path: str, source: str) -> list[str]:
    """Return a message for each use of an idiom in the text of a Python file."""
    return [
        f"{path}:{use.line}: {use.idiom}: {use.text!r}; write {use.instead}"
        for use in violations(source)
    ]


def main(starts: Sequence[str]) -> int:
    paths = [path for path in sources() if not starts or path.startswith(tuple(starts))]
    messages = [line for path in paths for line in check(path, (ROOT / path).read_text())]
    print(*messages, f"{len(paths)} files, {len(messages)} uses of idioms to avoid", sep="\n")
    return int(bool(messages))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
