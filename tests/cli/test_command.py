"""The command before any verb: its version, its help, and Ctrl-C while it is being imported."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest
import typer

from farrier.cli.app import build

# Ctrl-C as the module named first is looked for; then what the console script runs.
_INTERRUPTED = """
import os, signal, sys

wanted, sys.argv[1:] = sys.argv[1], ["jobs"]

class Interrupt:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

from farrier.cli.main import main
sys.meta_path.insert(0, Interrupt)
main()
"""


def _run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)


@pytest.mark.parametrize("module", ["farrier.errors", "typer", "farrier.options"])
def test_ctrl_c_while_a_module_is_imported_shows_no_traceback(module):
    done = _run(_INTERRUPTED, module)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_nothing_of_the_command_is_imported_before_its_guard():
    listed = "import sys; before = set(sys.modules); from farrier.cli.main import main; "
    done = _run(listed + "print(*sorted(set(sys.modules) - before))")
    assert done.stdout.split() == ["__future__", "farrier", "farrier.cli", "farrier.cli.main"]


def test_version_is_the_package_s(farrier):
    done = farrier("--version")
    assert (done.returncode, done.stdout) == (0, f"farrier {metadata.version('farrier')}\n")


def _parameters(command: Any, path: str) -> list[tuple[str, str | None]]:
    """(name, help text) of the options and arguments of a command and of all its verbs."""
    own = [(f"{path} {one.opts[0]}", one.help) for one in command.params]
    verbs = getattr(command, "commands", {})
    return own + [one for name in verbs for one in _parameters(verbs[name], f"{path} {name}")]


def test_every_option_has_a_help_text():
    told = _parameters(typer.main.get_command(build()), "farrier")
    assert "farrier devices release device" in dict(told)
    assert [name for name, text in told if not text] == []
