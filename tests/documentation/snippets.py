"""The programs and commands that a page of the documentation shows, in the page's order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)$")
_COMMANDS = (
    "export ",
    "farrier ",
    "farrier-device ",
    "make ",
    "mkdir ",
    "openssl ",
    "python ",
    "FARRIER_",
)
_SHELL = ("sh", "console")


@dataclass(frozen=True)
class Snippet:
    """A part of a page that can be executed. `line` is the number of its first line in the page,
    `language` is `python` or `sh`."""

    line: int
    language: str
    text: str


def snippets(page: Path) -> list[Snippet]:
    """Return the programs and the commands of a Markdown page.

    A program is a fence of Python. Commands are the lines of a fence of `sh` or `console`, or of
    an indented block: those behind a prompt `$ ` if the block has one, each by itself, or else
    the whole block if its first line begins with a command that the pages use.
    """
    return [
        snippet
        for line, language, text in _blocks(page.read_text().splitlines())
        for snippet in _executable(line, language, text)
    ]


def programs(page: Path) -> list[str]:
    """Return the text of each program of a page."""
    return [snippet.text for snippet in snippets(page) if snippet.language == "python"]


def _blocks(lines: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (number of the first line, language, lines) of each fence and each indented block. The
    language of an indented block is ""."""
    number = 0
    while number < len(lines):
        start = number
        if fence := _FENCE.match(lines[number]):
            end = lines.index("```", number + 1)
            yield start + 2, fence[1], lines[start + 1 : end]
            number = end + 1
        elif lines[number].startswith("    ") and not lines[number - 1].strip():
            while number < len(lines) and lines[number].startswith("    "):
                number += 1
            yield start + 1, "", [line[4:] for line in lines[start:number]]
        else:
            number += 1


def _executable(line: int, language: str, text: list[str]) -> Iterator[Snippet]:
    if language == "python":
        yield Snippet(line, "python", "\n".join(text) + "\n")
    elif language in ("", *_SHELL):
        prompts = [number for number, words in enumerate(text) if words.startswith("$ ")]
        for number in prompts:
            yield Snippet(line + number, "sh", text[number][2:])
        if not prompts and (language or text[0].startswith(_COMMANDS)):
            yield Snippet(line, "sh", "\n".join(text))


def commands(snippet: Snippet) -> list[str]:
    """Return the commands of a snippet of `sh`, each with the lines that continue it; a program is
    one command."""
    if snippet.language == "python":
        return [snippet.text]
    return re.split(r"(?<!\\)\n(?! )", snippet.text)
