"""The idioms that the language of Farrier's docstrings, comments and names avoids.

A docstring begins with an imperative or a noun phrase with an article, a comment is a sentence,
and a name says what the value is. `violations` finds where a source file says otherwise; each
`Violation` names the line, the idiom and the better form.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import tokenize
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, slots=True)
class Idiom:
    """A pattern of prose to avoid, and the form to write instead."""

    name: str
    pattern: re.Pattern[str]
    instead: str


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One use of an idiom; `line` counts from 1."""

    line: int
    idiom: str
    text: str
    instead: str


_DETERMINER = r"(?:a|an|the|each|every|all|its|their|it|them|both|no|what|whatever|whether|where)"

OPENINGS = (
    Idiom(
        "opens with a relative word",
        re.compile(r"(?:What|Whether|Which|Where|Of|How|Who|Whose|When|None where)\b"),
        "an imperative (Return …, Check whether …) or a noun phrase (The cost of …)",
    ),
    Idiom(
        "opens with a verb in the third person",
        re.compile(rf"[A-Z][a-z]+(?<![su])s {_DETERMINER}\b"),
        "the imperative: Return, Write, Compute",
    ),
)
PROSE = (
    Idiom(
        "relative clause as noun",
        re.compile(r"\b(?:what is|those that|one that|that which)\b", re.IGNORECASE),
        "the noun",
    ),
    Idiom(
        "tell or say",
        re.compile(r"\b(?:told|tells?|telling)\b", re.IGNORECASE),
        "pass, declare, report, distinguish",
    ),
    Idiom("is no", re.compile(r"\b(?:is|are|was|were) no\b(?! longer)"), "is not a"),
    Idiom("gives", re.compile(r"\bgives\b(?! (?:up|way|out)\b)", re.IGNORECASE), "returns"),
    Idiom(
        "beside",
        re.compile(r"\bbeside\b", re.IGNORECASE),
        "the meaning: in addition to, next to, except, relative to",
    ),
    Idiom("as many", re.compile(r"\b(?:as|so) many\b", re.IGNORECASE), "the number by its name"),
)
# Names of a grammatical role, which say nothing of the value.
NAMES = frozenset(("found", "one", "made", "given", "known", "told"))
_FEWEST_WORDS = 4  # A comment with fewer words is a unit or a label, and need not be a sentence.
_DIRECTIVE = re.compile(r"(?:noqa|type:|pragma|fmt:|mypy:|ruff:|pylint:|isort:|!|-\*-)")
_CODE = re.compile(r"`|[a-z0-9]*[_.(=\[][a-z0-9]|[a-z]+(?:_[a-z]+)+|https?:|--|[ivxlc0-9]+\b")


def violations(source: str) -> list[Violation]:
    """Return the uses of all idioms in the text of a Python module, ordered by line."""
    tree = ast.parse(source)
    return sorted((*_in_docstrings(tree), *_in_comments(source), *_in_names(tree)))


def _in_docstrings(tree: ast.Module) -> Iterator[Violation]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node, clean=False)
        if text is None:
            continue
        line = node.body[0].lineno
        first = text.strip()
        for idiom in OPENINGS:
            if idiom.pattern.match(first):
                yield _violation(line, idiom, first)
        for offset, piece in enumerate(text.splitlines()):
            yield from _in_prose(line + offset, piece)


def _in_prose(line: int, text: str) -> Iterator[Violation]:
    plain = re.sub(r"`[^`]*`", "``", text)  # Code in backticks is exempt.
    for idiom in PROSE:
        for _ in idiom.pattern.finditer(plain):
            yield _violation(line, idiom, text)


def _violation(line: int, idiom: Idiom, text: str) -> Violation:
    return Violation(line, idiom.name, text.strip().partition("\n")[0], idiom.instead)


def _in_comments(source: str) -> Iterator[Violation]:
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#").strip()
        continues = token.start[0] == last + 1 and not token.line[: token.start[1]].strip()
        last = token.start[0]
        if _DIRECTIVE.match(text):
            continue
        yield from _in_prose(last, text)
        if not continues and _completes_a_name(text):
            better = "a sentence, or a name that needs no comment"
            yield Violation(last, "comment is not a sentence", text, better)


def _completes_a_name(comment: str) -> bool:
    return (
        comment[:1].islower() and len(comment.split()) >= _FEWEST_WORDS and not _CODE.match(comment)
    )


def _in_names(tree: ast.Module) -> Iterator[Violation]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg in NAMES:
            name, line = node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in NAMES:
            name, line = node.id, node.lineno
        else:
            continue
        yield Violation(line, "name for a role", name, "the thing: record, program, extent")
