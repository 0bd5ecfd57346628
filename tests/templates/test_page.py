"""The page on templates: its package, its model and its commands, run as a reader would."""

from __future__ import annotations

import re
from pathlib import Path

from farrier.records import FileRecords
from farrier.templates import Template
from tests.documentation.snippets import programs
from tests.packages import MAIN

PATH = Path(__file__).parents[2] / "docs/tuning/templates.md"
PAGE = PATH.read_text()


def test_the_page_leads_to_a_tuned_template(python, tmp_path):
    (project,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    module, model = programs(PATH)
    install, *commands = re.findall(r"^    \$ (.*)$", PAGE, re.MULTILINE)
    assert install == "pip install ./product_rows"
    folder = tmp_path / "product_rows"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(project)
    (folder / "product_rows.py").write_text(module)
    python(model)
    said = [python(MAIN, *command.split()[1:], packages=[folder]) for command in commands]
    assert "verified on local" in said[1]
    assert (tmp_path / "stages").is_dir()
    records = list(FileRecords(tmp_path / "records.jsonl"))
    ran = {record.rule for record in records if record.samples_ns}
    assert ran == {"template.product_rows", "register_tile"}
    mine = [record for record in records if record.rule == "template.product_rows"]
    assert all(record.samples_ns for record in mine)
    assert {name for record in mine for name in record.knobs} == {
        "product_rows.vectors",
        "product_rows.rows",
    }
    assert any(rule in said[2] for rule in ran)


def test_the_page_tells_every_part_of_the_protocol():
    own = PAGE[PAGE.index("## What a template says") : PAGE.index("## An intrinsic")]
    rows = set(re.findall(r"^\| `(\w+)` \|", own, re.MULTILINE))
    parts = {*vars(Template), *Template.__annotations__}
    assert rows == {part for part in parts if not part.startswith("_")}
