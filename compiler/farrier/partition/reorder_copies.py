"""Reorder copies among launches, so that consecutive launches can be started by one call.

    launch[frame] a(x@frame) -> h        launch[frame] a(x@frame) -> h
    copy(h -> y)                    →    launch[frame] b(h) -> z@frame
    launch[frame] b(h) -> z@frame        copy(h -> y)

A copy to the host is moved after the launches that follow it, and a copy from the host before the
launches that precede it, unless a launch accesses the same bytes. No copy is moved past any other
kind of step, and none in a program with loops, whose pointers alias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from farrier.ir.graph import Value
from farrier.partition.program import Copy, Launch, Repeat, Step, steps_in
from farrier.partition.queues import accesses
from farrier.partition.spans import Span, are_apart

Place: TypeAlias = Callable[[Value], tuple[str, Span]]


def with_copies_outside(
    steps: Sequence[Step], space_of: Callable[[Value], str], place_of: Place, host: str
) -> tuple[Step, ...]:
    """Return the steps with copies moved out from between launches: copies to the space `host`
    after the launches, copies from it before them.

    Steps that contain a loop are returned unchanged. `space_of` returns the space of a value, and
    `place_of` its memory and the range of its bytes there.
    """
    if any(isinstance(step, Repeat) for step in steps_in(steps)):
        return tuple(steps)

    def is_late(step: Step) -> bool:
        return isinstance(step, Copy) and space_of(step.target) == host

    def is_early(step: Step) -> bool:
        return isinstance(step, Copy) and space_of(step.source) == host

    late = _moved(steps, is_late, place_of)
    return tuple(reversed(_moved(list(reversed(late)), is_early, place_of)))


def _moved(steps: Iterable[Step], is_moved: Callable[[Step], bool], place_of: Place) -> list[Step]:
    """Return the steps with some copies moved to a later position. Each copy for which `is_moved`
    returns true moves past the launches and copies that follow it, until one of them conflicts with
    it."""
    result: list[Step] = []
    waiting: list[Copy] = []
    for step in steps:
        if isinstance(step, Copy) and is_moved(step):
            waiting.append(step)
            continue
        if not isinstance(step, Launch | Copy):
            result += waiting
            waiting = []
        while any(_conflict(copy, step, place_of) for copy in waiting):
            result.append(waiting.pop(0))  # They keep their order.
        result.append(step)
    return [*result, *waiting]


def _conflict(copy: Copy, step: Step, place_of: Place) -> bool:
    """Check whether a step accesses the bytes that a copy writes, or writes its source."""
    touched = [(access.value, access.is_write) for access in accesses(step)]
    if isinstance(step, Copy):
        touched += [(step.source, False), (step.target, True)]
    return any(
        _overlap(value, copy.target, place_of)
        or (is_write and _overlap(value, copy.source, place_of))
        for value, is_write in touched
    )


def _overlap(value: Value, other: Value, place_of: Place) -> bool:
    (memory, span), (other_memory, other_span) = place_of(value), place_of(other)
    return memory == other_memory and not are_apart(span, other_span)
