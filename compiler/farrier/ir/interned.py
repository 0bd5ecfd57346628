"""Interned immutable objects: equal ones are the same object.

Sets and dictionaries hash and compare such objects by identity, without running Python code, and
trees of them are compared without traversal.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

_lock = threading.Lock()


class Interned(type):
    """The metaclass of interned classes, whose objects are defined by their hashable fields. A
    constructor call with equal fields returns the existing object; an object without references is
    freed."""

    _known: weakref.WeakValueDictionary[tuple[Any, ...], Any]

    def __init__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> None:
        super().__init__(name, bases, members)
        cls._known = weakref.WeakValueDictionary()

    def __call__(cls, *parts: Any) -> Any:
        instance = cls._known.get(parts)
        if instance is None:
            with _lock:  # Two threads must not construct the same value twice.
                instance = cls._known.get(parts)
                if instance is None:
                    instance = cls._known[parts] = super().__call__(*parts)
        return instance
