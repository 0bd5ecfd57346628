"""Each page's programs and commands, executed in the page's order, with a farm that runs.

The files and values that a page expects of its reader are in `reader.py`. Budgets of tuning are
cut, and placeholders such as `JOB` are replaced by the farm's values. A command that is not
executed here is listed there with the reason.
"""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

import pytest

from tests.documentation.reader import ELSEWHERE, PAGES, Page, Reader
from tests.documentation.snippets import commands, snippets
from tests.up import Up

ROOT = Path(__file__).parents[2]
# These pages have tests of their own, which run them as a reader would.
OF_OTHER_TESTS = {
    "docs/develop/custom_operators.md": "tests/ops/test_extension.py",
    "docs/tuning/templates.md": "tests/templates/test_page.py",
    "docs/tutorial.md": "tests/end_to_end/test_tutorial.py",
}


def _shown() -> list[str]:
    """Return the paths of the pages with programs or commands, relative to the repository."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(page.relative_to(ROOT)) for page in pages if snippets(page)]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in _shown() if name not in OF_OTHER_TESTS])
def test_what_a_page_shows_can_be_done(name: str, up: Up, tmp_path: Path, monkeypatch):
    page = PAGES.get(name, Page())
    missing = [each for each in page.packages if importlib.util.find_spec(each) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: `make snippets` installs them")
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(Reader(up, tmp_path, page)) as reader:
        for snippet in snippets(ROOT / name):
            reader.follow(snippet)


def test_each_reason_not_to_execute_a_command_is_needed():
    shown = {
        name: [command for snippet in snippets(ROOT / name) for command in commands(snippet)]
        for name in _shown()
    }
    for name, page in PAGES.items():
        for start in page.elsewhere:
            assert any(command.startswith(start) for command in shown[name]), (name, start)
    everything = [command for each in shown.values() for command in each]
    for start in ELSEWHERE:
        assert any(command.startswith(start) for command in everything), start
    assert set(OF_OTHER_TESTS) <= set(shown)
