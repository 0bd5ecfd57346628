r"""Parse regular expressions in RE2's syntax to trees.

    tree = Characters([range]) | Sequence([tree]) | Choice([tree]) | Repeat(tree, low, high?)
         | Edge(^ | $ | \b | \B)

Whether the entire text matches does not depend on which match is preferred: greedy and lazy repeats
are the same, and groups have no other effect. Features of RE2 outside of this subset are rejected
by name.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from farrier.ops import Mismatch, NotSupported

Range: TypeAlias = tuple[int, int]  # The first and the last code point.
LAST = 0x10FFFF
_MOST_REPEATS = 1000  # The limit is RE2's own.
_DEEPEST = 100  # The limit on nested groups.


@dataclasses.dataclass(frozen=True, slots=True)
class Characters:
    ranges: tuple[Range, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Tree, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Tree, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """A repetition of a tree, at least `low` and at most `high` times (None: no limit)."""

    body: Tree
    low: int
    high: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Edge:
    r"""An empty match at one kind of position: the start of the text (^), its end ($), a word
    boundary (\b), or any other position (\B)."""

    kind: str


Tree: TypeAlias = Characters | Sequence | Choice | Repeat | Edge

_DIGITS: tuple[Range, ...] = ((48, 57),)
WORD: tuple[Range, ...] = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: tuple[Range, ...] = ((9, 10), (12, 13), (32, 32))
_CLASSES = {"d": _DIGITS, "w": WORD, "s": _SPACE}
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_EDGES = {"A": "^", "z": "$", "b": r"\b", "B": r"\B"}
_NEWLINE: tuple[Range, ...] = ((10, 10),)


def parse_pattern(pattern: str) -> Tree:
    """Return the tree of a pattern. Raises Mismatch for an invalid pattern, and NotSupported for
    features beyond the subset."""
    parser = _Parser(pattern)
    tree = parser.choice(dot_is_all=False, depth=0)
    if not parser.is_over:
        raise Mismatch(f"the pattern {pattern!r} closes a group that it did not open")
    return tree


def complement(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Return the ranges of all code points that are not in `ranges`."""
    left, others = 0, []
    for first, last in sorted(ranges):
        if first > left:
            others.append((left, first - 1))
        left = max(left, last + 1)
    return (*others, (left, LAST)) if left <= LAST else tuple(others)


