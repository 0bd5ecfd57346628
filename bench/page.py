"""Replace tables in pages of the documentation, between marks."""

from __future__ import annotations

from pathlib import Path


def put(page: Path, name: str, text: str) -> None:
    """Replace the text between `<!-- NAME -->` and `<!-- end of NAME -->` in a page. Raises
    ValueError if the page does not have these marks."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, mark, rest = page.read_text().partition(begin)
    _, end_mark, after = rest.partition(end)
    if not (mark and end_mark):
        raise ValueError(f"{page} has no place for {name!r}")
    page.write_text(f"{before}{begin}{text.rstrip()}\n{end}{after}")
