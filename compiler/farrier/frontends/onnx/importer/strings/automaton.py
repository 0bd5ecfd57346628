"""Compile regular expressions to the tables of a deterministic finite automaton (`ops/strings.py`).

The syntax tree becomes a nondeterministic automaton (Thompson, "Regular expression search
algorithm", 1968), whose sets of states become the states of the deterministic one.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.onnx.importer.strings.pattern import (
    WORD,
    Characters,
    Choice,
    Edge,
    Range,
    Repeat,
    Sequence,
    Tree,
    parse_pattern,
)
from farrier.ops import NotSupported

Array = npt.NDArray[Any]

_MOST_STATES = 2000
_MOST_WORK = 2_000_000  # The most states that are visited during the construction of sets.


def automaton(pattern: str) -> tuple[Array, Array, Array]:
    """Return the operands `starts`, `next` and `accepts` of the operator MatchAutomaton, for a
    match of the entire text.

    Raises Mismatch for an invalid pattern, and NotSupported for a pattern that is too large or uses
    an unsupported feature.
    """
    states = _States()
    first, last = states.new(), states.new()
    states.add(parse_pattern(pattern), first, last)
    ranges = [each for moves in states.moves for chosen, _ in moves for each in chosen]
    if states.sees_words:
        ranges += WORD
    starts = sorted({0, *(low for low, _ in ranges), *(high + 1 for _, high in ranges)})
    in_word = [states.sees_words and any(low <= at <= high for low, high in WORD) for at in starts]
    by_place = states.by_place(starts)
    queue, table, accepts = [_Set(True, False, frozenset([first]))], list[list[int]](), list[bool]()
    numbers = {queue[0]: 0}
    for chosen in queue:  # The queue grows during the loop.
        row, numbers_by_set = [-1] * len(starts), dict[tuple[bool, frozenset[int]], int]()
        for is_word in (False, True):
            after: dict[int, set[int]] = {}
            for state in states.closure(chosen.states, chosen.edges(is_word)):
                for place, target in by_place[state]:
                    if in_word[place] == is_word:
                        after.setdefault(place, set()).add(target)
            states.works(sum(map(len, after.values())))
            for place, targets in after.items():
                key = is_word, frozenset(targets)
                if key not in numbers_by_set:
                    reached = _Set(False, is_word, key[1])
                    numbers_by_set[key] = numbers.setdefault(reached, len(queue))
                    if numbers_by_set[key] == len(queue):
                        queue.append(reached)
                row[place] = numbers_by_set[key]
        table.append(row)
        accepts.append(last in states.closure(chosen.states, ("$", *chosen.edges(False))))
        if len(queue) > _MOST_STATES:
            raise _too_large()
    return np.array(starts, np.uint32), np.array(table, np.int32), np.array(accepts, np.bool_)


@dataclasses.dataclass(frozen=True, slots=True)
class _Set:
    """A state of the deterministic automaton. `states` is a set of nondeterministic states, before
    empty transitions are followed. `begins` is true at the start of the text, and `behind_word` is
    true after a word character."""

    begins: bool
    behind_word: bool
    states: frozenset[int]

    def edges(self, before_word: bool) -> tuple[str, ...]:
        """Return the kinds of `Edge` that match at this position; `before_word` states whether the
        next character is a word character."""
        kind = r"\b" if self.behind_word != before_word else r"\B"
        return ("^", kind) if self.begins else (kind,)


@dataclasses.dataclass(slots=True)
class _States:
    """A nondeterministic automaton. For each state, `moves` are its transitions on ranges of
    characters, and `jumps` are its empty transitions, each with the kind of `Edge` that must match
    there, or "" for none."""

    moves: list[list[tuple[tuple[Range, ...], int]]] = dataclasses.field(default_factory=list)
    jumps: list[list[tuple[str, int]]] = dataclasses.field(default_factory=list)
    sees_words: bool = False
    work: int = 0

    def new(self) -> int:
        if len(self.moves) == _MOST_STATES:
            raise _too_large()
        self.moves.append([])
        self.jumps.append([])
        return len(self.moves) - 1

    def add(self, tree: Tree, start: int, end: int) -> None:
        """Add states and transitions such that the automaton gets from `start` to `end` by exactly
        the texts that the tree matches."""
        match tree:
            case Characters(ranges):
                self.moves[start].append((ranges, end))
            case Edge(kind):
                self.jumps[start].append((kind, end))
                self.sees_words |= kind in (r"\b", r"\B")
            case Choice(options):
                for option in options:
                    self.add(option, start, end)
            case Sequence(parts):
                for part in parts:
                    after = self.new()
                    self.add(part, start, after)
                    start = after
                self.jumps[start].append(("", end))
            case Repeat(body, low, high):
                for _ in range(low):
                    after = self.new()
                    self.add(body, start, after)
                    start = after
                if high is None:
                    again = self.new()
                    self.jumps[start].append(("", again))
                    self.add(body, again, again)
                    start = again
                for _ in range((high or low) - low):
                    self.jumps[start].append(("", end))
                    after = self.new()
                    self.add(body, start, after)
                    start = after
                self.jumps[start].append(("", end))

    def by_place(self, starts: list[int]) -> list[list[tuple[int, int]]]:
        """Return the transitions of each state as pairs (number of a character range, target). The
        ranges divide all characters: range i begins at `starts[i]`."""
        moves_by_state: list[list[tuple[int, int]]] = []
        for moves in self.moves:
            places: set[tuple[int, int]] = set()
            for ranges, target in moves:
                for low, high in ranges:
                    first, behind = (bisect.bisect_left(starts, at) for at in (low, high + 1))
                    places.update((place, target) for place in range(first, behind))
            self.works(len(places))
            moves_by_state.append(sorted(places))
        return moves_by_state

    def closure(self, chosen: Iterable[int], edges: Collection[str]) -> frozenset[int]:
        """Return the given states and all states reachable from them by empty transitions of the
        kinds `edges`."""
        seen = set(chosen)
        left = list(seen)
        while left:
            state = left.pop()
            self.works(1 + len(self.jumps[state]))
            for kind, target in self.jumps[state]:
                if (not kind or kind in edges) and target not in seen:
                    seen.add(target)
                    left.append(target)
        return frozenset(seen)

    def works(self, amount: int) -> None:
        self.work += amount
        if self.work > _MOST_WORK:
            raise _too_large()


def _too_large() -> NotSupported:
    return NotSupported(f"a pattern whose automaton has more than {_MOST_STATES} states")
