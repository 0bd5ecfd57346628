"""The commands before any verb: version, help, and Ctrl-C while they are being imported."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import pytest
import typer

from farrier.cli.app import build

# Sends a signal while a module is looked for, or in a finalizer, where Python drops exceptions.
_INTERRUPTED = """
import importlib, os, signal, sys

command, wanted, number, place = sys.argv[1:]
sys.argv[1:] = ["jobs"]

def signalled():
    os.kill(os.getpid(), int(number))

class Finalized:
    def __del__(self):
        signalled()

class Named:
    def __set_name__(self, owner, name):
        signalled()

places = {
    "import": "signalled()",
    "finalizer": "Finalized()",
    "class": "type('Owner', (), {'attribute': Named()})",
}

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == wanted:
            exec(places[place])

main = importlib.import_module(command).main
sys.meta_path.insert(0, Finder)
main()
"""


def _run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("farrier.cli.main", "farrier.errors"),
        ("farrier.cli.main", "typer"),
        ("farrier.cli.main", "farrier.options"),
        ("farrier_device.main", "farrier_device.agent"),
        ("farrier_device.main", "grpc"),
    ],
)
def test_ctrl_c_while_a_module_is_imported_shows_no_traceback(command, module):
    done = _run(_INTERRUPTED, command, module, str(signal.SIGINT.value), "import")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("module", ["typer", "httpx"])  # Before Typer runs, and in its command.
def test_ctrl_c_in_exec_of_a_string_does_not_end_the_process_by_its_signal(tmp_path, module):
    (tmp_path / "interrupted.py").write_text(_INTERRUPTED)
    words = ["farrier.cli.main", module, str(signal.SIGINT.value), "import"]
    done = subprocess.run([sys.executable, "-m", "interrupted", *words], cwd=tmp_path)
    assert done.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_an_attribute_takes_its_name_ends_the_command_by_its_code(number):
    done = _run(_INTERRUPTED, "farrier.cli.main", "httpx", str(number.value), "class")
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


@pytest.mark.parametrize(
    ("command", "module", "number"),
    [
        ("farrier.cli.main", "farrier.errors", signal.SIGINT),
        ("farrier.cli.main", "typer", signal.SIGTERM),
        ("farrier_device.main", "grpc", signal.SIGINT),
    ],
)
def test_a_signal_whose_exception_python_drops_ends_the_command_all_the_same(
    command, module, number
):
    done = _run(_INTERRUPTED, command, module, str(number.value), "finalizer")
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


@pytest.mark.parametrize("command", ["farrier.cli.main", "farrier_device.main"])
def test_nothing_of_a_command_is_imported_before_its_guard(command):
    listed = f"import sys; before = set(sys.modules); from {command} import main; "
    done = _run(listed + "print(*(set(sys.modules) - before))")
    packages = {"farrier", "farrier.cli"} if command == "farrier.cli.main" else set()
    guard = {"__future__", "farrier_device", "farrier_device.interrupts"}
    assert set(done.stdout.split()) == {*guard, *packages, command}


def test_version_is_the_package_s(farrier):
    done = farrier("--version")
    assert (done.returncode, done.stdout) == (0, f"farrier {metadata.version('farrier')}\n")


def _parameters(command: Any, path: str) -> list[tuple[str, str | None]]:
    """(name, help text) of the options and arguments of a command and of all its verbs."""
    own = [(f"{path} {parameter.opts[0]}", parameter.help) for parameter in command.params]
    verbs = getattr(command, "commands", {})
    return own + [
        parameter for name in verbs for parameter in _parameters(verbs[name], f"{path} {name}")
    ]


def test_every_option_has_a_help_text():
    help_texts = _parameters(typer.main.get_command(build()), "farrier")
    assert "farrier devices release device" in dict(help_texts)
    assert [name for name, text in help_texts if not text] == []


def _help_of_groups(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the help, at 80 columns, of a command and of each verb that has verbs."""
    yield (
        path,
        command.get_help(
            command.make_context(
                path, [], terminal_width=80, max_content_width=80, resilient_parsing=True
            )
        ),
    )
    for name, verb in command.commands.items():
        if hasattr(verb, "commands"):
            yield from _help_of_groups(verb, f"{path} {name}")


def test_every_summary_is_whole_at_80_columns() -> None:
    texts = dict(_help_of_groups(typer.main.get_command(build()), "farrier"))
    assert {"farrier", "farrier records"} <= set(texts)
    assert "Serve the REST API." in texts["farrier"]
    cut = [line for text in texts.values() for line in text.splitlines() if line.endswith("...")]
    assert [line for line in cut if not line.startswith("Usage:")] == []


@pytest.mark.long
def test_users_get_tokens_of_their_own(farrier: Callable[..., Any]) -> None:
    token = farrier("tokens", "add", "ann").stdout.strip()
    assert len(token) >= 40
    listed = farrier("tokens", "list").stdout
    assert listed.startswith("ann  user  since ")
    assert token not in listed
    rotated = farrier("tokens", "rotate", "ann", "--expires", "30d").stdout.strip()
    assert len(rotated) >= 40
    assert rotated != token
    assert "  expires " in farrier("tokens", "list").stdout
    bob = ("tokens", "add", "bob", "--role", "operator", "--group", "lab")
    assert len(farrier(*bob).stdout.strip()) >= 40
    assert "bob  operator  group lab  since " in farrier("tokens", "list").stdout
    for words, message in (
        (("--expires", "soon"), "'soon' is not a valid expiry time"),
        (("--expires", "2001-01-01"), "would have expired already"),
        (("--group", "a b"), "'a b' is not a name for a group"),
        (("--role", "root"), "'root' is not one of 'user', 'operator', 'admin'"),
    ):
        refused = farrier("tokens", "add", "cid", *words)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr
    assert farrier("tokens", "revoke", "bob").stdout == "bob removed\n"
    assert farrier("tokens", "remove", "ann").stdout == "ann removed\n"
    again = farrier("tokens", "remove", "ann")
    assert (again.returncode, "farrier tokens list" in again.stderr) == (12, True)