class _Parser:
    """A recursive-descent parser of one pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    @property
    def is_over(self) -> bool:
        return self._at == len(self._pattern)

    def choice(self, dot_is_all: bool, depth: int) -> Tree:
        """Parse alternatives up to the end of the group."""
        if depth > _DEEPEST:
            raise NotSupported(f"a pattern of more than {_DEEPEST} groups in groups")
        options: list[Tree] = []
        parts: list[Tree] = []
        while not self.is_over and not self._sees(")"):
            if self._takes("|"):
                options.append(Sequence(tuple(parts)))
                parts = []
            elif self._takes("(?"):
                dot_is_all, group = self._special(dot_is_all, depth)
                if group is not None:
                    parts.append(self._repeated(group))
            elif self._takes("("):
                parts.append(self._repeated(self._group(dot_is_all, depth)))
            else:
                parts.append(self._repeated(self._single(dot_is_all)))
        return Choice((*options, Sequence(tuple(parts)))) if options else Sequence(tuple(parts))

    def _group(self, dot_is_all: bool, depth: int) -> Tree:
        tree = self.choice(dot_is_all, depth + 1)
        self._expect(")", "a group")
        return tree

    def _special(self, dot_is_all: bool, depth: int) -> tuple[bool, Tree | None]:
        """Parse the text after `(?`: a group, or flags for the rest of the enclosing group."""
        if self._takes("P<") or (self._sees("<") and not self._sees("<=") and not self._sees("<!")):
            self._takes("<")
            self._until(">", "the name of a group")
            return dot_is_all, self._group(dot_is_all, depth)
        flags, inner_dot_is_all = "", dot_is_all
        while self._sees(*"imsU-"):
            flags += self._next()
        for flag, is_on in _flags(flags):
            if flag in "im":
                raise self._refused(f"the flag {flag}")
            inner_dot_is_all = is_on if flag == "s" else inner_dot_is_all
        if self._takes(":"):
            return dot_is_all, self._group(inner_dot_is_all, depth)
        if flags and self._takes(")"):
            return inner_dot_is_all, None
        raise self._refused(f"a group that begins with (?{flags}{self._next()}")

    def _single(self, dot_is_all: bool) -> Tree:
        """Parse a character, a character class or an anchor."""
        char = self._next()
        match char:
            case ".":
                return Characters(((0, LAST),) if dot_is_all else complement(_NEWLINE))
            case "^" | "$":
                return Edge(char)
            case "[":
                return Characters(self._class())
            case "*" | "+" | "?":
                raise Mismatch(f"the pattern {self._pattern!r} repeats nothing at {self._at - 1}")
            case "\\":
                if self._sees(*_EDGES):
                    return Edge(_EDGES[self._next()])
                return Characters(self._escape())
            case _:
                return Characters(((ord(char), ord(char)),))

    def _escape(self) -> tuple[Range, ...]:
        """Parse the text after a backslash, inside or outside of a character class."""
        char = self._next()
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return ranges if char.islower() else complement(ranges)
        if char in _CONTROLS:
            code = _CONTROLS[char]
        elif char == "x":
            braced = self._takes("{")
            digits = self._until("}", "a code point") if braced else self._next() + self._next()
            code = self._number(digits, 16)
        elif char.isascii() and not char.isalnum():
            code = ord(char)
        else:
            raise self._refused(f"the escape \\{char}")
        return ((code, code),)

    def _class(self) -> tuple[Range, ...]:
        """Parse the text after `[`, a character class."""
        is_negated = self._takes("^")
        ranges: list[Range] = []
        is_first = True
        while is_first or not self._takes("]"):
            is_first = False
            if self._sees("[:"):
                raise self._refused("a class of POSIX")
            item_ranges = self._of_class()
            (first, last), is_one = (
                item_ranges[0],
                len(item_ranges) == 1 and item_ranges[0][0] == item_ranges[0][1],
            )
            if is_one and self._sees("-") and not self._sees("-]"):
                self._next()
                (_, last), *others = self._of_class()
                if others or last < first:
                    raise Mismatch(f"the pattern {self._pattern!r} has a range from {chr(first)!r}")
                item_ranges = ((first, last),)
            ranges += item_ranges
        return complement(tuple(ranges)) if is_negated else tuple(ranges)

    def _of_class(self) -> tuple[Range, ...]:
        char = self._next()
        return self._escape() if char == "\\" else ((ord(char), ord(char)),)

    def _repeated(self, tree: Tree) -> Tree:
        """Parse the repeat operators after `tree`, and return the repeated tree."""
        while True:
            if self._takes("*"):
                low, high = 0, None
            elif self._takes("+"):
                low, high = 1, None
            elif self._takes("?"):
                low, high = 0, 1
            else:
                counts = self._counts()
                if counts is None:
                    return tree
                low, high = counts
            self._takes("?")  # A lazy repeat.
            tree = Repeat(tree, low, high)

    def _counts(self) -> tuple[int, int | None] | None:
        """Parse `{n}`, `{n,}` or `{n,m}`. Other braces are ordinary characters, for which the
        result is None."""
        end = self._pattern.find("}", self._at) if self._sees("{") else -1
        if end < 0:
            return None
        least, comma, most = self._pattern[self._at + 1 : end].partition(",")
        if not all(text.isascii() and text.isdigit() for text in (least, most or "0")):
            return None
        self._at = end + 1
        low = self._number(least, 10)
        high = low if not comma else self._number(most, 10) if most else None
        if max(low, high or 0) > _MOST_REPEATS or (high is not None and high < low):
            raise Mismatch(f"the pattern {self._pattern!r} repeats from {low} to {high} times")
        return low, high

    def _number(self, digits: str, base: int) -> int:
        try:
            number = int(digits, base)
        except ValueError:
            number = -1
        if not 0 <= number <= LAST:
            raise Mismatch(f"the pattern {self._pattern!r} has the number {digits!r}")
        return number

    def _sees(self, *texts: str) -> bool:
        return self._pattern.startswith(texts, self._at)

    def _takes(self, text: str) -> bool:
        is_next = self._sees(text)
        self._at += len(text) if is_next else 0
        return is_next

    def _next(self) -> str:
        if self.is_over:
            raise Mismatch(f"the pattern {self._pattern!r} ends too early")
        self._at += 1
        return self._pattern[self._at - 1]

    def _until(self, end: str, what: str) -> str:
        start, self._at = self._at, self._pattern.find(end, self._at) + 1
        if not self._at:
            raise Mismatch(f"the pattern {self._pattern!r} does not end {what}")
        return self._pattern[start : self._at - 1]

    def _expect(self, text: str, what: str) -> None:
        if not self._takes(text):
            raise Mismatch(f"the pattern {self._pattern!r} does not end {what}")

    def _refused(self, what: str) -> NotSupported:
        return NotSupported(f"{what}, in the pattern {self._pattern!r},")


def _flags(text: str) -> list[tuple[str, bool]]:
    on, _, off = text.partition("-")
    return [(flag, True) for flag in on] + [(flag, False) for flag in off.replace("-", "")]
