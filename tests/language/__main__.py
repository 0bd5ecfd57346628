"""Hold the language of the sources to the counts in `counts.txt`, which may only fall.

python -m tests.language            check; exit status 1 if a file has more uses of idioms
python -m tests.language --list F   print the uses in the files whose paths begin with F
python -m tests.language --update   keep lower counts, and the new names of files that moved
"""

from __future__ import annotations

import argparse
import collections
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.language.idioms import Violation, violations

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("counts.txt")
_GENERATED = "_pb2"  # The suffix of modules that protobuf's compiler writes.


def sources(root: Path = ROOT) -> list[str]:
    """Return the paths of the Python files that git tracks or would track, relative to `root`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    paths = sorted(set(filter(None, listed.split("\0"))))
    return [path for path in paths if _GENERATED not in path and (root / path).exists()]


def read_counts(path: Path) -> dict[str, int]:
    """Return the kept number of uses by source file; empty if nothing is kept yet."""
    if not path.exists():
        return {}
    pairs = (line.split(maxsplit=1) for line in path.read_text().splitlines())
    return {name: int(count) for count, name in pairs}


def write_counts(path: Path, counts: Mapping[str, int]) -> None:
    """Write one line a source file, ordered by name, so that changes of two files merge."""
    path.write_text("".join(f"{counts[name]} {name}\n" for name in sorted(counts)))


def check(uses: Mapping[str, Sequence[Violation]], kept: Mapping[str, int]) -> list[str]:
    """Return the messages about the files that have more uses than `kept` allows."""
    messages = []
    for path, in_file in uses.items():
        allowed = kept.get(path, 0)
        if len(in_file) > allowed:
            messages += described(path, in_file)
            messages.append(f"{path}: {len(in_file)} uses of idioms to avoid, {allowed} allowed")
    return messages


def described(path: str, uses: Sequence[Violation]) -> list[str]:
    return [f"{path}:{use.line}: {use.idiom}: {use.text!r}; write {use.instead}" for use in uses]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", metavar="PATH", help="print the uses below a path")
    parser.add_argument("--update", action="store_true", help="keep the counts of today")
    options = parser.parse_args(arguments)
    listed = [path for path in sources() if path.startswith(options.list or "")]
    uses = {path: violations((ROOT / path).read_text()) for path in listed}
    if options.list is not None:
        print(*(line for path in listed for line in described(path, uses[path])), sep="\n")
        return 0
    counts = {path: len(in_file) for path, in_file in uses.items() if in_file}
    kept = read_counts(KEPT)
    if options.update:
        return _update(counts, kept)
    messages = check(uses, kept)
    idioms = collections.Counter(use.idiom for in_file in uses.values() for use in in_file)
    print(*messages, *(f"{count:6} {idiom}" for idiom, count in idioms.most_common()), sep="\n")
    return int(bool(messages))


def _update(counts: Mapping[str, int], kept: Mapping[str, int]) -> int:
    """Keep today's counts, unless their sum is above that of the kept ones."""
    if kept and sum(counts.values()) > sum(kept.values()):
        print(f"{sum(counts.values())} uses of idioms, {sum(kept.values())} allowed: nothing kept")
        return 1
    write_counts(KEPT, counts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
