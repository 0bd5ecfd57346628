"""Immutable values of which there is one object each: those that are equal are the same.

Sets and dictionaries then compare and hash them by identity, which costs no call of Python; trees
of such values are compared without a walk.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

_lock = threading.Lock()


class Interned(type):
    """The metaclass of a class whose objects are what they are made of, and hashable: made once
    more of equal parts, an object is the one there is. One that nobody has is forgotten."""

    _known: weakref.WeakValueDictionary[tuple[Any, ...], Any]

    def __init__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> None:
        super().__init__(name, bases, members)
        cls._known = weakref.WeakValueDictionary()

    def __call__(cls, *parts: Any) -> Any:
        known = cls._known.get(parts)
        if known is None:
            with _lock:  # two threads must not make two
                known = cls._known.get(parts)
                if known is None:
                    known = cls._known[parts] = super().__call__(*parts)
        return known
