"""docker-compose.yml says nothing that the roles do not understand."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

from farrier_farm.settings import variables

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text()


def test_every_variable_is_a_setting() -> None:
    used = set(re.findall(r"^ {6}([A-Z_]+): ", TEXT, re.MULTILINE))
    assert "REDIS_URL" in used
    assert used <= set(variables())


def test_every_command_is_a_verb() -> None:
    commands = re.findall(r"command: (?:>-\n\s+)?(farrier\S* ?.*)", TEXT)
    verbs = {shlex.split(command)[1] for command in commands if command.startswith("farrier ")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert verbs == {"serve", "broker", "worker", "builder", "trainer"}
    assert verbs <= set(project["entry-points"]["farrier.commands"])
    assert any(command.startswith("farrier-device ") for command in commands)
    assert "farrier-device" in project["scripts"]


def test_every_secret_is_declared_and_made_in_the_comment() -> None:
    declared = dict(re.findall(r"^  ([a-z-]+):\n    file: (secrets/\S+)", TEXT, re.MULTILINE))
    used = {n for line in re.findall(r"secrets: \[(.*)\]", TEXT) for n in line.split(", ")}
    assert used == set(declared)
    head = TEXT[: TEXT.index("x-role")].replace("$role", "user") + "secrets/device.token"
    assert all(path in head for path in declared.values())
